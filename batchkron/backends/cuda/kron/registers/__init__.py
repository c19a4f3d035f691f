"""Kron-Matmuls of small factors: modes of a tile in registers."""
