"""Relaxation to the Maxwellian of the solution's own moments."""

import json
import pickle

import numpy as np
import pytest
from crafted_files import changed, write_unchecked

from batchkron import NotPhysicalError, ProblemFileError
from batchkron.problems import (
    PDE,
    Axis,
    NoFlux,
    Separable,
    SeparableSum,
    SparseGrid,
    bgk,
    div,
    load_problem,
    save_problem,
)
from batchkron.problems.files.encode import encode_problem
from batchkron.problems.semidiscrete.value import content_of
from batchkron.problems.statement.gains import MaxwellianGain
from batchkron.solvers import EvolveStatus, evolve

X, V, W = Axis("x", 0.0, 4.0), Axis("v", -4.0, 5.0), Axis("w", -1.0, 1.0)
BOUNDARY = {X: "periodic", V: NoFlux()}
NU = 2.5


def bell(mean, theta):
    return lambda v: np.exp(-((v - mean) ** 2) / (2 * theta)) / np.sqrt(2 * np.pi * theta)


def wave(x):
    return 1.0 + 0.5 * np.sin(np.pi * x / 2)


MIXED = SeparableSum(
    (
        Separable(x=wave, v=bell(-1.0, 1.0)),
        Separable(x=lambda x: 2.0 - wave(x), v=bell(1.5, 0.5)),
    )
)


def problem_of(level, degree=2, grid="full", initial=MIXED, terms=(), axes=(X, V), **options):
    pde = PDE(list(axes), [*terms, *bgk(V, NU)], boundary=BOUNDARY, initial=initial)
    return pde.discretize(level, degree, grid, **options)


def rhs_of(problem, u=None):
    out = np.full(problem.unknowns, np.nan)
    problem.rhs(0.0, problem.initial if u is None else u, out)
    return out


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_the_gain_is_the_projected_maxwellian(degree):
    """For f = n(x) g(v) it is n(x) M(v), which PDE projects as an initial state."""

    def g(v):
        return bell(-0.5, 0.6)(v) + 0.3 * bell(1.5, 0.4)(v)

    problem = problem_of((2, 5), degree, initial=Separable(x=wave, v=g), dt=0.1)
    u = problem.initial
    n, m1, m2 = (problem.moment(u, {V: k}).evaluate([1.0])[0] for k in range(3))
    mean = m1 / n
    theta = m2 / n - mean**2
    maxwellian = Separable(x=wave, v=bell(mean, theta))
    M = problem_of((2, 5), degree, initial=maxwellian, dt=0.1).initial
    f, M = (own.reshape(-1, degree + 1, degree + 1) for own in (u, M))
    expected = NU * (problem.integral(u) / X.length * M - f)  # the mean of the wave is 1
    cells = problem.grid.cells
    coarse = cells[:, 1] == 0
    expected[coarse, :, : min(3, degree + 1)] = 0.0
    found = rhs_of(problem).reshape(f.shape)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert np.abs(found[coarse, :, : min(3, degree + 1)]).max() < 1e-13


def test_moments_are_conserved_at_every_place():
    problem = problem_of((3, 4))
    rate = rhs_of(problem)
    assert np.abs(rate).max() > 0.1
    for k in range(3):
        moment = problem.moment(rate, {V: k}).coefficients
        assert np.abs(moment).max() < 1e-13 * np.abs(problem.moment(problem.initial, {V: k})
                                                     .coefficients).max()  # fmt: skip


def test_totals_are_conserved_on_sparse_grids():
    problem = problem_of(5, grid="sparse")
    rate = rhs_of(problem)
    for k in range(3):
        weights = problem.moment_weights({V: k})
        assert abs(weights @ rate) < 1e-14 * np.linalg.norm(weights) * np.linalg.norm(rate)


def test_axes_may_be_in_any_order():
    problem, other = problem_of((2, 3)), problem_of((3, 2), axes=(V, X))
    places = other.grid.find(problem.grid.cells[:, ::-1])
    expected = rhs_of(problem).reshape(-1, 3, 3)
    found = rhs_of(other).reshape(-1, 3, 3)[places].transpose(0, 2, 1)
    np.testing.assert_allclose(found, expected, atol=1e-13)


def test_relaxation_is_exponential():
    """f = M + (f_0 - M) exp(-νt) if nothing depends on x."""
    parts = [Separable(v=bell(mean, 0.3), coefficient=0.5) for mean in (-0.5, 0.5)]
    problem = problem_of((1, 5), initial=SeparableSum(tuple(parts)))
    final = problem_of((1, 5), initial=Separable(v=bell(0.0, 0.55))).initial
    t = 0.8
    expected = final + (problem.initial - final) * np.exp(-NU * t)
    for method, dt in (("ark3", 0.02), ("rk4", 0.02)):
        result = evolve(problem, until=t, method=method, dt=dt)
        assert result.status is EvolveStatus.COMPLETED
        np.testing.assert_allclose(result.u, expected, atol=2e-5)


def test_large_rates_need_no_small_steps():
    """With ν dt = 1000 f is a Maxwellian after a step, and its moments are kept."""
    pde = PDE([X, V], bgk(V, 1e4), boundary=BOUNDARY, initial=MIXED)
    problem = pde.discretize((2, 5), 2, "full", dt=0.1, method="ark3")
    result = evolve(problem, until=0.5)
    assert result.status is EvolveStatus.COMPLETED
    rate = rhs_of(problem, result.u)
    assert np.linalg.norm(rate) < 1e-4 * np.linalg.norm(rhs_of(problem))
    for k in range(3):
        before, after = (
            problem.moment(u, {V: k}).coefficients for u in (problem.initial, result.u)
        )
        np.testing.assert_allclose(after, before, atol=1e-12)


