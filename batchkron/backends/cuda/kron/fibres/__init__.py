"""Kron-Matmuls by fibres: whole modes of a tile in shared memory."""
