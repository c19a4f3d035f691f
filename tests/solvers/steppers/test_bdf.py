"""Backward differentiation: orders, errors, cost, and all that a run needs of it."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse

from batchkron import KroneckerSum
from batchkron.errors import NotPhysicalError
from batchkron.problems import make
from batchkron.solvers import EvolveStatus, Status, evolve, steppers
from batchkron.solvers.products import Products
from batchkron.solvers.steppers import bdf as module
from batchkron.solvers.steppers.bdf import Bdf
from batchkron.solvers.steppers.error_scale import ErrorScale
from batchkron.solvers.steppers.implicit_equation import equation_of


class Counted:
    """f(t, u) of a function, whose calls are counted."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, t, u):
        self.calls += 1
        return self.function(t, u)


def robertson(t, u):
    slow, fast = 0.04 * u[0] - 1e4 * u[1] * u[2], 3e7 * u[1] ** 2
    return np.array([-slow, slow - fast, fast])


def robertson_jacobian(t, u):
    return np.array(
        [
            [-0.04, 1e4 * u[2], 1e4 * u[1]],
            [0.04, -1e4 * u[2] - 6e7 * u[1], -1e4 * u[1]],
            [0.0, 6e7 * u[1], 0.0],
        ]
    )


def van_der_pol(t, u):
    return np.array([u[1], 1000.0 * (1.0 - u[0] ** 2) * u[1] - u[0]])


# By SciPy's Radau with rtol = 1e-11.
ROBERTSON_AT_1E4 = np.array([0.107300429, 4.80016697e-07, 0.892699091])
VAN_DER_POL_AT_2000 = np.array([1.70616773, -0.000892809701])
ATOL = [1e-8, 1e-12, 1e-8]


@pytest.mark.parametrize("jac", [None, robertson_jacobian])
def test_robertson(jac):
    """SciPy's BDF takes 863 evaluations besides those for Jacobians, at these tolerances."""
    f = Counted(robertson)
    u0 = np.array([1.0, 0.0, 0.0])
    result = evolve(f, u0=u0, until=1e4, method="bdf", rtol=1e-6, atol=ATOL, jac=jac)
    assert result.status is EvolveStatus.COMPLETED
    assert f.calls <= 863
    np.testing.assert_allclose(result.u, ROBERTSON_AT_1E4, rtol=2e-5)
    assert result.u.sum() == pytest.approx(1.0, abs=1e-9)


def test_van_der_pol():
    """SciPy's BDF takes 3452 evaluations, with a final error of 2e-5."""
    f = Counted(van_der_pol)
    u0, atol = np.array([2.0, 0.0]), [1e-9, 1e-9]
    result = evolve(f, u0=u0, until=2000.0, method="bdf", rtol=1e-6, atol=atol)
    assert result.status is EvolveStatus.COMPLETED
    assert f.calls <= 3452
    np.testing.assert_allclose(result.u, VAN_DER_POL_AT_2000, rtol=5e-5)


