"""Inner products of long vectors: exact sums, and the same bits for any number of threads."""

import math
import threading

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk
from batchkron.backends.cpu.inner_product import inner_product
from batchkron.solvers.products import dot


def exact(x, y):
    """Σ conj(x_i) y_i, rounded once."""
    pairs = {
        "real": [(x.real, y.real), (x.imag, y.imag)],
        "imag": [(x.real, y.imag), (-x.imag, y.real)],
    }
    return complex(
        *(
            math.fsum(float(p) * float(q) for a, b in terms for p, q in zip(a, b, strict=True))
            for terms in pairs.values()
        )
    )


@pytest.mark.parametrize("size", [0, 1, 7, 100, 1 << 14, 40_001])
def test_values(rng, dtype, size):
    x, y = (random_array(rng, size, dtype) for _ in range(2))
    bound = 4 * np.finfo(float).eps * math.sqrt(size + 1) * np.linalg.norm(x) * np.linalg.norm(y)
    assert abs(inner_product(x, y) - exact(x.astype("D"), y.astype("D"))) <= bound
    assert abs(dot(x, y) - exact(x.astype("D"), y.astype("D"))) <= bound + (
        0 if size >= 1 << 13 else 10 * np.finfo(dtype).eps * abs(np.vdot(abs(x), abs(y)))
    )


def test_any_number_of_threads_gives_the_same_bits(rng, dtype):
    x, y = (random_array(rng, 300_001, dtype) for _ in range(2))
    found = set()
    before = bk.get_num_threads()
    try:
        for threads in (1, 2, 3, 4):
            bk.set_num_threads(threads)
            found |= {inner_product(x, y) for _ in range(6)}
    finally:
        bk.set_num_threads(before)
    assert len(found) == 1


def test_threads_of_the_user_have_their_own_sums(rng):
    vectors = [rng.standard_normal(20_000) for _ in range(4)]
    expected = [inner_product(v, v) for v in vectors]
    found = [None] * 4

    def work(k):
        found[k] = {inner_product(vectors[k], vectors[k]) for _ in range(200)}

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{value} for value in expected]


def test_what_is_not_finite_propagates_and_strides_are_copied():
    x = np.ones(40_000)
    x[29_999] = np.nan
    assert np.isnan(dot(x, x).real)
    x[29_999] = np.inf
    assert dot(x, x) == np.inf
    assert dot(x[::-2], np.ones(20_000, ">f8")[::1]).real == np.inf
