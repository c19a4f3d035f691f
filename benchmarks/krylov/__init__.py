"""Krylov methods beside SciPy's, CuPy's and torch's."""
