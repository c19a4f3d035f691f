"""Linear solvers and time steppers with all vectors on the device."""

from types import SimpleNamespace

import numpy as np
import pytest

import batchkron as bk
from batchkron.solvers import Cg, EvolveStatus, Gmres, bicgstab, cg, evolve, gmres

pytestmark = pytest.mark.gpu


def laplacian(n, dtype=np.float64):
    second = (np.diag(np.full(n, 2.0)) - np.eye(n, k=1) - np.eye(n, k=-1)).astype(dtype)
    return bk.KroneckerSum([second, second])


@pytest.mark.parametrize("solve", [gmres, cg, bicgstab])
@pytest.mark.parametrize("given", ["float32", "float64", "complex128"])
def test_linear_solvers_equal_those_on_the_cpu(cupy, rng, solve, given):
    op = laplacian(6, given)
    b = rng.standard_normal(36).astype(given)
    rtol = 1e-4 if given == "float32" else 1e-10
    expected = solve(op, b, rtol=rtol)
    result = solve(op.to("cuda"), cupy.asarray(b), rtol=rtol)
    assert result.converged
    assert isinstance(result.x, cupy.ndarray)
    assert abs(result.iterations - expected.iterations) <= 1
    residual = b - op @ result.x.get()
    assert np.linalg.norm(residual) <= 2 * rtol * np.linalg.norm(b)


def test_a_dense_matrix_and_a_preconditioner_on_the_device(cupy, rng):
    matrix = laplacian(5).to_dense()
    b = rng.standard_normal(25)
    inverse = cupy.asarray(np.linalg.inv(matrix + 0.1 * np.eye(25)))
    guess = cupy.asarray(rng.standard_normal(25))
    result = gmres(cupy.asarray(matrix), cupy.asarray(b), guess, M=inverse, rtol=1e-10)
    assert result.converged
    np.testing.assert_allclose(matrix @ result.x.get(), b, atol=1e-8)


@pytest.mark.parametrize(
    "method", ["forward-euler", "ssp-rk3", "rk4", "backward-euler", "crank-nicolson"]
)
def test_evolve_equals_that_on_the_cpu(cupy, rng, method):
    op = -1.0 * laplacian(6)
    initial = rng.standard_normal(36)

    def problem(operator, start):
        return SimpleNamespace(
            initial=start, operator=operator, rhs=lambda t, u, out: operator.matvec(u, out)
        )

    options = {"until": 0.5, "method": method, "dt": 0.02}
    expected = evolve(problem(op, initial), **options)
    result = evolve(problem(op.to("cuda"), cupy.asarray(initial)), **options)
    assert isinstance(result.u, cupy.ndarray)
    assert (result.status, result.steps) == (expected.status, expected.steps)
    np.testing.assert_allclose(result.u.get(), expected.u, rtol=0, atol=1e-8)


def test_a_blow_up_on_the_device_is_seen(cupy):
    growth = SimpleNamespace(
        initial=cupy.full(3, 1e300), rhs=lambda t, u, out: cupy.multiply(u, 1e10, out=out)
    )
    result = evolve(growth, until=1.0, method="forward-euler", dt=0.1)
    assert result.status is EvolveStatus.NOT_FINITE


def test_checkpoints_of_a_run_on_the_device(cupy, rng, tmp_path):
    op = -1.0 * laplacian(4)
    initial = rng.standard_normal(16)

    def problem(operator, start):
        return SimpleNamespace(initial=start, rhs=lambda t, u, out: operator.matvec(u, out))

    device = problem(op.to("cuda"), cupy.asarray(initial))
    path = tmp_path / "run.h5"
    options = {"method": "ssp-rk3", "dt": 0.05}
    whole = evolve(device, until=1.0, **options)
    evolve(
        device,
        until=1.0,
        checkpoint=path,
        callback=lambda state: state.step == 7,
        **options,
    )
    resumed = evolve(device, until=1.0, resume=path)
    np.testing.assert_array_equal(resumed.u.get(), whole.u.get())


def test_operands_elsewhere_are_refused(cupy):
    op, b = laplacian(4), np.ones(16)
    device, on_device = op.to("cuda"), cupy.ones(16)
    calls = [
        lambda: gmres(device, on_device, b),
        lambda: cg(op.to_dense(), on_device),
        lambda: gmres(device, on_device, M=np.eye(16)),
        lambda: Gmres(16).solve(device, on_device),
        lambda: Gmres(16, like=on_device).solve(op, b),
        lambda: Cg(16, like=on_device).solve(device, on_device, out=np.empty(16)),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="but the other operands are on"):
            call()


def test_a_workspace_on_the_device_is_used_again(cupy, rng):
    op, device = laplacian(4), laplacian(4).to("cuda")
    workspace = Gmres(16, like=cupy.empty(0))
    for _ in range(2):
        b = rng.standard_normal(16)
        result = workspace.solve(device, cupy.asarray(b), rtol=1e-11)
        np.testing.assert_allclose(op @ result.x.get(), b, atol=1e-9)


def test_sparse_arrays_of_the_device(cupy, rng):
    sparse = pytest.importorskip("cupyx.scipy.sparse")
    matrix = laplacian(4).to_dense()
    b = rng.standard_normal(16)
    result = cg(sparse.csr_matrix(cupy.asarray(matrix)), cupy.asarray(b), rtol=1e-11)
    np.testing.assert_allclose(matrix @ result.x.get(), b, atol=1e-9)
