"""Autotuning: trials of kernels on a device, and the store of their results."""
