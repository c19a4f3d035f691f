"""Kronecker-sparse matrices, and chains of them, as linear operators."""