class Rotating:
    """u' = A u + s(t) with complex eigenvalues, u = (cos t, sin t) and a stiff third component."""

    initial = np.array([1.0, 0.0, 0.0])
    operator = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1e4]])

    def rhs(self, t, u, out):
        np.dot(self.operator, u, out=out)
        out[2] += 1e4 * np.sin(t) + np.cos(t)

    @staticmethod
    def exact(t):
        return np.array([np.cos(t), np.sin(t), np.sin(t)])


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_each_order_is_that_of_its_error(order, monkeypatch):
    """Steps of one length and order; the estimate is γ_(k+1) times the error of a step.

    For the error is that of the formula divided by α, and d contains it.
    """
    monkeypatch.setattr(module, "_MAX_ORDER", order)
    errors, estimates = [], []
    for steps in (160, 320):
        problem = SimpleNamespace(
            initial=np.array([1.0 + 0.0j]),
            operator=np.array([[1j]]),
            rhs=lambda t, u, out: np.multiply(1j, u, out=out),
        )
        stepper, dt = Bdf(problem, 4.0 / steps), 4.0 / steps
        stepper.scale = module.ErrorScale(1e-13, 1e-13)
        known = np.exp(1j * dt * np.arange(order + 1))  # past states are exact
        u, out = np.array([known[order]]), np.empty(1, complex)
        rows = [np.diff(known, n=m)[-1] for m in range(order + 1)]
        vectors = [np.array([row]) for row in [*rows, 0.0]]
        stepper.remember(order * dt, vectors, [order, 0, dt])
        for n in range(order, steps):
            assert stepper.attempt(u, n * dt, (n + 1) * dt, dt, out) is None
            stepper.next_order = order
            stepper.accept()
            stepper._end = (n + 1) * dt
            if n == order:
                true = abs(out[0] - np.exp(1j * (n + 1) * dt))
                estimates.append(abs(stepper.error[0]) / true)
            u[...] = out
        errors.append(abs(u[0] - np.exp(4.0j)))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)
    factor = sum(1.0 / m for m in range(1, order + 2))
    assert estimates[1] == pytest.approx(factor, rel=0.02)


