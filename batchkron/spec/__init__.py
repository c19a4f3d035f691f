"""Validated descriptions of what a call or operator asks for: shapes, dtypes, layouts."""
