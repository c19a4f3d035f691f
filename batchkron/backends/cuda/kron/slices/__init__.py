"""Kernels whose tiles pass through shared memory slice by slice."""
