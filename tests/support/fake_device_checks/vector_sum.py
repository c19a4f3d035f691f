"""linear_combination: values, numbers of vectors, aliases and overlaps."""

import cupy
import numpy as np
import pytest
from dense_oracle import DTYPES, random_array

import batchkron as bk
from fake_device_checks.common import close, on_device


def linear_combinations():
    """One kernel for up to eight vectors, one after the other for more."""
    rng = np.random.default_rng(8)
    for dtype in DTYPES:
        for count in (1, 2, 8, 9, 17):
            factors = rng.standard_normal(count).tolist()
            host = [random_array(rng, (3, 7), dtype) for _ in range(count)]
            expected = bk.linear_combination(factors, host, np.empty_like(host[0]))
            vectors = on_device(host)
            close(bk.linear_combination(factors, vectors, cupy.empty((3, 7), dtype)), expected)
            place = int(rng.integers(count))
            close(bk.linear_combination(factors, vectors, vectors[place]), expected)
    (memory,) = on_device([rng.standard_normal(12)])
    with pytest.raises(ValueError, match=r"out overlaps vectors\[1\] in memory"):
        bk.linear_combination([1.0, 1.0], [memory[6:], memory[1:7]], memory[:6])
    empty = cupy.empty((0,), np.float64)
    assert bk.linear_combination([2.0], [memory[:0]], empty) is empty
