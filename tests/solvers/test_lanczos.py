"""Log determinants by stochastic Lanczos quadrature."""

import numpy as np
import pytest
import scipy.sparse

import batchkron as bk
from batchkron.distributed import distribute, simulate
from batchkron.solvers import logdet_slq


def positive(rng, size, dtype, condition=50.0):
    """A Hermitian matrix with eigenvalues from 1 to ``condition``, and its log determinant."""
    given = rng.standard_normal((size, size))
    if np.dtype(dtype).kind == "c":
        given = given + 1j * rng.standard_normal((size, size))
    basis = np.linalg.qr(given)[0]
    values = np.geomspace(1.0, condition, size)
    return (basis * values @ basis.conj().T).astype(dtype), np.log(values).sum()


def test_all_probes_and_steps_are_exact(rng, dtype):
    A, exact = positive(rng, 24, dtype)
    probes = np.sqrt(24) * np.eye(24, dtype=dtype)  # the mean over these is the trace
    found = logdet_slq(A, probes=probes, steps=24)
    assert found.logdet == pytest.approx(exact, rel=1e3 * float(np.finfo(dtype).eps))


def test_random_probes_are_within_their_error(rng, dtype):
    A, exact = positive(rng, 150, dtype)
    found = logdet_slq(A, probes=20, steps=30)
    assert abs(found.logdet - exact) < 4 * found.standard_error
    # the variance of a quadratic form of random signs is 2 ‖log A‖² without the diagonal
    assert (
        0
        < found.standard_error
        < 1.5 * np.sqrt(2 / 20) * np.linalg.norm(np.log(np.geomspace(1.0, 50.0, 150)))
    )


def test_few_steps_suffice_where_few_eigenvalues_are(rng):
    values = rng.choice([1.0, 4.0, 9.0], 200)
    A = scipy.sparse.diags_array(values).tocsr()
    found = logdet_slq(A, probes=3, steps=50)
    assert found.logdet == pytest.approx(np.log(values).sum(), rel=1e-12)
    identity = logdet_slq(bk.Identity(7) * np.e, probes=1)
    assert identity.logdet == pytest.approx(7.0)
    assert np.isnan(identity.standard_error)


def test_kinds_of_operators(rng):
    matrix, _ = positive(rng, 12, "float64")
    exact = logdet_slq(matrix, seed=3)
    product = bk.KroneckerProduct([matrix])
    for A in (
        scipy.sparse.csr_array(matrix),
        product,
        scipy.sparse.linalg.aslinearoperator(matrix),
    ):
        assert logdet_slq(A, seed=3).logdet == pytest.approx(exact.logdet, rel=1e-12)
    assert logdet_slq(matrix, seed=4).logdet != exact.logdet
    assert logdet_slq(np.eye(0)).logdet == 0.0


def test_refused(rng):
    matrix, _ = positive(rng, 12, "float64")
    with pytest.raises(ValueError, match=r"A has shape \(3, 4\); expected a square"):
        logdet_slq(np.ones((3, 4)))
    with pytest.raises(ValueError, match="probes is 0; expected 1 or more"):
        logdet_slq(matrix, probes=0)
    with pytest.raises(ValueError, match=r"probes has shape \(2, 5\); expected \(K, 12\)"):
        logdet_slq(matrix, probes=np.ones((2, 5)))
    with pytest.raises(ValueError, match="steps is 0"):
        logdet_slq(matrix, steps=0)
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        logdet_slq(matrix - 5 * np.eye(12))
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        logdet_slq(matrix * np.nan)


@pytest.mark.parametrize("least", [0.0, -1e-17, 1e-40])
def test_eigenvalues_that_are_nothing_but_rounding_are_refused(least):
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        logdet_slq(np.diag([least, 1.0, 2.0]))
    assert logdet_slq(np.diag([1e-12, 1.0, 2.0])).logdet == pytest.approx(np.log(2e-12), rel=1e-5)


def test_operators_on_ranks_are_refused():
    """Each rank would take its block for the whole, and return a number of its own."""
    whole = bk.KroneckerSum([np.eye(2) + 1] * 3)

    def program(comm):
        op = distribute(whole, comm)
        for made in (op, op + bk.Identity(op.shape[0])):
            with pytest.raises(TypeError, match="A is distributed"):
                logdet_slq(made)

    simulate(2, program)
    assert logdet_slq(distribute(whole)) == logdet_slq(whole)  # one rank has whole vectors
