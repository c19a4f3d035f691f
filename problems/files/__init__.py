"""The contents of problem files, and result files of ASGarD."""
