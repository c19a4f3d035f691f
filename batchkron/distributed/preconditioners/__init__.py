"""Preconditioners whose parts are applied by different ranks."""
