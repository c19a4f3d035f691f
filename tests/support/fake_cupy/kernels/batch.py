"""Batch lists: of one mode in order of their outputs, of any modes in no order."""

from dataclasses import dataclass

import numpy as np

from batchkron.backends.cuda.batch.kernel import unsorted_arguments
from fake_cupy.memory import at


def multiply_batch(kernel, address):
    """What the kernel of any batch list does, for lists of one mode."""
    shape, (step,) = kernel.work, kernel.work.steps
    given = at(address, (), kernel.arguments.dtype)
    ids = at(given["ids"], (shape.products,), np.int32)
    inputs = at(given["inputs"], (shape.products,), np.int64)
    starts = at(given["starts"], (shape.num_outputs + 1,), np.int64)
    x = at(given["x"], (shape.num_inputs, step.L, step.C), shape.dtype)
    y = at(given["y"], (shape.num_outputs, step.L, step.K), shape.dtype)
    factor = given["steps"]["factors"][0]
    for k in range(shape.num_outputs):
        total = np.zeros((step.L, step.K), shape.dtype)
        for b in range(starts[k], starts[k + 1]):
            matrix = at(
                factor["data"] + factor["matrix"] * shape.dtype.itemsize * int(ids[b]),
                (step.K, step.C),
                shape.dtype,
                (factor["row"], factor["column"]),
            )
            total += x[inputs[b]] @ matrix.T
        y[k] = given["alpha"] * total + (y[k] if given["accumulate"] else 0)


@dataclass(frozen=True)
class UnsortedKernel:
    """A kernel of batched_kron: its dtype, tile, and the C++ type of the list's numbers."""

    dtype: np.dtype
    tile: object
    number: str


def add_unsorted(kernel, address):
    """What the kernel of lists in no order does, with pools as they are and no identities."""
    steps, dtype = kernel.tile.steps, kernel.dtype
    given = at(address, (), unsorted_arguments(dtype, len(steps)))
    number = {"int": np.int32, "long long": np.int64}[kernel.number]
    products, modes = int(given["products"]), len(steps)
    ids = at(given["ids"], (products, modes), number)
    inputs, outputs = (at(given[name], (products,), number) for name in ("inputs", "outputs"))
    columns, rows = [0] * modes, [0] * modes
    for step in steps:
        columns[step.mode], rows[step.mode] = step.C, step.K
    lead, blocks = int(given["outer"]), (int(given["num_inputs"]), int(given["num_outputs"]))
    x = at(given["x"], (lead, blocks[0], *columns), dtype)
    y = at(given["y"], (lead, blocks[1], *rows), dtype)
    weights = at(given["weights"], (products,), dtype) if given["weights"] else None
    for b in range(products):
        numbers = [*zip(ids[b, given["columns"]], given["limits"], strict=True)]
        numbers += [(inputs[b], blocks[0]), (outputs[b], blocks[1])]
        if not all(0 <= one < limit for one, limit in numbers):
            refused = at(given["refused"], (1,), np.int64)
            refused[0] = min(refused[0], b)
            continue
        part = x[:, inputs[b]]
        for s, step in enumerate(steps):
            pool = at(given["pools"][s], (given["limits"][s], step.K, step.C), dtype)
            matrix = pool[ids[b, step.mode]]
            part = np.moveaxis(np.tensordot(matrix, part, (1, step.mode + 1)), 0, step.mode + 1)
        y[:, outputs[b]] += given["alpha"] * (1 if weights is None else weights[b]) * part
