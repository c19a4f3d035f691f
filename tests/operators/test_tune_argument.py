"""The argument ``tune``: validated, kept by relatives and pickles, without effect on the CPU."""

import pickle

import numpy as np
import pytest

import batchkron as bk
from batchkron.backends.cuda.tuning import tuning
from batchkron.backends.protocol import unavailable
from batchkron.distributed import distribute

FACTORS = [np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.0, 1.0], [2.0, 5.0]])]
BLOCKS = np.arange(8.0).reshape(1, 2, 2, 2) + 1
LIST = [[[0, 1], [1, 0]], [0, 1], [1, 0]]


@pytest.fixture
def wanted(monkeypatch):
    """For each plan that a backend was asked for, whether it was to be tuned."""
    seen = []
    chosen = bk.backends.backend()
    for name in ("kron_product", "batch_plan", "kron_plan", "kron_sparse_product"):
        make = getattr(chosen, name)

        def noting(*arguments, make=make):
            seen.append(tuning.wanted_tuning() is not None)
            return make(*arguments)

        monkeypatch.setattr(chosen, name, noting)
    # a plan that is known is not asked for again
    monkeypatch.setattr(chosen, "fast_path", lambda call: unavailable)
    return seen


def test_plans_are_built_as_asked_for(wanted):
    x = np.arange(4.0)
    for tune in (False, True):
        del wanted[:]
        bk.KroneckerProduct(FACTORS, tune=tune)
        bk.BatchedKron(np.stack(FACTORS), *LIST, tune=tune)
        bk.KroneckerSparse(BLOCKS, tune=tune)
        bk.gekmm(FACTORS, x, tune=tune)
        bk.gemkm(x, FACTORS, tune=tune)
        assert wanted == [tune] * 5


def test_relatives_and_pickles_are_tuned_too(wanted):
    product = bk.KroneckerProduct(FACTORS, tune=True)
    batch = bk.BatchedKron(np.stack(FACTORS), *LIST, tune=True)
    sparse = bk.KroneckerSparse(BLOCKS, tune=True)
    for op in (product, batch, sparse):
        assert op.T._tune
        again = pickle.loads(pickle.dumps(op))
        assert again.T._tune
        assert (again.to_dense() == op.to_dense()).all()
    assert all(wanted)
    assert len(wanted) >= 12
    plain = bk.KroneckerSparse(BLOCKS)
    for left, right in ((sparse, plain), (plain, sparse)):
        assert (left + right)._tune
        (merged,) = bk.KroneckerSparseChain([left, right])._applied
        assert merged._tune


def test_results_on_the_cpu_are_the_same():
    x = np.arange(4.0)
    np.testing.assert_array_equal(bk.gekmm(FACTORS, x, tune=True), bk.gekmm(FACTORS, x))
    np.testing.assert_array_equal(bk.gemkm(x, FACTORS, tune=True), bk.gemkm(x, FACTORS))
    op = bk.KroneckerProduct(FACTORS, tune=True)
    np.testing.assert_array_equal(op @ x, bk.KroneckerProduct(FACTORS) @ x)


@pytest.mark.parametrize("wrong", [1, None, "yes", [True]], ids=repr)
def test_anything_but_a_bool_is_refused(wrong):
    x = np.arange(4.0)
    for call in (
        lambda: bk.gekmm(FACTORS, x, tune=wrong),
        lambda: bk.gemkm(x, FACTORS, tune=wrong),
        lambda: bk.KroneckerProduct(FACTORS, tune=wrong),
        lambda: bk.BatchedKron(np.stack(FACTORS), *LIST, tune=wrong),
        lambda: bk.KroneckerSparse(BLOCKS, tune=wrong),
    ):
        with pytest.raises(TypeError, match=r"tune is .*; expected a bool"):
            call()


def test_operators_on_ranks_have_the_options_of_the_whole(wanted, monkeypatch):
    """Without them a rank's own products were neither tuned, nor planned as asked for."""
    precisions = []
    backend = bk.backends.backend()
    for name in ("kron_product", "kron_sparse_product"):
        make = getattr(backend, name)

        def noting(factors, precision=None, known=None, *, make=make):
            precisions.append(precision)
            return make(factors, None, *([] if known is None else [known]))

        monkeypatch.setattr(backend, name, noting)
    options = {"tune": True, "precision": "tf32"}
    product = bk.KroneckerProduct([f.astype(np.float32) for f in FACTORS], **options)
    sparse = bk.KroneckerSparse(BLOCKS.astype(np.float32), **options)
    batch = bk.BatchedKron(np.stack(FACTORS), *LIST, tune=True).plan("factored")
    for whole in (product, sparse, bk.KroneckerSparseChain([sparse, sparse]), batch):
        del wanted[:], precisions[:]
        op = distribute(whole)
        x, dense = np.arange(float(op.shape[1])), whole.to_dense()
        for made, matrix in ((op, dense), (op.T, dense.T), (op.astype(np.complex128), dense)):
            np.testing.assert_allclose(made @ x, matrix @ x, rtol=1e-6)
        assert all(wanted)
        if whole is not batch:
            assert len(wanted) >= 3
            assert set(precisions) == {"tf32"}
    assert "plan: factored" in op._local.describe()
    assert "plan: factored" in op.T._local.describe()
