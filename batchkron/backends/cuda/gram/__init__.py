"""Gram matrices of one mode on a CUDA device."""
