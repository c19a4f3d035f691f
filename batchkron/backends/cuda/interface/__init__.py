"""All of the CUDA backend that other packages of batchkron import by name."""
