"""Time steppers: order, stability limits, storage, and what they ask of a problem."""

import tracemalloc
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse.linalg as scipy_linalg
from methods import EQUAL_STEPS

from batchkron.solvers import Status, steppers

ALL = EQUAL_STEPS
OPERATOR = [name for name in ALL if steppers.get(name).implicit]
IMPLICIT = [name for name in OPERATOR if not name.startswith("exponential")]  # they solve systems
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
    reference = march("dop853", problem, 600, 1.3)
    order = steppers.get(name).order
    coarse = {1: 160, 2: 160, 3: 80, 4: 40, 5: 30, 8: 14}[order]
    errors = [
        np.linalg.norm(march(name, problem, steps, 1.3) - reference)
        for steps in (coarse, 2 * coarse)
    ]
    observed = np.log2(errors[0] / errors[1])
    assert observed == pytest.approx(order, abs=0.2)


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
        slack = 1e-9 if name.startswith("exponential") else 1e-12  # exp(1e6 i) has lost 6 digits
        assert max(growth(z) for z in (0.1, 3.0, 100.0, 1e6)) <= 1.0 + slack
        return
    assert all(growth(z) <= 1.0 + 1e-12 for z in np.linspace(0.01, 1.0, 20) * limit if limit)
    assert growth(1.01 * limit + 0.01) > 1.0


@pytest.mark.parametrize("name", EXPLICIT)
def test_polynomials_are_what_a_step_does(rng, name):
    """A step of u' = λ u multiplies u by ``stability_polynomial`` at dt λ."""
    z = rng.standard_normal(9) + 1j * rng.standard_normal(9)
    u = np.ones(9, complex)
    problem = SimpleNamespace(initial=u, rhs=lambda t, u, out: np.multiply(z, u, out=out))
    cls = steppers.get(name)
    cls(problem, 0.7).step(u, 0.0, 0.7)
    np.testing.assert_allclose(u, np.polyval(cls.stability_polynomial[::-1], 0.7 * z), rtol=1e-13)


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
    for n in range(2):  # the first and the last slope may swap their places
        stepper.step(u, 0.01 * n, 0.01 * (n + 1))
    tracemalloc.start()
    for n in range(2, 5):
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


def scale_of(cls, dt):
    """The c of (I - c A) that a step solves with."""
    return (cls.tableau.diagonal if hasattr(cls, "tableau") else cls.weight) * dt


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
    by_operator = cls(problem, 0.1, preconditioner=exact(problem, scale_of(cls, 0.1)))
    for stepper in (plain, by_function, by_operator):
        assert stepper.step(problem.initial.copy(), 0.0, 0.1) is None
    assert given == [(problem, scale_of(cls, 0.1))] * 2
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
        ({"preconditioner": "jacobi"}, ValueError, "Did you mean 'block-jacobi'"),
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
    own = {"forward-euler", "ssp-rk3", "rk4", "rkc2", "backward-euler", "crank-nicolson", "bdf"}
    tableaus = {tableau.name for tableau in steppers.TABLEAUS}
    assert set(steppers.names()) == own | tableaus | {
        "exponential-euler",
        "exponential-trapezoidal",
    }
    assert all(steppers.get(name).name == name for name in steppers.names())
    with pytest.raises(ValueError, match="Did you mean 'crank-nicolson'"):
        steppers.get("cranknicolson")
    with pytest.raises(ValueError, match="expected one of forward-euler, ssp-rk3"):
        steppers.get(3)
    with pytest.raises(ValueError, match="Did you mean 'dormand-prince'"):
        steppers.get("RK45")  # SciPy's name


