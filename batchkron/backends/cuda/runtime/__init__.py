"""What all kernels share: devices, programs, launches, the cache of compiled kernels."""
