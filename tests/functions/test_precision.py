"""The option ``precision`` off the device: it changes nothing, and is kept."""

import pickle

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk

PRECISIONS = [None, "tf32", "tf32x3"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_cpu_computes_in_full(rng, dtype, precision):
    factors = [random_array(rng, (5, 4), dtype), random_array(rng, (3, 33), dtype)]
    x = random_array(rng, (7, 132), dtype)
    expected = bk.KroneckerProduct(factors).apply(x)
    op = bk.KroneckerProduct(factors, precision=precision)
    np.testing.assert_array_equal(op.apply(x), expected)
    left, right = bk.gekmm(factors, x.T), bk.gemkm(expected, factors)
    np.testing.assert_array_equal(bk.gekmm(factors, x.T, precision=precision), left)
    np.testing.assert_array_equal(bk.gemkm(expected, factors, precision=precision), right)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_relatives_of_an_operator_keep_it(rng, precision):
    op = bk.KroneckerProduct([random_array(rng, (3, 4), "complex64")], precision=precision)
    relatives = [op.T, op.H, op.astype("complex128"), pickle.loads(pickle.dumps(op)), op.to("cpu")]
    relatives += [(2 * op).operator, (op.H @ op).args[1], (op + op).args[0]]
    assert [relative.precision for relative in relatives] == [precision] * len(relatives)
    assert (f"float32 on a GPU as {precision}" in op.describe()) == (precision is not None)


@pytest.mark.parametrize("precision", ["TF32", "float32", "", 3])
def test_other_precisions_are_refused(precision):
    factors = [np.eye(2)]
    text = 'expected None \\(full float32\\), "tf32x3" or "tf32"'
    for call in (
        lambda: bk.KroneckerProduct(factors, precision=precision),
        lambda: bk.gekmm(factors, np.ones(2), precision=precision),
        lambda: bk.gemkm(np.ones(2), factors, precision=precision),
    ):
        with pytest.raises(ValueError, match=text):
            call()
