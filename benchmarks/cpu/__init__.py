"""The benchmark of the CPU backend: ``python -m benchmarks.cpu``."""
