"""Time steppers: order, stability limits, storage, and what they ask of a problem."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse.linalg as scipy_linalg

from batchkron.solvers import Status, steppers

ALL = steppers.names()
IMPLICIT = [name for name in ALL if steppers.get(name).implicit]
EXPLICIT = [name for name in ALL if not steppers.get(name).implicit]


class Heat:
    """u' = a(t) (D u) + source and Dirichlet data at both ends, all changing in time."""

    def __init__(self, cells=8, t0=0.3):
        self.t0 = t0
        self.x = np.arange(1, cells + 1) / (cells + 1)
        self.laplacian = (np.diag(np.ones(cells - 1), 1) + np.diag(np.ones(cells - 1), -1)) * 4
        self.laplacian -= 8 * np.eye(cells)
        self.left, self.right = np.eye(cells)[0] * 4, np.eye(cells)[-1] * 4
        self.initial = np.sin(np.pi * self.x) + self.x
        self.initial.flags.writeable = False

    def coefficient(self, t):
        return 1.0 + 0.5 * np.sin(3.0 * t)

    def operator_at(self, t):
        return self.coefficient(t) * self.laplacian

    def rhs(self, t, u, out):
        data = self.left * np.cos(2.0 * t) + self.right * np.exp(-t)
        np.dot(self.laplacian, u, out=out)
        out += data
        out *= self.coefficient(t)
        out += np.sin(5.0 * t) * self.x


class Scalar:
    """u' = λ u."""

    def __init__(self, rate):
        self.rate = complex(rate)
        self.initial = np.ones(1, dtype=np.complex128)
        self.operator = np.array([[self.rate]])

    def rhs(self, t, u, out):
        np.multiply(u, self.rate, out=out)


class Diagonal:
    """u' = -d ∘ u + cos t, on vectors long enough to see an allocation."""

    def __init__(self, size=20_000, dtype=np.float64):
        self.decay = np.linspace(0.1, 2.0, size).astype(dtype)
        self.initial = np.ones(size, dtype=dtype)
        self.operator = self
        self.shape, self.dtype = (size, size), np.dtype(dtype)

    def matvec(self, x, out=None):
        result = np.multiply(self.decay, x, out=out)
        return np.negative(result, out=result)

    def rhs(self, t, u, out):
        self.matvec(u, out)
        out += float(np.cos(t))


def march(name, problem, steps, until, **options):
    """Run a stepper over equal steps; return the last state."""
    t0 = getattr(problem, "t0", 0.0)
    dt = (until - t0) / steps
    cls = steppers.get(name)
    if cls.implicit:
        stepper = cls(problem, dt, t0=t0, solver={"rtol": 1e-12}, **options)
    else:
        stepper = cls(problem, dt)
    u = np.array(problem.initial)
    for n in range(steps):
        assert stepper.step(u, t0 + n * dt, t0 + (n + 1) * dt) is None
    return u


@pytest.mark.parametrize("name", ALL)
def test_order_with_changing_operator_source_and_boundary_data(name):
    problem = Heat()
    reference = march("rk4", problem, 2000, 1.3)
    order = steppers.get(name).order
    coarse = 160 if order < 3 else 40
    errors = [
        np.linalg.norm(march(name, problem, steps, 1.3) - reference)
        for steps in (coarse, 2 * coarse)
    ]
    observed = np.log2(errors[0] / errors[1])
    assert observed == pytest.approx(order, abs=0.1)


@pytest.mark.parametrize("name", ALL)
def test_exact_for_polynomials_in_time_up_to_the_order(name):
    """u' = t^(p-1) is integrated without error by a method of order p."""
    order = steppers.get(name).order

    class Power:
        initial = np.zeros(1)
        operator = np.zeros((1, 1))

        def rhs(self, t, u, out):
            out[...] = t ** (order - 1)

    assert march(name, Power(), 3, 0.75)[0] == pytest.approx(0.75**order / order, rel=1e-14)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("direction", [-1.0, 1j])
def test_stability_limits(name, direction):
    cls = steppers.get(name)
    limit = cls.real_limit if direction == -1.0 else cls.imaginary_limit

    def growth(z):
        return abs(march(name, Scalar(z * direction), 1, 1.0)[0])

    if np.isinf(limit):
        assert max(growth(z) for z in (0.1, 3.0, 100.0, 1e6)) <= 1.0 + 1e-12
        return
    assert all(growth(z) <= 1.0 + 1e-12 for z in np.linspace(0.01, 1.0, 20) * limit if limit)
    assert growth(1.01 * limit + 0.01) > 1.0


def test_backward_euler_damps_what_crank_nicolson_keeps():
    z = -1e6
    assert abs(march("backward-euler", Scalar(z), 1, 1.0)[0]) < 1e-5
    assert abs(march("crank-nicolson", Scalar(z), 1, 1.0)[0]) > 0.99


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_step_allocates_no_vector_and_keeps_the_dtype(name, dtype):
    problem = Diagonal(dtype=dtype)
    stepper = steppers.get(name)(problem, 0.01)
    u = problem.initial.copy()
    stepper.step(u, 0.0, 0.01)
    tracemalloc.start()
    for n in range(1, 4):
        assert stepper.step(u, 0.01 * n, 0.01 * (n + 1)) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < u.nbytes / 4
    assert u.dtype == dtype
    np.testing.assert_array_equal(problem.initial, 1.0)


