"""Reading result files of ASGarD, a sparse-grid code of Oak Ridge National Laboratory."""
