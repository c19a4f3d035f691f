"""Kernels for small matrices, whose values a thread keeps in registers."""
