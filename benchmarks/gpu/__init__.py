"""The benchmark of the CUDA backend: `python -m benchmarks.gpu`.

Its commands are files here. `cases` says what is measured and what an H200 allows at best; `parts`
measures it, a file for each kind of product, next to `peers`; `report` judges and prints it;
`profiling` asks Nsight Compute about cells that missed their goal.
"""
