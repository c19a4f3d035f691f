"""`validate` finds a fault in any way of applying an operator, also in one block of many."""

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk
from batchkron.operators.validation import ValidationReport
from batchkron.problems import make
from batchkron.problems.semidiscrete.operators import validate_groups

OFF = 1.0 + 1e-10  # factor of one wrong entry, in float64 far beyond any bound of rounding


def listed(rng, dtype="float64"):
    """Seven input and five output blocks, rectangular factors."""
    pools = [random_array(rng, (4, 3, 2), dtype), random_array(rng, (4, 2, 3), dtype)]
    ids = rng.integers(0, 4, (40, 2))
    blocks = rng.integers(0, 7, 40), rng.integers(0, 5, 40)
    return bk.BatchedKron(pools, ids, *blocks, num_inputs=7, num_outputs=5)


def swept(rng):
    return make("continuity-2d", level=3, degree=1).operator


def systems(rng):
    pools = random_array(rng, (2, 3, 4, 2, 2), "float64")
    ids = rng.integers(0, 4, (20, 1))
    return bk.BatchedKron([pools], ids, rng.integers(0, 7, 20), rng.integers(0, 5, 20))


@pytest.fixture(params=[listed, swept, systems])
def op(request, rng):
    return request.param(rng)


def broken_apply(op, vectors):
    """Make one entry of A x wrong where x is one vector (0) or several (1)."""
    right, systems = op.apply, len(op.batch_shape)

    def apply(x, out=None):
        y = right(x, out)
        if y.ndim - 2 - systems == vectors:
            y.reshape(-1)[-1] *= OFF
        return y

    op.apply = apply


def broken_accumulate(op, change):
    right = op.accumulate

    def accumulate(x, y, *, alpha=1):
        return change(right, x, y, alpha)

    op.accumulate = accumulate


def off(y):
    y.reshape(-1)[-1] *= OFF
    return y


FAULTS = {
    "one vector": (lambda op: broken_apply(op, 0), "A x"),
    "several vectors": (lambda op: broken_apply(op, 1), "A X"),
    "no alpha": (
        lambda op: broken_accumulate(op, lambda right, x, y, alpha: right(x, y)),
        "y + alpha A x",
    ),
    "alpha without its sign": (
        lambda op: broken_accumulate(op, lambda right, x, y, alpha: right(x, y, alpha=abs(alpha))),
        "y + alpha A x",
    ),
    "alpha = 1": (
        lambda op: broken_accumulate(
            op, lambda right, x, y, alpha: right(x, off(y) if alpha == 1 else y, alpha=alpha)
        ),
        "y + A x",
    ),
    "overwritten": (
        lambda op: broken_accumulate(
            op, lambda right, x, y, alpha: right(x, np.zeros_like(y), alpha=alpha)
        ),
        "y + alpha A x",
    ),
    "the transpose": (lambda op: broken_apply(op.T, 0), "A^T x"),
    "the transpose of several": (lambda op: broken_apply(op.T, 1), "A^T X"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_way_is_compared(op, fault):
    assert op.validate().ok
    breaks, worst = FAULTS[fault]
    breaks(op)
    report = op.validate()
    assert not report.ok
    if fault not in ("overwritten", "alpha without its sign", "no alpha"):  # in several ways
        assert report.worst == worst


def test_complex_numbers(rng):
    """A lost imaginary part of alpha is found, and the adjoint in place of the transpose."""
    op = listed(rng, "complex128")
    assert op.validate().ok
    broken_accumulate(op, lambda right, x, y, alpha: right(x, y, alpha=alpha.real))
    assert not op.validate().ok
    other = listed(rng, "complex128")
    other._relatives["transpose"] = other.H
    report = other.validate()
    assert not report.ok
    assert report.worst.startswith("A^T")


@pytest.mark.parametrize("level", [1, 3])
def test_the_transpose_in_blocks_that_no_sampled_product_reads(rng, level):
    """There the transpose must give exactly zero."""
    op = make("continuity-2d", level=level, degree=1).operator
    for seed in range(5):
        assert op.validate(samples=1, seed=seed).ok
    op = bk.BatchedKron(rng.standard_normal((1, 2, 2)), [[0]], [0], [0], num_inputs=2)
    assert op.validate(samples=1).ok
    right = op.T.apply
    op.T.apply = lambda w, out=None: right(w, out) + 1e-300
    assert not op.validate(samples=1).ok


def test_samples_are_of_the_same_blocks_in_every_way(op):
    count = op._output_shape[0]
    assert op.validate(samples=2).samples == 2
    assert op.validate(samples=count + 1).samples == count
    broken_apply(op.T, 0)
    assert not op.validate(samples=count).ok
    with pytest.raises(ValueError, match="samples is 0; expected 1 or more, or None"):
        op.validate(samples=0)


class Group:
    def __init__(self, ratio, worst):
        self.report = ValidationReport(1, 1, ratio, ratio, worst)

    def validate(self, samples, seed):
        return self.report


def test_nan_in_a_later_group_is_not_lost():
    groups = [Group(0.5, "A x"), Group(np.nan, "A X"), Group(0.7, "A^T x")]
    report = validate_groups(groups, None, 0)
    assert not report.ok
    assert np.isnan(report.max_error)
    assert (report.samples, report.worst) == (3, "A X")
