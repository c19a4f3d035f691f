"""Kron-Matmuls of factors of any size and dtype, by way of two buffers."""
