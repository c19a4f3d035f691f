"""Kronecker sums and their systems on a device."""
