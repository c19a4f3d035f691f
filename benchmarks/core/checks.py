"""Operands of a measurement, and whether a result on them is right."""

import numpy as np

# A prime number of random values is repeated in large arrays, so that no two rows are the same.
RANDOM_VALUES = 4_194_301


def random_array(rng, shape, dtype):
    """Standard normal values."""
    size = int(np.prod(shape))
    values = rng.standard_normal(min(size, RANDOM_VALUES)).astype(dtype)
    return np.resize(values, size).reshape(shape)


def on_host(array):
    return array if isinstance(array, np.ndarray) else array.get()


def relative_error(result, expected):
    """The largest error, relative to the largest entry; of arrays of one library."""
    return float(abs(result - expected).max() / abs(expected).max())


class Data:
    """Operands of one shape and dtype, and the outputs that all contenders write to in turn.

    There are ``sets`` of vectors and outputs; contenders go through them one call after another.
    ``reference``: indices of checked rows of the first output, their values, bounds of the errors.
    """

    def __init__(self, dtype, sets, rng):
        self.dtype = dtype
        self.sets = sets
        self.rng = rng
        self.inputs = []
        self.outputs = []

    def poison(self):
        """Fill the first output with NaN, so that a result must be written to be right."""
        self.outputs[0].fill(np.nan)

    def wrong(self, result):
        """Say what is wrong with a result on the first set: entries may differ by rounding."""
        picked, expected, bound = self.reference
        actual = result.reshape(self.outputs[0].shape)[picked].astype(np.float64)
        excess = np.abs(actual - expected) - bound
        if not np.isfinite(actual).all():
            return "wrong result: not written everywhere, or not finite"
        if (excess > 0).any():
            return f"wrong result: off by {np.abs(actual - expected).max():.1e}"
        return None

    def epsilon(self, terms):
        """Largest relative difference of two results that each take ``terms`` operations."""
        return float(4 * np.finfo(self.dtype).eps * terms)

    def picked(self, rows, maximum):
        """Indices of the first row, the last, and random others: 1 to ``maximum`` rows."""
        if maximum >= rows:
            return np.arange(rows)
        chosen = self.rng.choice(rows, size=max(1, maximum), replace=False)
        ends = [0, rows - 1] if maximum > 2 else []
        return np.unique(np.r_[chosen[len(ends) :], ends].astype(np.int64))
