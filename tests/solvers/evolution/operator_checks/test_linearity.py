"""Methods for f(t, u) = A(t) u + s(t) refuse other f's before their first step."""

from types import SimpleNamespace

import numpy as np
import pytest
from methods import EQUAL_STEPS
from scipy.sparse import diags_array
from scipy.sparse.linalg import LinearOperator

from batchkron.problems import make
from batchkron.solvers import evolve, steppers
from batchkron.solvers.protocols import known_beside_rhs, says_linear

IMEX = ("imex-euler", "ark2", "ark3")
LINEAR = [
    name for name in EQUAL_STEPS if steppers.get(name).implicit and name not in IMEX
]  # fmt: skip
REFUSED = (
    r"needs f\(t, u\) = A\(t\) u \+ s\(t\), but .* take an IMEX method "
    r"\('imex-euler' or 'ark2' or 'ark3'\)"
)


def square():
    """u' = -u², u = 1 / (1/u0 + t), with its Jacobian at the beginning as operator."""
    initial = np.array([1.0, 2.0, 0.5])
    return SimpleNamespace(
        initial=initial,
        operator=np.diag(-2.0 * initial),
        rhs=lambda t, u, out: np.copyto(out, -u * u),
    )


def diffusion(rest, initial=None, cells=200):
    """u' = Δu + rest(u) + 1 with the operator Δ, which dwarfs the rest in most components."""
    x = np.arange(1, cells + 1) / (cells + 1)
    A = np.diag(np.ones(cells - 1), 1) + np.diag(np.ones(cells - 1), -1) - 2 * np.eye(cells)
    A *= (cells + 1) ** 2
    return SimpleNamespace(
        initial=np.sin(np.pi * x) if initial is None else np.full(cells, initial),
        operator=A,
        rhs=lambda t, u, out: np.copyto(out, A @ u + rest(u) + 1.0),
    )


def run(problem, method="esdirk3", **options):
    return evolve(problem, until=0.1, method=method, **({"dt": 0.05} | options))


@pytest.mark.parametrize("method", LINEAR)
def test_a_nonlinear_right_hand_side_is_refused(method, tmp_path):
    path = tmp_path / "c.h5"
    with pytest.raises(ValueError, match=f"method '{method}' {REFUSED}"):
        run(square(), method, checkpoint=path)
    assert not path.exists()


@pytest.mark.parametrize("method", ["ark3", "dormand-prince"])
def test_what_the_refusal_recommends_solves_it(method):
    problem = square()
    found = evolve(problem, until=1.0, method=method, rtol=1e-6).u
    np.testing.assert_allclose(found, 1.0 / (1.0 / problem.initial + 1.0), rtol=1e-4)


def test_chosen_steps_are_refused_alike():
    with pytest.raises(ValueError, match=REFUSED):
        evolve(square(), until=1.0, method="esdirk3", rtol=1e-5)


@pytest.mark.parametrize(
    ("rest", "initial"),
    [(lambda u: u - u**3, None), (lambda u: -0.01 * u * u, None), (np.sin, 0.0)],
)
def test_a_slow_nonlinear_part_shows_beside_stiff_diffusion(rest, initial):
    with pytest.raises(ValueError, match=REFUSED):
        run(diffusion(rest, initial))


@pytest.mark.parametrize(("rest", "text"), [(-0.3, REFUSED), (0.0, None)])
@pytest.mark.parametrize("kind", ["sparse", "batchkron"])
def test_fine_grids_hide_no_smooth_part(kind, rest, text):
    """The rest, 0.3, is below the rounding error of difference quotients, as ‖A‖ is above 1e7."""
    fine = make("diffusion-1d", level=9, degree=2)
    A, u = fine.operator, fine.initial
    if kind == "sparse":
        cells = 5000
        u = np.sin(np.pi * np.arange(1, cells + 1) / (cells + 1))
        A = diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(cells, cells)).tocsr()
        A *= (cells + 1.0) ** 2
    problem = SimpleNamespace(
        initial=u, operator=A, rhs=lambda t, u, out: np.copyto(out, A @ u + rest * u)
    )
    if text is None:
        assert evolve(problem, until=1e-10, method="sdirk2", dt=1e-10).steps == 1
    else:
        with pytest.raises(ValueError, match=text):
            evolve(problem, until=1e-10, method="sdirk2", dt=1e-10)


def test_an_operator_that_lacks_a_linear_part_is_refused():
    with pytest.raises(ValueError, match=r"correct problem.operator: it is not f's"):
        run(diffusion(lambda u: -u))


def test_a_state_of_zero_is_tried_with_elements_of_size_1():
    problem = square()
    problem.initial = np.zeros(3)
    problem.operator = np.zeros((3, 3))
    with pytest.raises(ValueError, match=REFUSED):
        run(problem)


def test_states_that_f_does_not_take_are_no_linear_ones():
    """Where f is NaN near the initial state, it is not linear."""
    problem = square()
    problem.rhs = lambda t, u, out: np.sqrt(u - 0.4, out=out)
    with pytest.raises(ValueError, match="differ by inf of their size"):
        run(problem)


def test_a_resumed_run_is_tried_as_well(tmp_path):
    path = tmp_path / "c.h5"
    problem = diffusion(lambda u: 0.0 * u, cells=5)
    problem.content_hash = "of both"
    evolve(problem, until=0.1, method="sdirk2", dt=0.05, checkpoint=path)
    other = diffusion(lambda u: -u * u, cells=5)
    other.content_hash = "of both"
    with pytest.raises(ValueError, match=REFUSED):
        evolve(other, until=0.2, method="sdirk2", resume=path)


