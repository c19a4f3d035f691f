"""Whole iterations of many small systems in one launch, against the methods on the CPU."""

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk
from batchkron.solvers import Bicgstab, Cg, Status

pytestmark = pytest.mark.gpu

METHODS = [Cg, Bicgstab]


def systems(rng, dtype, sizes=(8, 4, 8), count=5):
    """Positive definite Kronecker sums with condition numbers from 1 to about 50."""
    factors = []
    for n in sizes:
        columns = np.linalg.qr(random_array(rng, (count, n, n), np.result_type(dtype, "f8")))[0]
        values = np.linspace(1.0, np.linspace(1.0, 50.0, count), n).T
        factor = (columns * values[:, None]) @ columns.conj().swapaxes(1, 2)
        factors.append(factor.astype(dtype))
    return bk.KroneckerSum(factors)


def launched(monkeypatch):
    """A list that gets an entry with each launch of whole iterations."""
    from batchkron.backends.cuda.krylov.passes import Iterations

    found, original = [], Iterations.run
    monkeypatch.setattr(Iterations, "run", lambda *given: found.append(1) or original(*given))
    return found


@pytest.mark.parametrize("workspace", METHODS)
@pytest.mark.parametrize("sizes", [(8, 4, 8), (6, 7)], ids=str)
def test_equal_those_on_the_cpu(cupy, rng, dtype, workspace, sizes, monkeypatch):
    launches = launched(monkeypatch)
    op = systems(rng, dtype, sizes)
    b = random_array(rng, (5, op.shape[0]), dtype)
    b[3] = 0
    rtol = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-9
    expected = workspace(op, batched="leading")(b, rtol=rtol)
    result = workspace(op.to("cuda"), batched="leading")(cupy.asarray(b), rtol=rtol)
    assert expected.converged
    assert result.converged
    too_many_registers = workspace is Bicgstab and dtype == np.complex128 and len(sizes) == 3
    assert (len(launches) == 0) == too_many_registers
    assert np.abs(result.iterations - expected.iterations).max() <= 2
    assert result.iterations[3] == 0
    residual = np.linalg.norm(b - op.apply(result.x.get()), axis=-1)
    assert (residual <= 2 * rtol * np.linalg.norm(b, axis=-1)).all()
    norms, wanted = result.residual_norms, expected.residual_norms
    assert (np.isfinite(norms).sum(axis=0) == result.iterations + 1).all()
    few = min(len(norms), len(wanted)) // 2
    atol = 100 * np.finfo(dtype).eps * wanted[0].max()
    np.testing.assert_allclose(norms[:few], wanted[:few], rtol=0.01, atol=atol)
    products = 2 if workspace is Bicgstab else 1
    least = products * result.iterations.max() - (products - 1)
    # without such launches, graphs replay twice as many iterations each time before norms are read
    maximum = least + 2 + 3 * products if launches else 2 * least + 3 * products
    assert least <= result.applications <= maximum + result.restarts.max() * 4


def test_many_restarts_and_long_solves(cupy, rng, monkeypatch):
    """The history of norms is shorter than the solve, and true residuals are not small enough."""
    launches = launched(monkeypatch)
    op = systems(rng, np.float64, (8, 8), 3)
    solver = Cg(op.to("cuda"), batched="leading")
    b = rng.standard_normal((3, 64))
    monkeypatch.setattr("batchkron.solvers.krylov.vectors.space._MAX_HISTORY_ROWS", 7)
    result = solver(cupy.asarray(b), rtol=1e-10)
    assert result.converged
    assert result.iterations.max() > 14
    assert len(launches) >= 3  # 7 iterations each
    assert (np.isfinite(result.residual_norms).sum(axis=0) == result.iterations + 1).all()
    hard = solver(cupy.asarray(b), rtol=1e-16)
    assert hard.status in (Status.STAGNATED, Status.CONVERGED)
    again = solver(cupy.asarray(b), rtol=1e-10)
    np.testing.assert_array_equal(again.x.get(), result.x.get())


@pytest.mark.parametrize("workspace", METHODS)
def test_statuses(cupy, rng, workspace):
    op = systems(rng, np.float64, (4, 8), 4)
    first = op.factors[0].copy()
    first[1] = -first[1] - 200 * np.eye(4)
    op = bk.KroneckerSum([first, op.factors[1]])
    b = rng.standard_normal((4, 32))
    b[2, 5] = np.nan
    device, given = op.to("cuda"), cupy.asarray(b)
    expected = workspace(op, batched="leading")(b, rtol=1e-9)
    result = workspace(device, batched="leading")(given, rtol=1e-9)
    assert list(result.statuses) == list(expected.statuses)
    few = workspace(device, batched="leading")(given, rtol=1e-12, maxiter=3)
    assert (few.iterations[[0, 3]] <= 3).all()
    assert few.statuses[3] is Status.MAX_ITERATIONS
    seen = []
    workspace(device, batched="leading")(given, maxiter=4, callback=lambda x: seen.append(1))
    assert len(seen) in (3, 4)


def test_other_operators_take_the_usual_way(cupy, rng, monkeypatch):
    launches = launched(monkeypatch)
    op = systems(rng, np.float64, (8, 8), 3).to("cuda")
    b = cupy.asarray(rng.standard_normal((3, 64)))
    M = bk.Identity(64).to("cuda")
    assert Cg(op, batched="leading", M=M)(b).converged
    assert Cg(2 * op, batched="leading")(b).converged
    assert Cg(op, np.complex128, batched="leading")(b.astype(complex)).converged
    assert not launches
