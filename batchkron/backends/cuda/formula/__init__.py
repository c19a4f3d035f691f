"""Formulas at points on a CUDA device."""
