"""The forms of a problem's operator (sweep, batch, dense) agree."""

import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from batchkron.operators import BatchedKron, KroneckerProduct, SparseGridOperator
from batchkron.problems import (
    PDE,
    Axis,
    Moment,
    Poisson,
    div,
    gallery,
    grad,
    make,
    mass,
    pointwise,
    time,
)
from batchkron.problems.semidiscrete.operators import choose_form

COLLISIONAL = (
    "relaxation-1x1v",
    "relaxation-1x2v",
    "relaxation-1x3v",
    "collisional-landau-1x1v",
    "bgk-1x1v",
)
CLASSES = {"sweep": SparseGridOperator, "batch": BatchedKron, "dense": KroneckerProduct}


def moving_problem(level=3, kind="sparse"):
    """Terms that act in two modes, with three functions of time."""
    x, y = Axis("x", 0, 1), Axis("y", -1, 1)
    terms = [
        div(x, 1.0, others={y: np.exp}, time=time.exp(-1.0)),
        2.0 * div(y, 1.0, time=time.sin(2.0)),
        div(x) @ mass(x, lambda s: 2 + s) @ grad(x),
    ]
    return PDE([x, y], terms, boundary="periodic", initial=0.0).discretize(level, 2, kind)


@pytest.mark.parametrize("form", ["sweep", "batch", "dense"])
@pytest.mark.parametrize("name", gallery.names())
def test_the_gallery_in_every_form(rng, name, form):
    collides = name in COLLISIONAL
    problem = make(name, 1 if name.endswith(("6d", "3v")) else 2, 2 if collides else 1)
    other = problem.with_form(form)
    if problem.has_fields_of_axes and form == "sweep":
        assert not other.system._groups  # all terms are in the operator that follows the state
    elif not all(term.has_fields for term in problem.terms):
        assert isinstance(other.system._groups[0].operator, CLASSES[form])
    u = rng.standard_normal(problem.unknowns)
    if collides:  # density and temperature must be positive
        u = problem.initial + 1e-6 * u
    expected, result = np.full((2, u.size), np.nan)
    problem.rhs(0.3, u, expected)
    other.rhs(0.3, u, result)
    np.testing.assert_allclose(result, expected, atol=1e-12 * np.abs(expected).max())
    assert other.validate().ok
    assert other.content_hash == problem.content_hash


@pytest.mark.parametrize("form", ["sweep", "batch", "dense"])
def test_functions_of_time(rng, form):
    problem = moving_problem().with_form(form)
    u, out = rng.standard_normal((2, problem.unknowns))
    for t in (0.0, 0.4, 1.3):
        dense = sum(
            group.time(t) * group.operator.to_dense() for group in moving_problem().system._groups
        )
        expected = out + dense @ u
        result = out.copy()
        problem.accumulate(t, u, result)
        np.testing.assert_allclose(result, expected, atol=1e-12 * np.abs(expected).max())
        np.testing.assert_allclose(problem.operator_at(t) @ u, dense @ u, atol=1e-10)
    problem.rhs(0.3, u, out)
    tracemalloc.start()
    try:
        problem.rhs(0.4, u, out)
        assert tracemalloc.get_traced_memory()[1] < 4096
    finally:
        tracemalloc.stop()


def test_threads_at_different_times(rng):
    """They share the operator, which must not store the coefficient at one of the times."""
    problem = moving_problem(5)
    u = rng.standard_normal(problem.unknowns)

    def slope(t):
        out = np.full_like(u, np.nan)
        problem.rhs(t, u, out)
        return out

    times = np.linspace(0, 1, 40)
    expected = [slope(t) for t in times]
    with ThreadPoolExecutor(4) as pool:
        for result, right in zip(pool.map(slope, times), expected, strict=True):
            np.testing.assert_array_equal(result, right)


def test_a_form_is_no_content():
    problem = moving_problem()
    other = problem.with_form("batch")
    assert other.with_form("batch") is other
    assert (other.form, problem.form) == ("batch", "auto")
    assert other.initial is not None
    assert pickle.loads(pickle.dumps(other)).form == "batch"


def test_the_choice():
    assert choose_form("auto", "cpu", 10**9) == "sweep"
    assert choose_form("auto", "cuda", 10) == choose_form("sweep", "cuda", 10) == "sweep"
    assert choose_form("dense", "cpu", 8192) == "dense"
    with pytest.raises(ValueError, match="8193 unknowns; a dense operator is for at most 8192"):
        choose_form("dense", "cpu", 8193)
    with pytest.raises(ValueError, match="'dense' run on the CPU only; on cuda use 'sweep'"):
        choose_form("dense", "cuda", 10)
    with pytest.raises(ValueError, match="form is 'tree'; expected one of auto, sweep"):
        moving_problem().with_form("tree")
    with pytest.raises(ValueError, match="at most 8192"):
        make("continuity-2d", level=10).with_form("dense")


def test_linear_functions_of_the_state_stay_beside_frozen_fields(rng):
    x, v = Axis("x", 1, 3), Axis("v", -2, 3)
    terms = [pointwise("sin(x * v) * f", linear=True), mass(x, Poisson(x, Moment(v)))]
    problem = PDE([x, v], terms, boundary="neumann", initial="x * (1 + v / 10)").discretize(2, 2)
    frozen, rate = problem.frozen(problem.initial), np.empty(problem.unknowns)
    problem.rhs(0.0, problem.initial, rate)
    np.testing.assert_allclose(frozen.operator @ problem.initial, rate, rtol=0, atol=1e-12)
    state = rng.standard_normal(problem.unknowns)
    frozen.rhs(0.0, state, rate)
    np.testing.assert_allclose(frozen.operator @ state, rate, rtol=0, atol=1e-12)
