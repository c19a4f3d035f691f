"""SciPy's own tests of LinearOperator, run on our operators through an adapter.

The adapter takes the place of SciPy's module in these tests: a matrix, or an operator made of
callables, becomes a `KroneckerProduct` of one factor, and SciPy's private classes become ours.

Left out, because they test what ours do not take: dtypes found by calling a user's function
(test_determine_*, test_no_double_init), operators defined by subclassing in the test
(test_inheritance, test_transpose_multiplication), and MatrixLinearOperator's reference cycles.
test_sparse_matmat_exception is here with another text: our operators refuse to become arrays.
One difference: an operator of integers is float64 here, so the integer cases are left out of the
comparison of dtypes, and test_identity, which compares them from SciPy 1.18 on. Batches of
matrices, which SciPy's operators can be from 1.18 on, are left out, too: `batch_shape` is no part
of ``shape`` here.
"""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg as spla
import scipy_suites

import batchkron as bk
from batchkron.operators import algebra

suite = scipy_suites.suite_of("scipy.sparse.linalg.tests.test_interface")


def as_ours(given):
    """Return our operator of a matrix, or of SciPy's operator."""
    if isinstance(given, bk.Operator):
        return given
    if isinstance(given, spla.LinearOperator):
        dense = given.matmat(np.eye(given.shape[1], dtype=given.dtype))
        given = dense if np.iscomplexobj(dense) else dense.astype(given.dtype)
    return bk.KroneckerProduct([given.toarray() if scipy.sparse.issparse(given) else given])


class Adapter(spla.LinearOperator):
    """SciPy's class for ``isinstance``; called with callables, it returns our operator."""

    def __new__(cls, *args, **kwargs):
        if cls is Adapter:
            return as_ours(spla.LinearOperator(*args, **kwargs))
        return super().__new__(cls)


ADAPTER = SimpleNamespace(
    LinearOperator=Adapter,
    aslinearoperator=as_ours,
    IdentityOperator=lambda shape, **_: bk.Identity(shape[0]),
    _ScaledLinearOperator=algebra.ScaledOperator,
    _SumLinearOperator=algebra.SumOperator,
    _ProductLinearOperator=algebra.ComposedOperator,
    _PowerLinearOperator=algebra.PowerOperator,
)


@pytest.fixture(autouse=True)
def _ours(monkeypatch):
    monkeypatch.setattr(suite, "interface", ADAPTER)


@pytest.mark.parametrize("name", ["test_matvec", "test_matmul"])
def test_linear_operator(name):
    case = suite.TestLinearOperator()
    case.setup_method()
    getattr(case, name)(*scipy_suites.XP)


@pytest.mark.parametrize("name", ["test_basic", "test_dot"])
def test_as_linear_operator(name):
    case = suite.TestAsLinearOperator()
    case.setup_method()
    before = len(case.cases)
    case.cases = [(M, A) for M, A in case.cases if M.dtype.kind != "i"]
    assert before > len(case.cases) > 20
    getattr(case, name)(*scipy_suites.XP)


@pytest.mark.parametrize(
    "name",
    [
        "test_repr",
        *([] if scipy_suites.XP else ["test_identity"]),
        "test_attributes",
        "test_dtypes_of_operator_sum",
        "test_adjoint_conjugate",
        "test_ndim",
        "test_transpose_noconjugate",
    ],
)
def test_function(name):
    getattr(suite, name)(*scipy_suites.XP)


def test_sparse_matmat_exception():
    """As SciPy's test, but B @ A fails already where SciPy converts A to an array."""
    A, B = ADAPTER.LinearOperator((2, 2), matvec=lambda x: x), scipy.sparse.eye_array(2)
    with pytest.raises(TypeError, match=r"Unable to multiply a LinearOperator with a sparse"):
        A @ B
    with pytest.raises(TypeError, match=r"linear operator, not an array; to_dense\(\)"):
        B @ A
    with pytest.raises(ValueError, match="shape"):
        A @ np.identity(4)
    with pytest.raises(ValueError, match="shape"):
        np.identity(4) @ A


def test_pickle(rng):
    """Ours hold compiled plans, so the copy is compared by what it computes."""
    product = bk.KroneckerProduct(rng.standard_normal((2, 3, 3)))
    pool = rng.standard_normal((4, 3, 3))
    batch = bk.BatchedKron(pool, [[0, 1], [2, 3]], [0, 0], [0, 0], weights=[1.0, 2.0])
    total = bk.KroneckerSum([pool[0], pool[1]])
    composed = 2 * (product @ batch + total**2) - bk.Identity(9)
    x = rng.standard_normal(9)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for op in (product, batch, total, composed):
            copy = pickle.loads(pickle.dumps(op, protocol=protocol))
            np.testing.assert_array_equal(copy @ x, op @ x)
            assert copy.dtype == op.dtype
