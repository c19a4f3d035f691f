"""Kernels for larger real factors, which multiply fibres of a tile in shared memory."""