@pytest.mark.parametrize("tableau", steppers.TABLEAUS, ids=lambda tableau: tableau.name)
def test_tableaus_satisfy_the_conditions_of_their_orders(tableau):
    matrices = [m for m in (tableau.explicit, tableau.implicit) if m is not None]
    c = tableau.nodes
    for b, order in (
        (tableau.weights, tableau.order),
        (tableau.embedded, tableau.embedded_order),
    ):
        if b is None:
            continue
        left = [b.sum() - 1]
        if order >= 2:
            left += [b @ c - 1 / 2]
        if order >= 3:
            left += [b @ c**2 - 1 / 3, *(b @ A @ c - 1 / 6 for A in matrices)]
        if order >= 4:
            A = tableau.explicit
            left += [b @ c**3 - 1 / 4, (b * c) @ A @ c - 1 / 8, b @ A @ c**2 - 1 / 12]
            left += [b @ A @ A @ c - 1 / 24]
        assert np.abs(left).max() < 1e-12
    assert tableau.embedded_order < tableau.order


def test_continuous_weights_end_in_the_weights():
    for tableau in steppers.TABLEAUS:
        if tableau.dense is not None:
            weights = np.append(tableau.weights, np.zeros(tableau.more_stages))
            np.testing.assert_allclose(tableau.dense.sum(axis=1), weights, atol=1e-13)
            np.testing.assert_allclose(tableau.dense[:, 0], np.eye(len(weights))[0], atol=1e-14)


class Split:
    """A stiff linear part, ``implicit_operator``, and a nonlinear rest; u = (cos t, sin t)."""

    t0 = 0.0
    initial = np.array([1.0, 0.0])
    implicit_operator = np.array([[-40.0, 3.0], [0.0, -25.0]])

    def exact(self, t):
        return np.array([np.cos(t), np.sin(t)])

    def rhs(self, t, u, out):
        exact = self.exact(t)
        out[...] = np.array([-exact[1], exact[0]]) + self.implicit_operator @ (u - exact)
        out += np.sin(u) - np.sin(exact)


@pytest.mark.parametrize("name", ["imex-euler", "ark2", "ark3"])
def test_order_of_imex_methods_with_a_nonlinear_explicit_part(name):
    problem = Split()
    errors = [
        np.linalg.norm(march(name, problem, steps, 1.0) - problem.exact(1.0)) for steps in (80, 160)
    ]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(steppers.get(name).order, abs=0.3)


class StiffBoundary:
    """The heat equation with Dirichlet data cos 5t at one end, on 40 cells: ‖A‖ dt is large."""

    def __init__(self, cells=40):
        h = 1.0 / (cells + 1)
        self.x = h * np.arange(1, cells + 1)
        diagonals = np.diag(np.ones(cells - 1), 1) + np.diag(np.ones(cells - 1), -1)
        self.operator = (diagonals - 2 * np.eye(cells)) / h**2
        self.edge = np.eye(cells)[0] / h**2
        self.initial = 1.0 - self.x

    def rhs(self, t, u, out):
        out[...] = self.operator @ u + self.edge * np.cos(5 * t)


@cache
def stiff_boundary_at_the_end():
    """The state of `StiffBoundary` at t = 0.5 after far smaller steps."""
    return march("exponential-trapezoidal", StiffBoundary(), 3000, 0.5)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("backward-euler", 0.9),
        ("crank-nicolson", 1.9),
        ("sdirk2", 1.4),
        ("sdirk3", 1.9),
        ("esdirk2", 1.9),
        ("esdirk3", 2.6),
        ("imex-euler", 0.9),
        ("ark2", 1.9),
        ("ark3", 2.5),
        ("exponential-trapezoidal", 1.9),
    ],
)
def test_order_with_stiff_boundary_data(name, least):
    """Boundary data that change in time reduce the order (order reduction): ``least`` is left.

    All of f is implicit here, so that IMEX methods have the stages of esdirk2 and esdirk3.
    """
    problem, reference = StiffBoundary(), stiff_boundary_at_the_end()
    errors = [np.linalg.norm(march(name, problem, steps, 0.5) - reference) for steps in (20, 40)]
    observed = np.log2(errors[0] / errors[1])
    assert observed > least
    assert observed < steppers.get(name).order + 0.6


class ProtheroRobinson:
    """u' = λ (u - cos t) - sin t, u = cos t, with the operator under one of its two names."""

    def __init__(self, rate, name):
        self.rate, self.initial = rate, np.ones(1)
        setattr(self, name, np.array([[rate]]))

    def rhs(self, t, u, out):
        out[...] = self.rate * (u - np.cos(t)) - np.sin(t)


