"""Terms whose coefficients are fields, against dense matrices and against frozen problems."""

import pickle
import threading

import numpy as np
import pytest
from numpy.polynomial import legendre
from problem_oracle import cell_functions, dense_div, dense_sum, rates, rk3

from batchkron import NotPhysicalError
from batchkron.problems import (
    PDE,
    Axis,
    Inflow,
    Mixed,
    Moment,
    NoFlux,
    Poisson,
    Separable,
    SparseGrid,
    div,
    grad,
    make,
    mass,
    time,
)
from batchkron.problems.discretization.basis.multiwavelets import hierarchical_transform
from batchkron.solvers import Adapt, EvolveStatus, evolve

# most states of these tests have no shocks
pytestmark = pytest.mark.filterwarnings("ignore::batchkron.problems.ShockWarning")

X, V, W = Axis("x", 0.0, 4.0), Axis("v", -3.0, 3.0), Axis("w", -2.0, 2.0)
N = Moment(V)
WAVE = Separable(x=lambda x: 1.0 + 0.3 * np.sin(np.pi * x / 2), v=lambda v: np.exp(-(v**2)))


def pde_of(terms, axes=(X, V), initial=WAVE, **options):
    boundary = {axis: "periodic" if axis == X else Inflow() for axis in axes}
    return PDE(list(axes), terms, boundary=boundary, initial=initial, **options)


def dense_multiplication(axis, level, degree, g, volume=None):
    """Hierarchical matrix of g f by the Gauss rule of 16 nodes, which the kinks of |g| need."""
    n, cells = degree + 1, 2**level
    width = axis.length / cells
    nodes, weights = legendre.leggauss(16)
    values, _ = cell_functions(n, width, nodes)
    A = np.zeros((cells, n, cells, n))
    for cell in range(cells):
        x = axis.lower + width * (cell + (1 + nodes) / 2)
        measure = weights * width / 2 * (volume(x) if volume else 1.0)
        block = (values.T * (measure * g(x))) @ values
        A[cell, :, cell, :] = np.linalg.solve((values.T * measure) @ values, block)
    W = hierarchical_transform(level, degree)
    return W @ A.reshape(cells * n, cells * n) @ W.T


@pytest.mark.parametrize(
    ("level", "degree", "grid"),
    [((2, 3), 1, "full"), (3, 2, "sparse"), (4, 0, "sparse"), ((3, 2), 2, Mixed([X], [V]))],
)
def test_the_operator_is_the_dense_product_for_the_states_field(rng, level, degree, grid):
    """The sign of E decides the upwind side of v, and which end lets f in."""
    E = Poisson(X, N)
    problem = pde_of(div(V, -1.0, others={X: E})).discretize(level, degree, grid)
    lx, lv = problem.grid.levels
    for _ in range(2):  # the second state replaces the first one's blocks
        u = rng.uniform(-1.0, 1.0, problem.unknowns)
        field = problem.field(u, E)
        terms = []
        for sign, ends in ((1.0, ("dirichlet", "neumann")), (-1.0, ("neumann", "dirichlet"))):
            part = dense_multiplication(
                X, lx, degree, lambda x, s=sign, E=field: np.maximum(s * E.evaluate(x), 0.0)
            )
            along = dense_div(V, lv, degree, lambda v, s=sign: -s * np.ones_like(v), edges=ends)
            terms.append([part, along])
        A = dense_sum(terms, problem.grid, degree)
        size = np.abs(A).max()
        np.testing.assert_allclose(rates(problem, u), A @ u, atol=1e-12 * size * np.abs(u).max())
    assert problem.validate().ok


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize(
    ("axes", "level", "degree", "grid"),
    [
        ((X, V), 4, 2, "sparse"),
        ((V, X), (3, 2), 1, "full"),
        ((X, V, W), 3, 1, Mixed([X], [V, W])),
    ],
)
def test_frozen_fields_are_ordinary_coefficients(axes, level, degree, grid, curved):
    """A field, its values frozen, and a PDE with these values as coefficient are the same."""
    moment = Moment([axis for axis in axes if axis != X])
    wave = np.cos
    field = Poisson(X, moment) if not curved else moment * wave
    volume = {X: lambda x: 2.0 + np.cos(np.pi * x / 2), V: lambda v: 4.0 + v} if curved else None

    def terms(g):
        return [  # transport, force, reaction, diffusion
            div(X, -1.0, others={V: lambda v: v}),
            div(V, -1.0, others={X: g}),
            mass(X, g),
            0.1 * div(V, boundary=NoFlux(), others={X: g}) @ grad(V),
        ]

    names = {axis.name: WAVE.factor(axis) for axis in axes}
    initial = Separable(**names)
    problem = pde_of(terms(field), axes, initial, volume=volume).discretize(level, degree, grid)
    u = problem.initial
    values = problem.field(u, field)
    given = pde_of(terms(values.evaluate), axes, initial, volume=volume)
    ordinary = given.discretize(level, degree, grid, allow_ill_posed=True)
    expected = rates(ordinary, u)
    atol = 1e-13 * np.abs(expected).max() * 10
    np.testing.assert_allclose(rates(problem, u), expected, atol=atol)
    frozen = problem.frozen(u)
    assert not frozen.has_fields
    assert frozen.is_linear
    np.testing.assert_allclose(rates(frozen, u), rates(problem, u), atol=atol)
    other = u * 0.5
    assert np.abs(rates(frozen, other) - rates(problem, other)).max() > 1e3 * atol
    assert ordinary.frozen(u) is ordinary


