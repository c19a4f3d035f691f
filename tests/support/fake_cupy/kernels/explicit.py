"""Explicit Kronecker products."""

import numpy as np

from fake_cupy.memory import at


def write_product(kernel, address):
    """What kernels of explicit products do."""
    dtype = kernel.work.dtype
    given = at(address, (), kernel.arguments.dtype)

    def matrix(name):
        layout = given[name]
        shape, strides = (layout["rows"], layout["columns"]), (layout["row"], layout["column"])
        return at(given[f"{name}_data"], shape, dtype, strides)

    def product_of(name):
        inner = f"{name}_inner"
        if inner not in given.dtype.names or given[inner]["rows"] == 0:
            return matrix(name)
        return np.kron(matrix(name), matrix(inner))

    product = np.kron(product_of("a"), product_of("b"))
    at(given["out"], product.shape, dtype)[...] = product