@pytest.mark.parametrize("given", ["operator", "implicit_operator"])
@pytest.mark.parametrize("order", [2, 3])
def test_imex_methods_take_a_stiff_source_implicitly(order, given):
    problem = ProtheroRobinson(-1e6, given)
    full = ProtheroRobinson(-1e6, "operator")
    for steps in (10, 20, 40):
        error = abs(march(f"ark{order}", problem, steps, 1.0)[0] - np.cos(1.0))
        assert error < 1.1 * abs(march(f"esdirk{order}", full, steps, 1.0)[0] - np.cos(1.0)) < 1e-9


@pytest.mark.parametrize(("told", "evaluations"), [(False, 7), (True, 4)])
def test_a_source_that_is_told_apart_saves_evaluations(told, evaluations):
    problem, seen = Split(), []
    A, rhs = problem.implicit_operator, problem.rhs

    def stiff(t, out):  # only a part of what depends on time
        out[...] = -A @ problem.exact(t)

    def watched(t, u, out):
        seen.append(t)
        rhs(t, u, out)

    if told:
        problem.implicit_source = stiff
    expected = problem.exact(1.0)
    errors = [np.linalg.norm(march("ark3", problem, n, 1.0) - expected) for n in (80, 160)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(3, abs=0.3)
    problem.rhs = watched
    march("ark3", problem, 1, 0.01)
    assert len(seen) == evaluations


def test_an_implicit_source_is_a_function():
    problem = Split()
    problem.implicit_source = np.ones(2)
    with pytest.raises(TypeError, match="implicit_source is a ndarray; expected a function"):
        steppers.get("ark3")(problem, 0.1)


def test_a_tableau_of_ones_own():
    heun = steppers.Tableau("heun", 2, [0.5, 0.5], explicit=[[0, 0], [1, 0]])
    cls = steppers.get(heun)
    assert (cls.name, cls.order, cls.stages, cls.implicit) == ("heun", 2, 2, False)
    assert steppers.stepper_of(heun) is cls
    assert cls.real_limit == pytest.approx(2.0)
    u = np.ones(2)
    cls(Diagonal(2), 0.1).step(u, 0.0, 0.1)
    decay, first = Diagonal(2).decay, -Diagonal(2).decay + 1.0
    second = -decay * (1 + 0.1 * first) + np.cos(0.1)
    np.testing.assert_allclose(u, 1 + 0.05 * (first + second), rtol=1e-15)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"weights": [0.5, 0.5]}, "neither explicit nor implicit"),
        ({"weights": [0.5, 0.6], "explicit": [[0, 0], [1, 0]]}, "sum to 1.1"),
        ({"weights": [np.nan, 0.5], "explicit": [[0, 0], [1, 0]]}, "weights has .* not finite"),
        ({"weights": [0.5, 0.5], "explicit": [[0, 1], [1, 0]]}, "on or above the diagonal"),
        ({"weights": [0.5, 0.5], "implicit": [[1, 1], [0, 1]]}, "above the diagonal"),
        ({"weights": [0.5, 0.5], "implicit": [[1, 0], [0, 2]]}, "one value beside 0"),
        ({"weights": [0.5, 0.5], "explicit": [[0]]}, "has shape"),
        ({"weights": [1.0], "explicit": [[0]], "embedded": [1.0]}, "without embedded_order"),
    ],
)
def test_tableaus_that_are_none(options, text):
    with pytest.raises(ValueError, match=text):
        steppers.Tableau("wrong", 1, **options)


def test_wrong_options_of_exponential_methods():
    cls = steppers.get("exponential-euler")
    with pytest.raises(ValueError, match="takes no preconditioner"):
        cls(Diagonal(50), 0.1, preconditioner=np.eye(50))
    with pytest.raises(ValueError, match="expected name, one of auto, krylov, kronecker"):
        cls(Diagonal(50), 0.1, solver="gmres")
    with pytest.raises(TypeError, match="solver is a int"):
        cls(Diagonal(50), 0.1, solver=3)
    with pytest.raises(ValueError, match="no Kronecker sum"):
        cls(Diagonal(50), 0.1, solver="kronecker").step(np.ones(50), 0.0, 0.1)


