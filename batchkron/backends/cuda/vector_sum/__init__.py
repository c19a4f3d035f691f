"""Linear combinations of vectors on a CUDA device."""
