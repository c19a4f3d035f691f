"""Discretized problems: right-hand side, sources, evaluation, and what they refuse."""

import pickle
import threading
import tracemalloc
import typing
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import scipy.sparse
from scipy.integrate import solve_ivp

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    ExactSolution,
    ModeOperator,
    Neumann,
    OperatorTerm,
    Problem,
    Separable,
    SeparableVector,
    SparseGrid,
    StepperSettings,
    div,
    gallery,
    grad,
    laplacian,
    make,
    mass,
    time,
)
from batchkron.problems.discretization.matrices.dg_matrices import div_matrix
from batchkron.solvers import evolve

X, Y = Axis("x", 0.0, 1.0), Axis("y", -1.0, 1.0)
EXACT = Separable(x=np.cos, y=np.exp, t=time.cos(2.0)) + Separable(x=np.sin, t=time.exp(-1.0))


def moving_problem(level=2, degree=1):
    """Terms with three functions of time, two of them proportional, and data at the ends."""
    terms = [
        div(X, -1.0),
        laplacian(Y, 0.1, time=time.exp(-1.0)),
        mass(X, np.cos, others={Y: np.sin}, time=2 * time.sin(1.0)),
        mass(Y, np.cos, time=3 * time.sin(1.0)),
    ]
    boundary = {X: (Dirichlet("from exact"), Neumann()), Y: Dirichlet("from exact")}
    pde = PDE([X, Y], terms, boundary=boundary, exact=EXACT, sources="from exact", t0=0.3)
    return pde.discretize(level, degree, method="ssp-rk3", dt=1e-3)


def fixed_problem(level=2, degree=1):
    pde = PDE([X, Y], laplacian([X, Y]), boundary=Dirichlet("from exact"), exact=EXACT)
    return pde.discretize(level, degree)


def poisoned(problem):
    return np.full(problem.unknowns, np.nan)


@pytest.mark.parametrize("make", [moving_problem, fixed_problem])
def test_right_hand_side_is_operator_plus_source(make, rng):
    problem = make()
    u = rng.standard_normal(problem.unknowns)
    for t in (0.3, 1.1):
        out, source = poisoned(problem), poisoned(problem)
        problem.rhs(t, u, out)
        problem.source(t, source)
        A = problem.operator_at(t)
        np.testing.assert_allclose(out, A @ u + source, atol=1e-12 * np.abs(out).max())
        weighted = sum(
            term.time(t) * replace_terms(problem, [OperatorTerm(term.modes, time.constant())])
            for term in problem.terms
        )
        np.testing.assert_allclose(A.to_dense(), weighted, atol=1e-13 * np.abs(weighted).max())


def replace_terms(problem, terms):
    return replace(problem, terms=terms).operator.to_dense()


