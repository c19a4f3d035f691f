"""Runs device kernels on the CPU, lane by lane, from the templates that a device compiles."""