def test_the_operator_of_the_first_step_is_tried():
    """At t0 f and A are both 0, so that only a later time can show the difference."""
    problem = square()
    del problem.operator
    problem.operator_at = lambda t: np.diag(-2.0 * t * problem.initial)
    problem.rhs = lambda t, u, out: np.multiply(-t * u, u, out=out)
    with pytest.raises(ValueError, match=REFUSED):
        run(problem)
    problem.rhs = lambda t, u, out: np.multiply(-2.0 * t * problem.initial, u, out=out)
    assert run(problem).steps == 2


def rounded(problem, dtype):
    problem.operator = problem.operator.astype(dtype)


def quotient(problem):
    """A v as a quotient of differences of f, as for methods without matrices."""

    def matvec(v):
        ends = np.empty((2, v.size))
        problem.rhs(0.0, problem.initial, ends[0])
        problem.rhs(0.0, problem.initial + 1e-6 * v.ravel(), ends[1])
        return (ends[1] - ends[0]) / 1e-6

    problem.operator = LinearOperator((problem.initial.size,) * 2, matvec=matvec)


def inexact(problem):
    """f from an iteration that ends at a relative residual of 1e-8."""
    rng, A = np.random.default_rng(1), problem.operator

    def rhs(t, u, out):
        out[...] = A @ u
        out += 1e-8 * np.linalg.norm(out) / np.sqrt(u.size) * rng.standard_normal(u.size)

    problem.rhs = rhs


def with_large_source(problem):
    A = problem.operator
    problem.rhs = lambda t, u, out: np.copyto(out, A @ u + 1e9)


@pytest.mark.parametrize(
    "change", [lambda p: rounded(p, np.float32), quotient, inexact, with_large_source]
)
def test_linear_problems_with_inexact_products_pass(change):
    problem = diffusion(lambda u: 0.0)
    change(problem)
    assert run(problem, "sdirk2", dt=0.1, solver={"rtol": 1e-4}).steps == 1


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
@pytest.mark.parametrize("method", ["crank-nicolson", "exponential-euler"])
def test_all_dtypes(dtype, method):
    A = np.diag([-1.0, -30.0, -4.0]).astype(dtype)
    linear = SimpleNamespace(
        initial=np.array([1, 2, 3], dtype), operator=A, rhs=lambda t, u, out: np.dot(A, u, out=out)
    )
    assert run(linear, method).u.dtype == dtype
    linear.rhs = lambda t, u, out: np.copyto(out, A @ u - 0.1 * abs(u))
    with pytest.raises(ValueError, match=REFUSED):
        run(linear, method)


@pytest.mark.parametrize("method", IMEX)
def test_the_implicit_part_of_imex_methods_has_to_be_linear(method):
    problem = square()
    A = problem.operator
    problem.implicit_operator = LinearOperator((3, 3), matvec=lambda v: A @ v)
    assert run(problem, method).steps == 2
    problem.implicit_operator = LinearOperator((3, 3), matvec=lambda v: A @ v.ravel() + 0.1)
    with pytest.raises(ValueError, match=r"implicit_operator is not linear: .* implicit_source"):
        run(problem, method)


def test_methods_that_are_declared_nonlinear_are_not_tried():
    class Newton(steppers.get("backward-euler")):
        nonlinear = True

    assert run(square(), Newton).steps == 2


def test_the_trial_is_made_once_a_run():
    problem, seen = diffusion(lambda u: 0.0, cells=5), []
    rhs = problem.rhs
    problem.rhs = lambda t, u, out: seen.append(t) or rhs(t, u, out)
    for steps in (0, 1, 7):
        seen.clear()
        evolve(problem, until=0.1 * steps, method="backward-euler", dt=0.1)
        assert len(seen) == (3 + steps if steps else 0)
    assert all(0.0 < t <= 0.1 * steps for t in seen)


def test_a_right_hand_side_that_returns_f_is_named_as_such():
    problem = square()
    problem.rhs = lambda t, u, out: problem.operator @ u
    with pytest.raises(TypeError, match="did not write into out"):
        run(problem)


class Linear:
    """u' = -u, declared linear by ``is_linear``."""

    initial = np.array([1.0, 2.0])
    operator = -np.eye(2)
    is_linear = True

    def rhs(self, t, u, out):
        np.negative(u, out=out)

    def source(self, t, out):
        out[...] = 0.0


class PassesOn:
    """Another problem's attributes, with a right-hand side of its own."""

    def __init__(self, problem):
        self._problem = problem

    def __getattr__(self, name):
        return getattr(self._problem, name)

    def rhs(self, t, u, out):
        self._problem.rhs(t, u, out)
        out -= 50.0 * u * u


class Overrides(Linear):
    """A right-hand side of its own under an inherited ``is_linear``."""

    def rhs(self, t, u, out):
        np.multiply(-u, u, out=out)


@pytest.mark.parametrize(
    "make_problem",
    [lambda: PassesOn(make("diffusion-1d", level=3)), lambda: PassesOn(Linear()), Overrides],
)
def test_what_another_right_hand_side_is_counts_for_nothing(make_problem):
    """``is_linear`` of one right-hand side says nothing about another that replaces it."""
    with pytest.raises(ValueError, match=REFUSED):
        evolve(make_problem(), until=0.05, method="esdirk3", dt=0.005)


def test_what_belongs_to_rhs_counts():
    declared = PassesOn(Linear())
    declared.is_linear = True
    for problem in (Linear(), make("diffusion-1d", level=2), declared):
        assert says_linear(problem)
    for problem in (PassesOn(Linear()), Overrides(), square()):
        assert not says_linear(problem)
    assert known_beside_rhs(declared, "source") is None
    assert known_beside_rhs(Linear(), "source") is not None