def test_with_transport_the_default_method_is_imex():
    problem = problem_of(4, terms=[div(X, -1.0, others={V: lambda v: v})], grid="sparse")
    assert problem.stepper.method == "ark3"
    result = evolve(problem, until=0.1)
    assert result.status is EvolveStatus.COMPLETED
    part = problem.implicit_part()
    part.follow(0.0, problem.initial)
    gain = np.full(problem.unknowns, np.nan)
    part.source(0.0, gain)
    loss = part.operator @ problem.initial
    np.testing.assert_allclose(loss, -NU * problem.initial, atol=1e-14)
    alone = rhs_of(problem_of(4, grid="sparse"))
    np.testing.assert_allclose(gain + loss, alone, atol=1e-13)


def test_what_is_refused():
    problem = problem_of((2, 3))
    assert problem.has_fields
    assert not problem.is_linear
    for refused in (lambda: problem.operator, lambda: problem.operator_at(0.0)):
        with pytest.raises(ValueError, match="or f relaxes to a Maxwellian"):
            refused()
    with pytest.raises(ValueError, match="is no operator, so that it cannot be frozen"):
        problem.frozen(problem.initial)
    with pytest.raises(TypeError, match="velocity must be an Axis, got list"):
        bgk([V])
    with pytest.raises(ValueError, match=r"nu is -1\.0; expected a rate of"):
        bgk(V, -1.0)
    with pytest.raises(ValueError, match="take lenard_bernstein"):
        PDE([X, V, W], bgk(V, 1.0, position=X), boundary=NoFlux(), initial=1.0)
    with pytest.raises(ValueError, match="not among their velocities are: x, w"):
        PDE([X, V, W], bgk(V, 1.0), boundary=NoFlux(), initial=1.0)
    curved = PDE([X, V], bgk(V), boundary=NoFlux(), initial=MIXED, volume={X: lambda x: 1 + x})
    with pytest.raises(ValueError, match="Cartesian coordinates, and an axis has a volume"):
        curved.discretize(2, 2)


def test_a_density_that_is_not_positive():
    problem = problem_of((2, 3))
    with pytest.raises(NotPhysicalError, match=r"Moment\({v: 0}\) is -.* at x = .*expected posit"):
        rhs_of(problem, -problem.initial)
    result = evolve(problem.on_grid(problem.grid, -problem.initial), until=0.1, dt=0.01)
    assert result.status is EvolveStatus.NOT_PHYSICAL


def test_texts_copies_and_other_grids():
    terms = bgk(V, 3.0)
    assert repr(terms[1]) == "<3 * Maxwellian(position, v)>"
    pde = PDE([X, V], terms, boundary=BOUNDARY, initial=MIXED)
    assert "3 * Maxwellian(x, v)" in repr(pde)
    problem = pde.discretize((2, 3), 2, "full")
    again = pickle.loads(pickle.dumps(problem))
    np.testing.assert_array_equal(rhs_of(again), rhs_of(problem))
    finer = problem.on_grid(SparseGrid.full([3, 4]))
    assert finer.gains == problem.gains
    assert rhs_of(finer).size == finer.unknowns


def test_files_have_the_gain(tmp_path):
    problem = problem_of((2, 3))
    path = tmp_path / "bgk.h5"
    save_problem(path, problem)
    loaded = load_problem(path)
    assert loaded.gains == problem.gains == (MaxwellianGain(X, V, NU),)
    assert loaded.content_hash == problem.content_hash
    np.testing.assert_allclose(rhs_of(loaded), rhs_of(problem), atol=1e-14)
    plain = PDE([X, V], bgk(V, 0.0)[0], boundary=BOUNDARY, initial=MIXED).discretize(2, 2)
    assert plain.content_hash != problem.content_hash


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"velocity": "w"}, "velocity is 'w'; expected one of x, v"),
        ({"position": ["x"]}, "unhashable|position is"),
        ({"nu": "1"}, "nu must be a real number"),
        ({"more": 1}, "no object of position, velocity and nu"),
        ({"velocity": "x"}, "expected a position and a velocity that are all axes"),
    ],
)
def test_false_gains_in_files(tmp_path, change, text):
    document = encode_problem(content_of(problem_of((2, 3))))
    row = {"position": "x", "velocity": "v", "nu": 1.0, **change}
    path = tmp_path / "bad.h5"
    bad = {"gains/maxwellian": (json.dumps(row),)}
    write_unchecked(path, changed(document, datasets=bad))
    with pytest.raises(ProblemFileError, match=text):
        load_problem(path, trusted=True)


def test_so_many_gains_are_refused(tmp_path):
    document = encode_problem(content_of(problem_of((2, 3))))
    (row,) = document.datasets["gains/maxwellian"]
    write_unchecked(
        tmp_path / "many.h5", changed(document, datasets={"gains/maxwellian": (row,) * 17})
    )
    with pytest.raises(ProblemFileError, match="has 17 gains; expected at most 16"):
        load_problem(tmp_path / "many.h5", trusted=True)
    pde = PDE([X, V], [bgk(V, NU)] * 17, boundary=BOUNDARY, initial=MIXED)
    with pytest.raises(ValueError, match="has 17 gains; a file holds at most 16"):
        save_problem(tmp_path / "no.h5", pde.discretize(1, 2))
