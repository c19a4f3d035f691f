"""Krylov methods on a device: fused passes over vectors."""
