"""Kernels for small factors, which multiply along several modes in a thread's registers."""
