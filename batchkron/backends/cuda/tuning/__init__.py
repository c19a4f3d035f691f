"""Autotuning: trials of kernels on a device, and where their results are stored."""
