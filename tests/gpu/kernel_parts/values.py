"""What all parts of every_kernel.py share: random arrays, and how results are compared."""

import cupy
import numpy as np

BFLOAT16_EPS = 2.0**-7  # np.finfo does not know it


def check(result, expected, what, errors=2000):
    result = cupy.asnumpy(result)
    eps = BFLOAT16_EPS if result.dtype.name == "bfloat16" else np.finfo(result.dtype).eps
    result = result.astype(expected.dtype)
    scale = errors * eps * np.abs(expected).max(initial=1)
    assert np.abs(result - expected).max(initial=0) <= scale, what


def random_array(rng, shape, dtype):
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)
