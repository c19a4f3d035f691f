"""Vectors of Krylov methods, wherever they are, and the passes over them."""
