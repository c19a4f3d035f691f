"""Kron-Matmuls."""

import numpy as np

from fake_cupy.memory import at


def multiply(kernel, address):
    """What kernels of Kron-Matmuls do."""
    run = kernel.work
    given = at(address, (), kernel.arguments.dtype)
    left = given["L"] if "L" in given.dtype.fields else given["columns"] // given["R"]
    factors = given["factors"] if "factors" in given.dtype.fields else given["steps"]["factors"]
    x = at(given["x"], (left, *run.inputs, given["R"]), run.dtype)
    for mode, one in zip(kernel.modes, factors, strict=True):
        axis = mode - run.first
        matrix = at(
            one["data"],
            (run.outputs[axis], run.inputs[axis]),
            run.dtype,
            (one["row"], one["column"]),
        )
        x = np.moveaxis(np.tensordot(matrix, x, (1, axis + 1)), 0, axis + 1)
    result = given["alpha"] * x
    shape = (left, *run.outputs, given["R"])
    if given["previous"]:
        result = result + given["beta"] * at(given["previous"], shape, run.dtype)
    at(given["y"], shape, run.dtype)[...] = result