def test_coefficients_in_time_multiply_fields():
    decay = time.exp(-1.0)
    term = div(V, -1.0, others={X: Poisson(X, N)})
    steady = pde_of(term).discretize(3, 1)
    moving = pde_of(2.0 * term * decay).discretize(3, 1)
    u = steady.initial
    for t in (0.0, 0.7, 0.2):
        expected = 2.0 * np.exp(-t) * rates(steady, u)
        np.testing.assert_allclose(rates(moving, u, t), expected, atol=1e-14)


def of_time(axes=(X, V)):
    """All kinds of terms with coefficients in time: of fields of any sign, and without fields."""
    wave, decay = time.cos(3.0), time.exp(-1.0)
    E = Poisson(X, N)
    terms = [
        div(X, -1.0, others={V: lambda v: v}),
        div(V, -1.0, others={X: E}) * decay,
        div(V, 0.5, others={X: E}),
        div(V, 0.5, others={X: E}, flux="central", boundary="neumann") * wave,
        mass(X, E) @ mass(V, Moment(X)) * wave,
        mass(V, lambda v: 0.1 * v) * wave,
    ]
    return pde_of(terms).discretize(4, 2)


@pytest.mark.parametrize("part", ["rhs", "whole"])
def test_coefficients_in_time_need_no_host(rng, monkeypatch, part):
    """They are written with the fields' blocks, in place of an update of the operator's values."""
    problem = of_time()
    whole = problem.whole_part() if part == "whole" else None
    terms = problem.system._field_terms if whole is None else whole._terms
    assert terms._linked is not None
    assert not terms.is_repeatable
    monkeypatch.setattr(type(terms._operator), "update", None)
    for t in (0.0, 0.9, 2.0, 0.9):  # the wave is 1, negative, 1, negative
        u = problem.initial * rng.uniform(0.9, 1.1, problem.unknowns)
        frozen = problem.frozen(u)
        expected = rates(frozen, u, t)
        if whole is None:
            found = rates(problem, u, t)
        else:
            whole.follow(t, u)
            found = whole.operator @ u
        atol = 1e-13 * np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def test_coefficients_in_time_on_other_grids(rng):
    problem = of_time()
    rates(problem, problem.initial, 0.3)  # the operators are assembled, and converted below
    cells = problem.grid.cells
    moved = problem.on_grid(SparseGrid.custom(cells[cells.max(axis=1) < 8], problem.grid.levels))
    rhs = rates(moved, moved.initial, 1.3)
    expected = rates(moved.frozen(moved.initial), moved.initial, 1.3)
    np.testing.assert_allclose(rhs, expected, rtol=0, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("reactions", [1, 2])
@pytest.mark.parametrize("alone", [(), (X,), (V,), (X, V)], ids=["none", "x", "v", "both"])
def test_reactions_in_time_without_a_mode(rng, monkeypatch, alone, reactions):
    """An identity is their mode, along an axis along which no term acts alone, if there is one."""
    terms = [
        div(V, -1.0, others={X: Poisson(X, N)}) * time.exp(-1.0),
        *(mass(axis, lambda s: 0.1 * s) for axis in alone),
        *[mass(X) * time.cos(1.0), mass(V) * time.cos(2.0)][:reactions],
    ]
    problem = pde_of(terms).discretize(3, 1)
    whole = problem.whole_part()
    is_linked = whole._terms._linked is not None
    assert is_linked == (len(alone) + reactions <= 2)  # there is an axis for each
    if is_linked:
        monkeypatch.setattr(type(whole._terms._operator), "update", None)
    for t in (0.2, 2.0):
        u = problem.initial * rng.uniform(0.9, 1.1, problem.unknowns)
        whole.follow(t, u)
        expected = rates(problem.frozen(u), u, t)
        atol = 1e-13 * np.abs(expected).max()
        np.testing.assert_allclose(whole.operator @ u, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("boundary", ["periodic", Inflow()])
@pytest.mark.parametrize("field", [div(X, -N), mass(X, N), grad(X, N, flux="central")])
@pytest.mark.parametrize(
    "plain",
    [
        [div(X, -1.0)],
        [mass(X, -0.3), div(V, 0.5)],
        [mass(X, np.cos), mass(V, -0.2), div(V, -1.0, others={X: N})],
    ],
)
def test_terms_beside_fields_along_one_axis_need_no_host(rng, field, plain, boundary):
    """A sweep would add both along x, where one changes; the right-hand side has them apart."""
    pde = PDE([X, V], [field, *plain], boundary={X: boundary, V: Inflow()}, initial=WAVE)
    problem = pde.discretize(3, 2)
    assert problem.system._field_terms.is_repeatable
    u = problem.initial + 0.1 * rng.standard_normal(problem.unknowns)
    expected = problem.frozen(u).operator @ u
    atol = 1e-12 * np.abs(expected).max()
    np.testing.assert_allclose(rates(problem, u), expected, rtol=0, atol=atol)
    whole = problem.whole_part()
    whole.follow(0.0, u)
    np.testing.assert_allclose(whole.operator @ u, expected, rtol=0, atol=atol)


def test_the_default_step_knows_the_fields():
    """|E| is ½ and more times the size of the cells of x, which do not count, at a time."""
    E = Poisson(X, N)
    problem = pde_of(div(V, -1.0, others={X: E})).discretize(3, 1)
    largest = np.abs(problem.field(problem.initial, E).evaluate(np.linspace(0, 4, 1001))).max()
    rate = largest / (6.0 / 8)
    assert problem.stepper.dt == pytest.approx(0.5 / (3 * rate), rel=1e-3)
    assert pde_of(div(V, others={X: E})).discretize(3, 1, dt=0.25).stepper.dt == 0.25


def test_states_on_other_grids():
    problem = make("landau-1x1v", 4, 1)
    cells = problem.grid.cells
    coarse = SparseGrid.custom(cells[cells.max(axis=1) < 8], problem.grid.levels)
    moved = problem.on_grid(coarse)
    assert moved.unknowns < problem.unknowns
    again = moved.on_grid(problem.grid)
    state = again.initial
    _, v = problem.axes
    np.testing.assert_allclose(
        moved.moment(moved.initial, v).evaluate([1.0, 7.0]),
        problem.moment(state, v).evaluate([1.0, 7.0]),
        rtol=1e-14,
    )
    assert np.isfinite(rates(moved, moved.initial)).all()


def test_a_grid_without_the_cells_that_a_moment_needs(rng):
    """Of degree 0, and constant over an axis that is symmetric to 0: without momentum."""
    momentum = Moment({V: 1})
    problem = pde_of([mass(X, momentum), mass(V, -0.3)]).discretize(2, 0)
    flat = SparseGrid.custom(problem.grid.cells[problem.grid.cells[:, 1] == 0], problem.grid.levels)
    moved = problem.on_grid(flat)
    u = rng.standard_normal(moved.unknowns)
    np.testing.assert_allclose(rates(moved, u), -0.3 * u, rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        moved.field(u, momentum).evaluate(np.array([0.3, 2.9])), 0.0, atol=1e-14
    )


def test_copies_and_threads_give_the_same_bits():
    problem = make("landau-1x1v", 5, 2)
    states = [problem.initial * (1.0 + 0.1 * k) for k in range(4)]
    expected = [rates(problem, u) for u in states]
    copy = pickle.loads(pickle.dumps(problem))
    found = [None] * 4

    def work(k):
        for _ in range(5):
            found[k] = rates(copy, states[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_operators_of_the_state_are_refused_in_plain_words():
    problem = make("landau-1x1v", 3, 1)
    assert not problem.is_linear
    for ask in (
        lambda: problem.operator,
        lambda: problem.operator_at(0.0),
        lambda: evolve(problem, until=0.1, method="exponential-euler", dt=0.1),
    ):
        with pytest.raises(ValueError, match="depends on the state: a term has a field as coeff"):
            ask()
    assert problem.frozen(problem.initial).operator.shape == (problem.unknowns,) * 2


def test_imex_methods_take_transport_by_fields_explicitly():
    """Diffusion is implicit; the force depends on the state and is explicit."""
    E = Poisson(X, N)
    terms = [
        div(V, -1.0, others={X: E}),
        0.2 * div(V, boundary=NoFlux()) @ grad(V),
    ]
    problem = pde_of(terms).discretize(3, 2, until=0.5)
    reference = rk3(problem, 0.5, 1000)
    errors = []
    for dt in (0.1, 0.05):
        result = evolve(problem, until=0.5, method="ark3", dt=dt)
        assert result.status is EvolveStatus.COMPLETED
        errors.append(np.linalg.norm(result.u - reference))
    assert errors[1] < errors[0] / 5 < 1e-3 * np.linalg.norm(reference)
    frictional = pde_of([mass(X, N), terms[1]]).discretize(3, 1)
    with pytest.raises(ValueError, match="depends on the state"):
        frictional.implicit_operator_at(0.0)


@pytest.mark.parametrize("method", ["ssp-rk3", "rk4", "bogacki-shampine", "dormand-prince"])
def test_explicit_methods_converge_with_their_order(method):
    """Of f_t = (n_0 - n) f, which is quadratic in f; compared with many small steps."""
    problem = pde_of(mass(X, 2.0 - N / np.sqrt(np.pi))).discretize((0, 4), 2, "full")
    u = problem.initial
    fine = evolve(problem, until=1.0, method="dormand-prince", rtol=1e-13, atol=1e-15).u
    errors = []
    for steps in (8, 16):
        result = evolve(problem, until=1.0, method=method, dt=1.0 / steps)
        assert result.status is EvolveStatus.COMPLETED
        errors.append(np.linalg.norm(result.u - fine) / np.linalg.norm(u))
    order = {"ssp-rk3": 3, "rk4": 4, "bogacki-shampine": 3, "dormand-prince": 5}[method]
    assert np.log2(errors[0] / errors[1]) > order - 0.8


def test_a_logistic_equation_is_solved():
    """f uniform in x: n' = (1 - n) n, n = 1 / (1 + (1/n_0 - 1) exp(-t))."""
    v = Axis("v", 0.0, 2.0)
    n = Moment(v)
    pde = PDE([X, v], mass(X, 1.0 - n), boundary="periodic", initial=0.1)
    problem = pde.discretize(2, 1)
    result = evolve(problem, until=2.0, method="rk4", dt=0.02)
    found = problem.moment(result.u, v).evaluate([0.3, 3.9])
    np.testing.assert_allclose(found, 1.0 / (1.0 + 4.0 * np.exp(-2.0)), rtol=1e-8)


def test_what_is_not_physical_ends_the_run():
    """n' = -1 - 0·(1/n): at t = 0.3 the density is no longer positive where it is smallest."""
    ones = {"x": lambda x: 1.0 + 0.7 * np.cos(np.pi * x / 2), "v": 1.0 / 6.0}
    pde = PDE(
        [X, V],
        mass(X, 1e-30 / N),
        boundary="periodic",
        initial=Separable(**ones),
        sources=Separable(v=-1.0 / 6.0),
    )
    problem = pde.discretize(4, 2)
    result = evolve(problem, until=1.0, method="rk4", dt=0.01)
    assert result.status is EvolveStatus.NOT_PHYSICAL
    assert result.t == pytest.approx(0.3, abs=0.02)
    assert "Moment({v: 0}) is -" in result.message
    with pytest.raises(NotPhysicalError) as caught:
        rates(problem, problem.initial * -1.0, 0.25)
    assert caught.value.time == 0.25
    assert caught.value.value == pytest.approx(-1.7, abs=0.01)
    assert min(caught.value.place, 4.0 - caught.value.place) < 0.1


@pytest.mark.parametrize("adapt", [None, Adapt(1e-2)])
@pytest.mark.parametrize("method", ["rk4", "ark3", "backward-euler"])
def test_an_initial_state_without_density_ends_the_run_at_once(method, adapt):
    problem = pde_of(mass(X, 1.0 / N), initial=0.0).discretize(2, 1)
    result = evolve(problem, until=0.1, method=method, dt=0.05, adapt=adapt)
    assert (result.status, result.steps, result.t) == (EvolveStatus.NOT_PHYSICAL, 0, 0.0)
    assert "Moment({v: 0}) is 0 at x = " in result.message


def test_what_a_volume_element_does_not_allow_is_refused_at_once():
    volume = {V: lambda v: 4.0 + v}
    with pytest.raises(ValueError, match="the power 2 of 'v', which has a volume element"):
        pde_of(mass(X, Moment({V: 2})), volume=volume).discretize(2, 1, dt=0.1)
    curved = pde_of(mass(X, N), volume={X: lambda x: 2.0 + np.cos(np.pi * x / 2)})
    problem = curved.discretize(2, 1)
    with pytest.raises(ValueError, match="Poisson's equation is solved in Cartesian coordinates"):
        problem.field(problem.initial, Poisson(X, N))


def test_a_description_has_the_fields():
    lines = make("landau-1x1v", 3, 1).describe()
    assert "x (positive part of Poisson(x, Moment({v: 0}))), v (" in lines
    assert "x (negative part of Poisson(x, Moment({v: 0}))), v (" in lines
