"""Kernels of batch lists that hold a block in the registers of a team of threads."""
