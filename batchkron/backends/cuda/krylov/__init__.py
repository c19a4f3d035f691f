"""Krylov methods on a CUDA device: fused passes over vectors."""
