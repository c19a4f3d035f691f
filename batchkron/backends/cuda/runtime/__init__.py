"""Parts shared by all CUDA kernels: devices, compilation, launches, cache of compiled kernels."""
