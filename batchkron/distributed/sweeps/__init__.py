"""Operators on sparse grids whose cells are dealt out to ranks."""