def test_differences_for_other_steps_are_of_the_same_polynomial(rng):
    for order in range(1, 6):
        polynomial = np.polynomial.Polynomial(rng.standard_normal(order + 1))
        for factor in (0.3, 1.0, 2.5):
            before, after = (
                [
                    np.diff(polynomial(-h * np.arange(order, -1, -1)), n=m)[-1]
                    for m in range(order + 1)
                ]
                for h in (0.1, 0.1 * factor)
            )
            np.testing.assert_allclose(before @ module._change(order, factor), after, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_the_error_follows_the_tolerance(dtype):
    errors = []
    for rtol in (1e-4, 1e-6, 1e-8):
        problem = Rotating()
        problem.initial = problem.initial.astype(dtype)
        result = evolve(problem, until=2.0, method="bdf", rtol=rtol)
        assert result.status is EvolveStatus.COMPLETED
        assert result.u.dtype == dtype
        errors.append(np.linalg.norm(result.u - problem.exact(2.0)))
    assert errors[0] < 1e-2
    assert errors[1] < 3e-4
    assert errors[2] < 1e-5


def test_states_and_events_inside_steps():
    problem, times = Rotating(), np.linspace(0.1, 1.9, 37)
    result = evolve(
        problem, until=2.0, method="bdf", rtol=1e-7, at=times, events=lambda t, u: u[0] - 0.5
    )
    for t, u in result.samples:
        np.testing.assert_allclose(u, problem.exact(t), atol=3e-5)
    (event,) = result.events
    assert event.t == pytest.approx(np.pi / 3, abs=3e-5)


def brusselator(t, u):
    a, b = u[0::2], u[1::2]
    out = np.empty_like(u)
    x, y = np.pad(a, 1, constant_values=1.0), np.pad(b, 1, constant_values=3.0)
    out[0::2] = 1.0 + a * a * b - 4.0 * a + 50.0 * np.diff(x, n=2)
    out[1::2] = 3.0 * a - a * a * b + 50.0 * np.diff(y, n=2)
    return out


def brusselator_jacobian(t, u):
    size, columns = u.size, []
    for k in range(size):  # f is a polynomial of degree 3: central differences of two steps
        move = np.zeros(size)
        move[k] = 0.5
        near = (brusselator(t, u + move) - brusselator(t, u - move)) / 1.0
        far = (brusselator(t, u + 2 * move) - brusselator(t, u - 2 * move)) / 2.0
        columns.append((4.0 * near - far) / 3.0)
    return np.array(columns).T


def brusselator_start(size):
    x = np.arange(1, size // 2 + 1) / (size // 2 + 1)
    return np.column_stack([1.0 + np.sin(2.0 * np.pi * x), np.full(size // 2, 3.0)]).ravel()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"jac": brusselator_jacobian},
        {"jac": lambda t, u: scipy.sparse.csr_array(brusselator_jacobian(t, u))},
        {"solver": "gmres"},
        {"solver": "gmres", "jac": brusselator_jacobian},
        {"solver": "bicgstab"},
    ],
    ids=["differences", "dense", "sparse", "products", "products of jac", "bicgstab"],
)
def test_jacobians_of_all_kinds_give_the_same_solution(options):
    u0 = brusselator_start(40)
    fine = evolve(brusselator, u0=u0, until=2.0, method="dop853", rtol=1e-11).u
    result = evolve(brusselator, u0=u0, until=2.0, method="bdf", rtol=1e-6, **options)
    assert result.status is EvolveStatus.COMPLETED
    assert np.linalg.norm(result.u - fine) < 1e-4 * np.linalg.norm(fine)


def test_many_unknowns_are_solved_by_products():
    u0 = brusselator_start(1000)
    f = Counted(brusselator)
    result = evolve(f, u0=u0, until=0.1, method="bdf", rtol=1e-5)
    assert result.status is EvolveStatus.COMPLETED
    assert f.calls < u0.size  # no dense Jacobian
    fine = evolve(brusselator, u0=u0, until=0.1, method="bdf", rtol=1e-8).u
    assert np.linalg.norm(result.u - fine) < 1e-3 * np.linalg.norm(fine)


def laplacian_sum(n):
    second = (np.eye(n, k=1) + np.eye(n, k=-1) - 2.0 * np.eye(n)) * (n + 1) ** 2
    return KroneckerSum(second, second)


RESUMED = {
    "rejected": (  # the step after the seventh
        lambda: laplacian_sum(12),
        {"u0": np.random.default_rng(3).standard_normal(144), "until": 0.05, "rtol": 1e-6},
    ),
    "linear": (lambda: make("diffusion-2d", level=3), {"until": 0.02, "rtol": 1e-5}),
    "preconditioned": (
        lambda: make("diffusion-2d", level=3),
        {"until": 0.02, "rtol": 1e-5, "preconditioner": "combination"},
    ),
    "robertson": (lambda: robertson, {"u0": np.array([1.0, 0, 0]), "until": 1e2, "rtol": 1e-5}),
    "products": (
        lambda: brusselator,
        {"u0": brusselator_start(40), "until": 0.5, "rtol": 1e-5, "solver": "gmres"},
    ),
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_repeats_the_whole_one(name, tmp_path):
    given, options = RESUMED[name]
    options = {**options, "method": "bdf", "checkpoint": tmp_path / "run.h5"}
    if name == "robertson":
        options["atol"] = [1e-8, 1e-12, 1e-8]
    whole = evolve(given(), **options)
    assert whole.status is EvolveStatus.COMPLETED
    assert whole.steps > 20
    for stop in (1, 2, 7, whole.steps // 3, whole.steps - 1):
        path = tmp_path / f"{stop}.h5"
        options["checkpoint"] = path
        first = evolve(given(), callback=lambda state, stop=stop: state.step == stop, **options)
        assert first.steps == stop
        resumed = evolve(given(), resume=path, **options)
        assert resumed.steps == whole.steps
        np.testing.assert_array_equal(resumed.u, whole.u)


def test_a_run_goes_on_after_a_terminal_event_as_if_there_were_none(tmp_path):
    def event(t, u):
        return u[0] - 0.9

    event.terminal = True
    options = {"u0": np.array([1.0, 0, 0]), "until": 1e2, "rtol": 1e-6, "method": "bdf"}
    options["atol"] = ATOL
    whole = evolve(robertson, **options)
    ended = evolve(robertson, events=event, checkpoint=tmp_path / "run.h5", **options)
    assert ended.status is EvolveStatus.EVENT
    resumed = evolve(robertson, resume=tmp_path / "run.h5", **options)
    np.testing.assert_array_equal(resumed.u, whole.u)


def test_products_of_a_linear_run_are_one_a_step_and_one_an_iteration():
    problem = make("pitch-angle-c", level=4)
    counts = {"rhs": 0, "product": 0}

    class Operator:
        shape, dtype = problem.operator.shape, problem.operator.dtype

        def matvec(self, x, out=None):
            counts["product"] += 1
            return problem.operator.matvec(x, out=out)

    class Told:
        initial, is_linear, operator, source = problem.initial, True, Operator(), problem.source

        def rhs(self, t, u, out):
            counts["rhs"] += 1
            problem.rhs(t, u, out)

    iterations = []

    def note(state):
        iterations.append(state.step)

    result = evolve(Told(), until=0.5, method="bdf", rtol=1e-5, callback=note)
    solves = [record["iterations"] for record in result.history if record["event"] == "step"]
    assert len(solves) == result.steps
    assert result.rejected == 0 or counts["rhs"] > result.steps
    # two for the first step, one for its slope; those of rejected steps are not in the history
    assert counts["rhs"] == result.steps + result.rejected + 3
    if result.rejected == 0:
        assert counts["product"] == sum(solves)


REFUSED = [
    ({"dt": 0.1}, ValueError, "give rtol or atol"),
    ({"rtol": 1e-4, "atol": [1e-3, 1e-3]}, ValueError, r"atol has shape \(2,\)"),
    ({"rtol": 1e-4, "atol": [1e-3, 0.0, 1.0]}, ValueError, "positive finite numbers"),
    (
        {"method": "esdirk3", "rtol": 1e-4, "atol": [1e-3, 1e-3, 1e-3]},
        ValueError,
        "atol is an array, which only bdf",
    ),
]


def test_atol_may_have_the_shape_of_the_state():
    options = {"until": 1.0, "method": "bdf", "rtol": 1e-4}
    atol = np.array([[1e-3, 1e-5], [1e-7, 1e-9]])
    found = evolve(lambda t, u: -u, u0=np.ones((2, 2)), atol=atol, **options)
    flat = evolve(lambda t, u: -u, u0=np.ones(4), atol=atol.reshape(-1), **options)
    np.testing.assert_array_equal(np.ravel(found.u), flat.u)


@pytest.mark.parametrize("jac", [np.eye(2), lambda t, u: np.eye(2)])
def test_a_jacobian_of_the_wrong_shape_is_refused(jac):
    with pytest.raises(ValueError, match=r"has shape \(2, 2\); expected \(3, 3\)"):
        evolve(robertson, u0=np.ones(3), until=1.0, method="bdf", rtol=1e-4, jac=jac)


@pytest.mark.parametrize(("options", "error", "text"), REFUSED)
def test_refused(options, error, text):
    with pytest.raises(error, match=text):
        evolve(Rotating(), until=1.0, **{"method": "bdf", **options})


def test_an_operator_that_is_not_the_jacobian_is_noticed():
    class Bent(Rotating):
        def rhs(self, t, u, out):
            super().rhs(t, u, out)
            out += u**2

    with pytest.raises(ValueError, match=r"needs f.*give jac, .* or leave the operator out"):
        evolve(Bent(), until=1.0, method="bdf", rtol=1e-4)
    fine = evolve(Bent(), until=0.5, method="dormand-prince", rtol=1e-9).u
    found = evolve(Bent(), until=0.5, method="bdf", rtol=1e-7, jac=lambda t, u: Bent.operator)
    assert found.status is EvolveStatus.COMPLETED
    np.testing.assert_allclose(found.u, fine, rtol=1e-4)


def test_grids_that_change_are_refused():
    problem = make("continuity-2d", level=3)
    with pytest.raises(TypeError, match="differences of states, which belong to one grid"):
        evolve(problem, until=0.1, method="bdf", rtol=1e-4, adapt=True)


def test_a_solve_that_fails_makes_the_step_shorter_and_then_ends_the_run():
    problem = make("diffusion-2d", level=3)
    result = evolve(
        problem,
        until=0.02,
        method="bdf",
        rtol=1e-9,
        preconditioner="none",
        solver={"restart": 1, "maxiter": 1},
    )
    assert result.status in (EvolveStatus.SOLVER_FAILED, EvolveStatus.COMPLETED)
    assert result.rejected > 0


def test_is_a_method_by_name():
    assert steppers.get("bdf") is Bdf


@pytest.mark.parametrize("numbers", [[], [6.0, 0.0, 0.1], [2.0, 0.0, 0.1], [1.0, 0.0, 0.0]])
def test_a_memory_that_is_none_of_bdf_is_refused(numbers):
    with pytest.raises(ValueError, match="the checkpoint holds 3 vectors"):
        Bdf(Rotating(), 0.1).remember(0.0, [np.zeros(3)] * 3, numbers)


def test_a_rate_of_newton_of_exactly_1_is_a_solve_that_failed():
    """d = -c sign(1 + d) - c by Newton's method with J = 0: its steps are -2 c and 2 c."""
    problem = SimpleNamespace(
        initial=np.ones(1),
        rhs=lambda t, u, out: np.copyto(out, -np.sign(u)),
        jacobian=lambda t, u: np.zeros((1, 1)),
    )
    scale, c, out = ErrorScale(1e-6, 1e-6), 0.75, np.empty(1)
    scale.set(problem.initial)
    equation = equation_of(problem, out, Products(), 0.0, 1.0)
    failed = equation.solve(0.0, c, problem.initial, np.full(1, c), scale, out)
    assert failed.status is Status.STAGNATED


def test_a_state_that_is_zero_and_stays_there():
    for given in (np.diag([-1.0, -2.0]), lambda t, u: -u):
        result = evolve(given, u0=np.zeros(2), until=1.0, method="bdf", rtol=1e-4)
        assert result.status is EvolveStatus.COMPLETED
        np.testing.assert_array_equal(result.u, 0.0)


def test_a_state_that_is_not_physical_ends_the_run():
    def f(t, u):
        if u.min() < 0.5:
            raise NotPhysicalError("u", "x", 0.0, t, float(u.min()))
        return -u

    for size in (2, 300):  # a dense Jacobian, and products
        result = evolve(f, u0=np.ones(size), until=2.0, method="bdf", rtol=1e-4)
        assert result.status is EvolveStatus.NOT_PHYSICAL
        assert 0.5 <= result.u.min() < 0.6
        lost = evolve(f, u0=np.full(size, 0.1), until=2.0, method="bdf", rtol=1e-4)
        assert lost.status is EvolveStatus.NOT_PHYSICAL


@pytest.mark.parametrize(
    ("name", "level", "rtol", "error", "products"),
    [
        ("pitch-angle-c", 5, 1e-5, 1e-5, 118),
        ("pitch-angle-c", 5, 10**-6.5, 1e-6, 212),
        ("pitch-angle-c", 5, 2e-8, 1e-7, 304),
        ("diffusion-2d", 4, 1e-5, 1e-5, 236),
        ("diffusion-2d", 4, 10**-6.5, 1e-6, 336),
    ],
)
def test_products_at_an_error_are_at_most_those_of_cvode(name, level, rtol, error, products):
    """The numbers of CVODE are in docs/results/time-stepping.md."""
    problem = make(name, level=level, degree=2)
    counted = [0]

    class Operator:
        shape, dtype = problem.operator.shape, problem.operator.dtype
        kronecker_terms = staticmethod(problem.operator.kronecker_terms)

        def matvec(self, x, out=None):
            counted[0] += 1
            return problem.operator.matvec(x, out=out)

    class Counted:
        initial, is_linear, operator, source = problem.initial, True, Operator(), problem.source

        def rhs(self, t, u, out):
            counted[0] += 1
            problem.rhs(t, u, out)

    options = {"until": problem.stepper.until, "method": "bdf", "preconditioner": "combination"}
    fine = evolve(problem, rtol=1e-10, **options).u
    found = evolve(Counted(), rtol=rtol, **options).u
    assert np.linalg.norm(found - fine) <= error * np.linalg.norm(fine)
    assert counted[0] <= products
