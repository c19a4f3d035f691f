"""Vectors that are spread over ranks: devices of a host, and processes of the CPU."""
