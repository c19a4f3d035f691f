"""One-dimensional matrices: derivatives, their ends, volume elements, hierarchical operators."""
