"""The backend on CUDA devices; importing this folder alone imports no CuPy."""
