"""Kernels for one factor of any size, of which panels pass through shared memory."""
