"""Each Krylov method against its textbook form in NumPy: residuals and iterates of all steps.

The references compute in double precision, with the matrices as they are stored. Rounding errors
of each step, relative to the first residual, grow with the condition number (20) and over ten
steps: less than 100 eps was measured, 1000 eps is allowed.
"""

import itertools

import krylov_references as references
import numpy as np
import pytest
from dense_oracle import DTYPES, random_array

from batchkron import solvers

SIZE, STEPS = 60, 10
METHODS = ["cg", "minres", "bicgstab", "gmres", "fgmres"]


def unitary(rng, dtype):
    return np.linalg.qr(random_array(rng, (SIZE, SIZE), np.result_type(dtype, float)))[0]


def hermitian(rng, dtype, values):
    basis = unitary(rng, dtype)
    return ((basis * values) @ basis.conj().T).astype(dtype)


def matrices(rng, name, dtype):
    """A as the method needs it, and a Hermitian, positive definite M that is no multiple of 1."""
    values = np.linspace(1.0, 20.0, SIZE)
    if name in ("cg", "block_cg"):
        A = hermitian(rng, dtype, values)
    elif name == "minres":
        A = hermitian(rng, dtype, values * np.where(np.arange(SIZE) % 4, 1, -1))
    else:
        A = (3.0 * np.eye(SIZE) + unitary(rng, dtype)).astype(dtype)
    return A, hermitian(rng, dtype, np.linspace(1.0, 3.0, SIZE))


def of_reference(name, dtype, *operands, steps=STEPS, **options):
    """The first iterates and norms of a reference, in double precision."""
    wide = np.result_type(dtype, float)
    given = [each if callable(each) else each.astype(wide) for each in operands]
    method = getattr(references, name)(*given, **options)
    iterates, norms = zip(*itertools.islice(method, steps + 1), strict=True)
    return np.array(iterates), np.array(norms)


def assert_near(found, expected, dtype):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1000 * np.finfo(dtype).eps * scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_residuals_and_iterates(rng, name, dtype, preconditioned):
    A, M = matrices(rng, name, dtype)
    b, x0 = (random_array(rng, SIZE, dtype) for _ in range(2))
    known = M if preconditioned else np.eye(SIZE)
    options, seen, restart = {}, [], {}
    if "gmres" in name:
        restart = {"restart": 4}
        options = {"callback_type": "legacy", "callback": lambda _: None, **restart}
        if name == "fgmres":
            wide = known.astype(np.result_type(dtype, float))
            known = wide.__matmul__
    else:
        options["callback"] = lambda x: seen.append(x.copy())
    method = getattr(solvers, name)
    M = M if preconditioned else None
    result = method(A, b, x0, M=M, rtol=0.0, maxiter=STEPS, **options)
    iterates, norms = of_reference(name, dtype, A, b, x0, known, **restart)
    assert result.iterations == STEPS
    # the last number is that of the x returned: the best iterate of which the true one is known
    assert_near(result.residual_norms[:-1], norms[:-1], dtype)
    if seen:
        assert_near(seen, iterates[1:], dtype)
    else:
        assert_near(result.x, iterates[-1], dtype)


@pytest.mark.parametrize("name", METHODS)
def test_systems_of_a_batch_take_their_own_steps(rng, name):
    """The first ones are compared, before rounding grows; each system ends by itself."""
    A, M = matrices(rng, name, "float64")
    b = rng.standard_normal((3, SIZE)) * [[1.0], [1e-3], [1e5]]
    b[1] = A @ M @ A @ b[1]  # a smoother one
    result = getattr(solvers, name)(A, b, M=M, rtol=1e-4, batched="leading")
    assert result.converged
    restart = {"restart": 20} if "gmres" in name else {}
    known = M.__matmul__ if name == "fgmres" else M
    for k in range(3):
        steps = min(STEPS, result.iterations[k] - 1)
        _, norms = of_reference(name, "float64", A, b[k], 0 * b[k], known, steps=steps, **restart)
        assert_near(result.residual_norms[: steps + 1, k], norms, "float64")
        assert (norms > 1e-4 * np.linalg.norm(b[k])).all()


def test_flexible_gmres_takes_another_preconditioner_each_step(rng):
    A, M = matrices(rng, "fgmres", "float64")
    b, x0 = random_array(rng, (2, SIZE), "float64")

    class Changing:
        """M, M + 1, M + 2, … in turn."""

        shape, dtype = (SIZE, SIZE), np.dtype(float)

        def __init__(self):
            self.calls = itertools.count()

        def matvec(self, v):
            return M @ v + next(self.calls) * v

    options = {"callback_type": "legacy", "callback": lambda _: None, "restart": 6}
    result = solvers.fgmres(A, b, x0, M=Changing(), rtol=0.0, maxiter=STEPS, **options)
    changing = Changing().matvec
    iterates, norms = of_reference("fgmres", "float64", A, b, x0, changing, restart=6)
    assert_near(result.residual_norms[:-1], norms[:-1], "float64")
    assert_near(result.x, iterates[-1], "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("name", ["block_cg", "block_gmres"])
def test_block_methods(rng, name, dtype, preconditioned):
    A, M = matrices(rng, name, dtype)
    b, x0 = (random_array(rng, (SIZE, 3), dtype) for _ in range(2))
    limit = {"maxiter": 6} if name == "block_cg" else {"maxiter": 1, "restart": 6}
    result = getattr(solvers, name)(A, b, x0, M=M if preconditioned else None, rtol=0.0, **limit)
    known = M if preconditioned else np.eye(SIZE)
    iterates, norms = of_reference(name, dtype, A, b, x0, known, steps=6)
    assert (result.iterations == 6).all()
    assert_near(result.residual_norms[:-1], norms[:-1], dtype)
    assert_near(result.x, iterates[-1], dtype)