@pytest.mark.parametrize("name", ALL)
def test_no_stage_lies_beyond_the_end_of_the_step(name):
    seen = []

    class Watched(Heat):
        def rhs(self, t, u, out):
            seen.append(t)
            super().rhs(t, u, out)

        def operator_at(self, t):
            seen.append(t)
            return super().operator_at(t)

    problem = Watched(t0=0.1)
    cls = steppers.get(name)
    stepper = cls(problem, 0.1, t0=0.1) if cls.implicit else cls(problem, 0.1)
    seen.clear()
    stepper.step(problem.initial.copy(), 0.1, 0.2)  # 0.1 + 0.1 == 0.2, but 0.1 + 2 * 0.1 > 0.3
    stepper.step(problem.initial.copy(), 0.2, 0.3)
    assert max(seen) <= 0.3
    assert min(seen) >= 0.1


@pytest.mark.parametrize("name", IMPLICIT)
def test_constant_operator_is_taken_from_either_name(name):
    constant = Diagonal(50)
    assert not hasattr(constant, "operator_at")
    changing = Diagonal(50)
    changing.operator_at = lambda t: constant
    expected = march(name, constant, 5, 1.0)
    np.testing.assert_array_equal(march(name, changing, 5, 1.0), expected)


@pytest.mark.parametrize("name", IMPLICIT)
def test_solvers_agree(name):
    problem = Heat()
    cls = steppers.get(name)

    def dense(A, b, M=None):
        matrix = np.column_stack([A.matvec(column) for column in np.eye(b.size)])
        return np.linalg.solve(matrix, b), 0

    def scipys(A, b, M=None):
        return scipy_linalg.gmres(A, b, M=M, rtol=1e-12)

    results = []
    for solver in (None, "gmres", {"name": "gmres", "restart": 5, "rtol": 1e-12}, dense, scipys):
        u = problem.initial.copy()
        stepper = cls(problem, 0.1, t0=0.3, solver=solver)
        assert stepper.step(u, 0.3, 0.4) is None
        assert stepper.last_solve.converged
        results.append(u)
    for u in results:
        np.testing.assert_allclose(u, results[3], atol=1e-8)


@pytest.mark.parametrize("name", IMPLICIT)
def test_preconditioner_as_operator_and_as_function(name):
    problem = Diagonal(200)
    problem.decay = np.logspace(0, 4, 200)
    cls = steppers.get(name)
    given = []

    def exact(A, c):
        given.append((A, c))
        return np.diag(1.0 / (1.0 + c * problem.decay))

    plain = cls(problem, 0.1)
    by_function = cls(problem, 0.1, preconditioner=exact)
    by_operator = cls(problem, 0.1, preconditioner=exact(problem, cls.weight * 0.1))
    for stepper in (plain, by_function, by_operator):
        assert stepper.step(problem.initial.copy(), 0.0, 0.1) is None
    assert given == [(problem, cls.weight * 0.1)] * 2
    assert by_function.last_solve.iterations == by_operator.last_solve.iterations == 1
    assert plain.last_solve.iterations > 5


@pytest.mark.parametrize("name", IMPLICIT)
def test_failed_solve_leaves_the_state(name):
    problem = Diagonal(200)
    problem.decay = np.logspace(0, 6, 200)
    stepper = steppers.get(name)(problem, 1.0, solver={"restart": 2, "maxiter": 1})
    u = problem.initial.copy()
    failed = stepper.step(u, 0.0, 1.0)
    assert failed.status is Status.MAX_ITERATIONS
    np.testing.assert_array_equal(u, problem.initial)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ((np.zeros(50), 7), Status.MAX_ITERATIONS),
        ((np.zeros(50), -1), Status.BREAKDOWN),
        ((np.full(50, np.nan), 0), Status.NOT_FINITE),
    ],
)
def test_failures_of_a_given_solver(answer, status):
    problem = Diagonal(50)
    stepper = steppers.get("backward-euler")(problem, 0.1, solver=lambda A, b, M=None: answer)
    u = problem.initial.copy()
    assert stepper.step(u, 0.0, 0.1).status is status
    np.testing.assert_array_equal(u, problem.initial)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"solver": "gmers"}, ValueError, "solver is 'gmers'"),
        ({"solver": {"name": "gmres", "tol": 1e-3}}, ValueError, "option 'tol'; gmres takes"),
        ({"solver": 3}, TypeError, "solver is a int"),
        ({"preconditioner": np.eye(3)}, ValueError, r"preconditioner has shape \(3, 3\)"),
        ({"preconditioner": "jacobi"}, TypeError, "preconditioner is a str"),
    ],
)
def test_wrong_options(options, error, text):
    with pytest.raises(error, match=text):
        steppers.get("crank-nicolson")(Diagonal(50), 0.1, **options)


def test_problem_without_operator():
    problem = Scalar(-1.0)
    del problem.operator
    with pytest.raises(TypeError, match="neither operator nor operator_at"):
        steppers.get("backward-euler")(problem, 0.1)


def test_names():
    assert set(EXPLICIT) == {"forward-euler", "ssp-rk3", "rk4"}
    assert set(IMPLICIT) == {"backward-euler", "crank-nicolson"}
    assert all(steppers.get(name).name == name for name in ALL)
    with pytest.raises(ValueError, match="Did you mean 'crank-nicolson'"):
        steppers.get("cranknicolson")
    with pytest.raises(ValueError, match="expected one of forward-euler, ssp-rk3"):
        steppers.get(3)
