"""Kernels for any sizes and dtype."""
