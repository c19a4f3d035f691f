"""What kernels compute, in NumPy. The modules are named as the folders of backends/cuda."""
