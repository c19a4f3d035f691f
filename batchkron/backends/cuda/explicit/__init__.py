"""The explicit Kronecker product on a device."""
