"""Kron-Matmuls whose tiles pass through shared memory slice by slice."""