@pytest.mark.parametrize("method", ["exponential-euler", "exponential-trapezoidal"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exact_propagation_with_shifts_that_cancel(rng, method, dtype):
    import batchkron as bk

    second = np.diag(np.full(3, -2.0)) + np.diag(np.ones(2), 1) + np.diag(np.ones(2), -1)
    shifts = (400.0, -300.0, -100.0)

    class Sum:
        initial = rng.standard_normal(27).astype(dtype)
        operator = bk.KroneckerSum([(second + s * np.eye(3)).astype(dtype) for s in shifts])

        def rhs(self, t, u, out):
            out[...] = self.operator @ u

    values, vectors = np.linalg.eigh(bk.KroneckerSum([second] * 3).to_dense())
    expected = (vectors * np.exp(2 * 1.5 * values)) @ vectors.T @ Sum.initial
    stepper = steppers.get(method)(Sum(), 1.5, solver="kronecker")
    u = Sum.initial.copy()
    for t in (0.0, 1.5):
        stepper.step(u, t, t + 1.5)
    # the operator's products round numbers of 800 times the size of u
    bound = 4 * 800 * np.finfo(dtype).eps
    np.testing.assert_allclose(u, expected, rtol=0, atol=bound * abs(Sum.initial).max())


def test_exact_propagation_of_a_kronecker_sum_and_krylov_agree(rng):
    import batchkron as bk

    factors = [-50 * np.eye(5) + 20 * np.diag(np.ones(4), 1), -np.diag(np.arange(4.0))]

    class Sum:
        initial = rng.standard_normal(20)
        operator = bk.KroneckerSum(factors)
        source = rng.standard_normal(20)

        def rhs(self, t, u, out):
            out[...] = self.operator @ u + self.source * (1 + t)

    problem, states = Sum(), []
    for solver in ("kronecker", {"name": "krylov", "rtol": 1e-12}, None):
        u = problem.initial.copy()
        stepper = steppers.get("exponential-trapezoidal")(problem, 0.7, solver=solver)
        for n in range(2):
            assert stepper.step(u, 0.7 * n, 0.7 * (n + 1)) is None
        states.append(u)
    np.testing.assert_array_equal(states[0], states[2])
    np.testing.assert_allclose(states[0], states[1], atol=1e-10)
    fine = march("exponential-trapezoidal", problem, 1, 1.4)  # exact for sources linear in time
    np.testing.assert_allclose(states[0], fine, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "order"), [("sdirk3", 1.0), ("esdirk3", 2.0), ("wso-sdirk3", 3.0)]
)
def test_order_for_stiff_problems_with_changing_data(name, order):
    """Weak stage order keeps the order where other methods lose it."""
    problem, errors = ProtheroRobinson(-1e6, "operator"), []
    for steps in (80, 160):
        u = march(name, problem, steps, 9.0)
        errors.append(abs(u[0] - np.cos(9.0)))
    observed = np.log2(errors[0] / errors[1])
    assert observed == pytest.approx(order, abs=0.1 if name == "wso-sdirk3" else 0.15)


def test_conditions_of_weak_stage_order_3():
    tableau = next(own for own in steppers.TABLEAUS if own.name == "wso-sdirk3")
    A, c = tableau.implicit, tableau.nodes
    for weights in (tableau.weights, tableau.embedded):
        for k in (1, 2, 3):
            row, residual = weights, A @ c ** (k - 1) - c**k / k
            for _ in range(tableau.stages):
                assert abs(row @ residual) < 1e-13
                row = row @ A


@pytest.mark.parametrize("name", steppers.names())
@pytest.mark.parametrize("dt", [np.nan, 0.0, -0.1, np.inf])
def test_steps_that_are_none_are_refused(name, dt):
    with pytest.raises(ValueError, match="expected a finite number > 0"):
        steppers.get(name)(ProtheroRobinson(-1.0, "operator"), dt)
