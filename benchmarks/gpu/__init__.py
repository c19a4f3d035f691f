"""The benchmark of the CUDA backend: `python -m benchmarks.gpu`."""
