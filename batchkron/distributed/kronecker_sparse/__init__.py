"""Kronecker-sparse matrices, and chains of them, whose vectors are spread over ranks."""