def test_sources_are_the_sum_of_their_kronecker_products():
    problem = moving_problem()
    t, out = 0.9, poisoned(problem)
    problem.source(t, out)
    expected = np.zeros(problem.unknowns)
    n = problem.degree + 1
    for source in problem.sources:
        full = source.time(t) * np.kron(*source.factors)
        table = full.reshape(-1, n, source.factors[1].size // n, n)
        blocks = [table[i, :, j, :].ravel() for i, j in problem.grid.cells]
        expected += np.concatenate(blocks)
    np.testing.assert_allclose(out, expected, atol=1e-12 * np.abs(expected).max())


def test_proportional_functions_of_time_share_an_operator():
    groups = moving_problem().system._groups
    assert [group.time for group in groups] == [
        time.constant(),
        time.exp(-1.0),
        time.sin(1.0),
    ]


def test_constant_operators_are_one_object():
    problem = fixed_problem()
    assert problem.operator is problem.operator
    assert problem.operator_at(0.7) is problem.operator
    with pytest.raises(ValueError, match="use operator_at"):
        moving_problem().operator  # noqa: B018


def test_adjoint_of_the_operator_at_a_time(rng):
    problem = moving_problem()
    A = problem.operator_at(0.5)
    u, v = rng.standard_normal((2, problem.unknowns))
    assert v @ (A @ u) == pytest.approx((A.T @ v) @ u, rel=1e-11)


@pytest.mark.parametrize("make", [moving_problem, fixed_problem])
def test_the_right_hand_side_allocates_nothing(make, rng):
    problem = make(4, 2)
    u, out = rng.standard_normal(problem.unknowns), poisoned(problem)
    problem.rhs(0.4, u, out)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    problem.rhs(0.5, u, out)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert peak < u.nbytes / 2


def test_a_problem_without_terms_or_sources_stands_still(rng):
    problem = PDE(
        [X], [], sources=0.0, boundary="periodic", initial=Separable(x=np.cos)
    ).discretize(3, 1)
    out = poisoned(problem)
    problem.rhs(0.0, problem.initial, out)
    assert not out.any()
    assert problem.operator.shape == (problem.unknowns,) * 2


def test_vectors_are_checked(rng):
    problem = fixed_problem()
    u, out = np.ones(problem.unknowns), poisoned(problem)
    with pytest.raises(ValueError, match="u has shape"):
        problem.rhs(0.0, u[:-1], out)
    with pytest.raises(TypeError, match="u is float32"):
        problem.rhs(0.0, u.astype(np.float32), out)
    with pytest.raises(ValueError, match="out has shape"):
        problem.source(0.0, out[:-1])
    with pytest.raises(ValueError, match="C-contiguous"):
        problem.source(0.0, np.empty(2 * problem.unknowns)[::2])
    with pytest.raises(ValueError, match="overlaps"):
        problem.rhs(0.0, u, u)
    with pytest.raises(TypeError, match="u is list"):
        problem.l2_error([0.0], 0.0)
    with pytest.raises(ValueError, match="read-only"):
        problem.initial[0] = 1.0


def test_a_problem_is_immutable():
    problem = fixed_problem()
    with pytest.raises(FrozenInstanceError):
        problem.degree = 3
    units = {"x": "m"}
    changed = replace(problem, units=units)
    units["x"] = "km"
    assert changed.units == {"x": "m"}


def test_types_of_the_constructor_can_be_asked_for():
    """Documentation tools and editors resolve them; the fields are declared in another module."""
    assert typing.get_type_hints(Problem.__init__)["grid"] is SparseGrid


def test_threads_share_a_problem(rng):
    problem = moving_problem(3, 2)
    states = rng.standard_normal((4, problem.unknowns))
    expected = np.empty_like(states)
    for u, out in zip(states, expected, strict=True):
        problem.rhs(0.6, u, out)
    results = np.full_like(states, np.nan)

    def work(k):
        for _ in range(20):
            problem.rhs(0.6, states[k], results[k])

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    np.testing.assert_array_equal(results, expected)


def test_copies_by_pickle(rng):
    problem = moving_problem()
    u, first, second = rng.standard_normal(problem.unknowns), poisoned(problem), poisoned(problem)
    problem.rhs(0.4, u, first)
    pickle.loads(pickle.dumps(problem)).rhs(0.4, u, second)
    np.testing.assert_array_equal(first, second)


def test_validate_covers_every_group():
    problem = moving_problem()
    report = problem.validate()
    assert report.ok
    assert report.max_error_over_bound > 0.0
    assert report.samples == 3 * problem.grid.num_cells
    assert problem.validate(samples=2).samples == 6


def test_content_hash_is_that_of_the_content():
    problem = fixed_problem()
    assert problem.content_hash == fixed_problem().content_hash
    assert problem.content_hash == replace(problem, provenance={"by": "me"}).content_hash
    assert problem.content_hash != replace(problem, t0=1.0).content_hash
    changed = problem.initial.copy()
    changed[3] = np.nextafter(changed[3], 9.0)
    assert problem.content_hash != replace(problem, initial=changed).content_hash


@pytest.mark.parametrize("grid", ["sparse", "full"])
@pytest.mark.parametrize("levels", [(3, 3), (2, 4), (0, 3)])
def test_evaluate_is_the_sum_of_all_basis_functions(grid, levels, rng):
    """Against the dense tensor of coefficients, in the nodal basis."""
    from batchkron.problems.discretization.basis.multiwavelets import to_nodal

    problem = PDE([X, Y], [], sources=0.0, boundary="periodic", initial=0.0).discretize(
        levels, 2, grid
    )
    u = rng.standard_normal(problem.unknowns)
    n = 3
    table = np.zeros((2 ** levels[0], n, 2 ** levels[1], n))
    for (i, j), block in zip(problem.grid.cells, u.reshape(-1, n, n), strict=True):
        table[i, :, j, :] = block
    table = table.reshape(2 ** levels[0] * n, 2 ** levels[1] * n)
    table = to_nodal(to_nodal(table, levels[0], 2, axis=0), levels[1], 2, axis=1)
    points = np.column_stack([rng.uniform(0, 1, 40), rng.uniform(-1, 1, 40)])
    points[:4] = [[0, -1], [1, 1], [0, 1], [1, -1]]
    expected = []
    for point in points:
        vectors = []
        for axis, level, s in zip((X, Y), levels, point, strict=True):
            width = axis.length / 2**level
            cell = min(int((s - axis.lower) / width), 2**level - 1)
            r = 2 * (s - axis.lower - cell * width) / width - 1
            vector = np.zeros((2**level, n))
            vector[cell] = [
                np.sqrt(1 / width),
                np.sqrt(3 / width) * r,
                np.sqrt(5 / width) * (3 * r * r - 1) / 2,
            ]
            vectors.append(vector.ravel())
        expected.append(vectors[0] @ table @ vectors[1])
    np.testing.assert_allclose(problem.evaluate(u, points), expected, atol=1e-11)


def test_evaluate_refuses_points_elsewhere():
    problem = fixed_problem()
    with pytest.raises(ValueError, match=r"expected \(m, 2\)"):
        problem.evaluate(problem.initial, [0.5, 0.5])
    with pytest.raises(ValueError, match="expected a point of axis 'y'"):
        problem.evaluate(problem.initial, [[0.5, 0.5], [0.5, 1.5]])
    assert problem.evaluate(problem.initial, np.zeros((0, 2))).shape == (0,)


def test_evaluate_on_a_set_with_holes(rng):
    grid = SparseGrid.custom([[0, 0], [1, 2], [3, 1]], [2, 2])
    problem = PDE([X, Y], [], sources=0.0, boundary="periodic", initial=0.0).discretize(
        degree=1, grid=grid
    )
    whole = PDE([X, Y], [], sources=0.0, boundary="periodic", initial=0.0).discretize(2, 1, "full")
    u, v = rng.standard_normal(problem.unknowns), np.zeros(whole.unknowns)
    v.reshape(-1, 4)[whole.grid.find(grid.cells)] = u.reshape(-1, 4)
    points = np.column_stack([rng.uniform(0, 1, 30), rng.uniform(-1, 1, 30)])
    np.testing.assert_allclose(problem.evaluate(u, points), whole.evaluate(v, points), atol=1e-13)
    one_by_one = [problem.evaluate(u, [point])[0] for point in points]
    np.testing.assert_allclose(one_by_one, problem.evaluate(u, points), atol=1e-13)


GRID = SparseGrid.full([1])
MODE = ModeOperator.from_nodal(div_matrix(Axis("x", 0, 1), 1, 0), 0)
VECTOR = SeparableVector((np.ones(2),), time.constant())
GOOD = {
    "name": "good",
    "axes": (Axis("x", 0, 1),),
    "degree": 0,
    "grid": GRID,
    "terms": (OperatorTerm((MODE,), time.constant()),),
    "sources": (VECTOR,),
    "initial": np.ones(2),
    "stepper": StepperSettings("ssp-rk3", 0.1, 1.0),
}
LARGER = ModeOperator.from_nodal(div_matrix(Axis("x", 0, 1), 2, 0), 0)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"name": ""}, TypeError, "name must be"),
        ({"axes": (X, Y)}, ValueError, "expected 1 axes"),
        ({"axes": ("x",)}, TypeError, r"axes\[0\] must be an Axis"),
        ({"degree": -1}, ValueError, "degree"),
        ({"grid": "full"}, TypeError, "grid must be a SparseGrid"),
        ({"terms": (MODE,)}, TypeError, r"terms\[0\] must be an OperatorTerm"),
        ({"terms": (OperatorTerm((MODE, None), time.constant()),)}, ValueError, "2 modes"),
        ({"terms": (OperatorTerm((LARGER,), time.constant()),)}, ValueError, "4 cells of 1"),
        ({"sources": (np.ones(2),)}, TypeError, r"sources\[0\] must be a SeparableVector"),
        (
            {"sources": (SeparableVector((np.ones(3),), time.constant()),)},
            ValueError,
            r"sources\[0\] has factors of shapes",
        ),
        ({"initial": np.ones(3)}, ValueError, r"initial has shape \(3,\)"),
        ({"initial": np.array([1.0, np.nan])}, ValueError, r"initial\[1\] is nan; expected finite"),
        ({"initial": np.array([1j, 1.0])}, TypeError, "initial has dtype complex128"),
        ({"stepper": None}, TypeError, "stepper must be"),
        ({"t0": np.inf}, ValueError, "t0 must be finite"),
        (
            {
                "exact": ExactSolution(
                    (SeparableVector((np.ones(3),), time.constant()),), np.zeros((1, 1, 1))
                )
            },
            ValueError,
            r"exact.parts\[0\] has factors",
        ),
    ],
)
def test_parts_that_do_not_fit(changes, error, text):
    Problem(**GOOD)
    with pytest.raises(error, match=text):
        Problem(**{**GOOD, **changes})


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: OperatorTerm((MODE,), 1.0), TypeError, "time must be a TimeFunction"),
        (lambda: OperatorTerm((np.eye(2),), time.constant()), TypeError, r"modes\[0\] must be"),
        (lambda: SeparableVector((np.ones((2, 2)),), time.constant()), ValueError, "2 dimensions"),
        (lambda: SeparableVector((np.array([np.inf]),), time.constant()), ValueError, "NaN or inf"),
        (lambda: ExactSolution((), np.zeros((1, 0, 0))), ValueError, "parts is empty"),
        (lambda: ExactSolution((VECTOR,), np.zeros((1, 2, 2))), ValueError, "remainders has shape"),
        (lambda: StepperSettings("", 0.1, 1.0), TypeError, "method must be"),
        (lambda: StepperSettings("ssp-rk3", -0.1, 1.0), ValueError, "dt must be positive"),
        (lambda: StepperSettings("ssp-rk3", 0.1, np.inf), ValueError, "until must be finite"),
    ],
)
def test_parts_that_are_wrong(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_without_an_exact_solution():
    problem = PDE([X], div(X), boundary="periodic", initial=0.0).discretize(2, 1)
    assert problem.exact_coefficients(0.0) is None
    for ask in (problem.l2_error, problem.relative_error):
        with pytest.raises(ValueError, match="is not known"):
            ask(problem.initial, 0.0)
    with pytest.raises(ValueError, match="is not known"):
        problem.l2_norm_exact(0.0)


def test_a_matrix_is_added_to_the_operator():
    """A sum with a problem says how; so does a run of the problem that the text describes."""
    problem = make("advection-1d", 3, 1)
    damping = scipy.sparse.diags_array(np.linspace(-2.0, -1.0, problem.unknowns)).tocsr()
    for total in (
        lambda: problem + damping,
        lambda: damping + problem,
        lambda: problem - damping,
        lambda: np.eye(problem.unknowns) + problem,
        lambda: problem.operator + problem,
        lambda: sum([problem, problem]),
    ):
        with pytest.raises(TypeError, match=r"a Problem and a .*`operator` = problem.operator \+"):
            total()

    class Damped:
        initial, operator, t0 = problem.initial, problem.operator + damping, problem.t0

        def rhs(self, t, u, out):
            problem.rhs(t, u, out)
            out += damping @ u

        def source(self, t):
            return problem.source(t)

    runs = [
        evolve(Damped(), until=0.02, dt=1e-3, method=name) for name in ("rk4", "crank-nicolson")
    ]
    np.testing.assert_allclose(runs[1].u, runs[0].u, rtol=0, atol=1e-5)
    plain = evolve(problem, until=0.02, dt=1e-3, method="rk4").u
    assert np.linalg.norm(runs[0].u) < 0.985 * np.linalg.norm(plain)


@pytest.mark.parametrize("method", ["RK45", "BDF"])
@pytest.mark.parametrize("name", ["advection-diffusion-2d", "landau-1x1v"])
def test_rhs_without_out_is_what_solve_ivp_takes(name, method):
    """Without and with fields; BDF differences f by columns of a matrix."""
    problem = make(name, level=2, degree=1)
    out = np.full_like(problem.initial, np.nan)
    assert problem.rhs(0.0, problem.initial, out) is out
    assert problem.rhs(0.0, problem.initial).tobytes() == out.tobytes()
    run = {"method": method, "rtol": 1e-8, "atol": 1e-10}
    found = solve_ivp(problem.rhs, (0.0, 0.05), problem.initial, **run)
    expected = evolve(problem, until=0.05, method="rk4", dt=1e-3)
    np.testing.assert_allclose(found.y[:, -1], expected.u, atol=1e-6)


def test_misspelt_arguments_of_discretize():
    pde = gallery.get("continuity-1d").pde
    with pytest.raises(TypeError, match="no argument 'levels'; did you mean level"):
        pde.discretize(levels=3)
    with pytest.raises(TypeError, match="no argument 'degre'; did you mean degree"):
        pde.discretize(3, degre=1)


@pytest.mark.parametrize("scale", [0.3, 2, np.float64(1.5), time.exp(-1.0)])
def test_all_terms_of_a_laplacian_are_multiplied(scale):
    def operator(terms):
        pde = PDE([X, Y], terms, boundary="periodic", initial=0.0)
        return pde.discretize(3, 1).operator_at(0.7).to_dense()

    each = [scale * (div(axis) @ grad(axis)) for axis in (X, Y)]
    for terms in (scale * laplacian([X, Y]), laplacian([X, Y]) * scale):
        np.testing.assert_array_equal(operator(terms), operator(each))
    for negative in (-laplacian(X), -1 * laplacian(X)):
        with pytest.raises(ValueError, match="less than 0"):
            PDE([X], negative, boundary="periodic", initial=0.0).discretize(3, 1)
