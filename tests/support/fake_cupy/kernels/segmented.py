"""Sums over edges: tables in the layout of the general family."""

import numpy as np

from batchkron.backends.cuda.segmented.edges import WORD, column_pitch, matrix_words
from fake_cupy.memory import at


def sum_edges(kernel, address):
    """What a launch for one table does."""
    shape, dtype = kernel.work, kernel.work.dtype
    given = at(address, (), kernel.arguments.dtype)
    outer, inner, nodes = int(given["outer"]), int(given["inner"]), int(given["nodes"])
    inputs, outputs = int(given["num_inputs"]), int(given["num_outputs"])
    first = shape.modes[0]
    size, given_size = first.L * first.K * first.R, first.L * first.C * first.R
    x = at(given["x"], (outer, inputs, given_size, inner), dtype)
    y = at(given["y"], (outer, outputs, size, inner), dtype)
    scratch = int(given["num_scratch"])
    between = at(given["scratch"], (outer, scratch, size, inner), dtype) if scratch else None
    targets = at(given["targets"], (nodes,), np.int32)
    starts = at(given["starts"], (nodes * len(shape.modes) + 1,), np.int64)
    edges = at(given["edges"], (int(starts[-1]), 2), np.int32)
    for node, target in enumerate(targets):
        total = np.zeros((outer, size, inner), dtype)
        for number, mode in enumerate(shape.modes):
            first, stop = starts[node * len(shape.modes) + number :][:2]
            for child, word in edges[first:stop]:
                source = x[:, child] if child < inputs else between[:, child - inputs]
                pitch = column_pitch(mode, dtype.itemsize)
                words = at(
                    given["matrices"] + np.uint64(int(word) * WORD),
                    (matrix_words(mode, dtype.itemsize) * WORD // dtype.itemsize,),
                    dtype,
                )
                matrix = words[: mode.C * pitch].reshape(mode.C, pitch)[:, : mode.K]
                block = source.reshape(outer, mode.L, mode.C, mode.R, inner)
                total += np.einsum("olcri,ck->olkri", block, matrix).reshape(total.shape)
        if target >= outputs:
            between[:, target - outputs] = total
        else:
            start = y[:, target] if given["accumulate"] else 0
            y[:, target] = start + given["alpha"] * total
