"""Asking for a CUDA device where CuPy is not installed."""

import numpy as np
import pytest

import batchkron as bk
from batchkron.problems import load_problem, make

INSTALL = r"pip install 'batchkron\[cuda13\]'"


def test_operators_and_problems_say_what_to_install(no_cupy, tmp_path):
    op = bk.KroneckerProduct([np.eye(2), np.eye(3)])
    problem = make("continuity-1d", level=1, degree=0)
    requests = [
        lambda: op.to("cuda"),
        lambda: (2 * op).to("cuda"),
        lambda: bk.KroneckerSparse(np.ones((1, 2, 2, 1))).to("cuda"),
        lambda: bk.SparseGridOperator([[0]], [[None]], 1).to("cuda"),
        lambda: bk.SegmentedModeMultiply(
            np.ones((1, 1, 1)), [0, 1], [0], [0], before=1, behind=1
        ).to("cuda"),
        lambda: problem.to("cuda"),
        lambda: load_problem(tmp_path / "missing.h5", device="cuda"),
    ]
    for request in requests:
        with pytest.raises(bk.BackendUnavailableError, match=INSTALL):
            request()


@pytest.mark.parametrize("device", ["abacus", "CUDA", ""])
def test_unknown_devices_are_refused(device):
    op = bk.KroneckerProduct([np.eye(2)])
    problem = make("continuity-1d", level=1, degree=0)
    for thing in (op, op + op, problem):
        with pytest.raises(ValueError, match="expected 'cpu' or 'cuda'"):
            thing.to(device)


def test_the_cpu_is_where_things_are():
    op = bk.KroneckerProduct([np.eye(2)])
    problem = make("continuity-1d", level=1, degree=0)
    assert (op.device, problem.device) == ("cpu", "cpu")
    assert op.to("cpu") is op
    assert problem.to("cpu") is problem


def test_factors_may_come_from_an_iterator(rng):
    factors = rng.standard_normal((2, 3, 3))
    x = rng.standard_normal(9)
    expected = np.kron(*factors) @ x
    for op in (
        bk.KroneckerProduct(factor for factor in factors),
        bk.BatchedKron((factor[None] for factor in factors), [[0, 0]], [0], [0]),
    ):
        np.testing.assert_allclose(op @ x, expected, atol=1e-12)
    total = bk.KroneckerSum(factor for factor in factors)
    assert total.shape == (9, 9)
    result = bk.gekmm((factor for factor in factors), x[:, None])
    np.testing.assert_allclose(result[:, 0], expected, atol=1e-12)
