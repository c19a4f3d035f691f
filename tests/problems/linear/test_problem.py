"""Problems of one operator, such as a batch list."""

import pickle

import numpy as np
import pytest
from dense_oracle import random_array
from device_check import run_check
from random_lists import random_list, random_problem

import batchkron as bk
from batchkron.distributed import distribute, simulate
from batchkron.problems import LinearProblem, make
from batchkron.solvers import evolve

RUN = {"until": 0.5, "method": "rk4", "dt": 0.01}


def test_rhs_and_its_parts(rng, dtype):
    problem = random_problem(rng, dtype)
    matrix = problem.operator.to_dense()
    u = random_array(rng, 24, dtype)
    (f, v), (g, w) = ((f, np.ravel(v)) for f, v in problem.time_parts().sources)
    source = (f(0.7) * v + g(0.7) * w).astype(dtype)
    tolerance = 400 * np.finfo(dtype).eps * max(np.abs(matrix).max(), 1.0)
    for shape in [(24,), (8, 3), (4, 6)]:
        out = np.full(shape, np.nan, dtype)
        problem.rhs(0.7, u.reshape(shape), out)
        assert np.abs(out.ravel() - matrix @ u - source).max() <= tolerance
        problem.source(0.7, out)
        np.testing.assert_allclose(out.ravel(), source, rtol=0, atol=tolerance)
        problem.accumulate(0.7, u.reshape(shape), out)
        assert np.abs(out.ravel() - matrix @ u - source).max() <= tolerance
    assert problem.is_linear
    assert (problem.initial.shape, problem.initial.dtype) == ((24,), np.dtype(dtype))
    with pytest.raises(ValueError, match=r"u has shape \(3,\)"):
        problem.rhs(0.0, u[:3], u)


def test_a_run_is_that_of_the_operator(rng):
    problem = random_problem(rng)
    run = {"until": 0.25, "method": "rk4", "dt": 0.01}
    bare = evolve(problem.operator, u0=problem.initial, source=np.zeros(24), **run)
    same = LinearProblem(problem.operator, problem.initial.reshape(4, 6), np.zeros(24))
    assert evolve(same, **run).u.tobytes() == bare.u.tobytes()
    result = evolve(problem, until=0.5)  # by its own method, step and final time
    assert (result.method, result.t, result.steps) == ("rk4", 0.5, 25)
    begun = evolve(problem, until=0.5, u0=problem.initial.reshape(8, 3))
    assert begun.u.tobytes() == result.u.tobytes()
    with pytest.raises(ValueError, match=r"u0 has shape \(3, 8\); expected \(24,\) or \(8, 3\)"):
        evolve(problem, until=0.5, u0=problem.initial.reshape(3, 8))


@pytest.mark.parametrize("method", ["rk4", "backward-euler"])
def test_the_bare_list_of_a_pde_has_its_states(method):
    """From pools, ids, inputs and outputs alone, next to the Problem that they came from."""
    problem = make("diffusion-2d", level=3, degree=1).with_form("batch")
    spec = problem.operator._spec
    lists = spec.factor_ids, spec.inputs, spec.outputs
    op = bk.BatchedKron([pool[0] for pool in spec.pools], *lists, weights=spec.weights[0])
    run = {"until": 2e-3, "method": method, "dt": 1e-4}
    result = evolve(op, u0=problem.initial, source=problem.time_parts().sources, **run)
    expected = evolve(problem, **run).u
    assert np.abs(result.u - expected).max() < 1e-8 * np.abs(expected).max()


def test_states_of_a_pde_begin_in_blocks(rng):
    problem = make("diffusion-2d", level=2, degree=1)
    u0 = rng.standard_normal(problem.unknowns)
    run = {"until": 1e-3, "method": "rk4", "dt": 1e-4}
    blocks = evolve(problem, u0=u0.reshape(-1, problem.block_size), **run)
    assert blocks.u.tobytes() == evolve(problem, u0=u0, **run).u.tobytes()


def test_errors_against_the_exact_solution(rng):
    problem = random_problem(rng)
    exact = 2.0 * problem.time_parts().sources[0][1]
    known = LinearProblem(problem.operator, problem.initial, exact=exact / 2.0)
    u = rng.standard_normal(24)
    assert known.l2_error(u.reshape(4, 6), 3.0) == pytest.approx(np.linalg.norm(u - exact / 2.0))
    assert known.relative_error(exact, 0.0) == pytest.approx(1.0)
    unknown = LinearProblem(problem.operator, problem.initial)
    assert (unknown.exact, problem.exact is None) == (None, False)
    with pytest.raises(ValueError, match="is not known"):
        unknown.l2_error(u, 0.0)


def test_quantities_are_weights(rng):
    problem = random_problem(rng)
    watch = problem.quantities()
    assert list(watch) == ["mass", "Ä", "norm", "error"]
    result = evolve(problem, until=0.5, watch=watch)
    assert result.watched["mass"].last == pytest.approx(result.u.sum())
    assert result.watched["norm"].last == pytest.approx(np.linalg.norm(result.u))
    assert result.watched["error"].last == pytest.approx(problem.l2_error(result.u, result.t))
    assert list(problem.quantities("norm")) == ["norm"]
    with pytest.raises(ValueError, match="'moss' is no quantity of"):
        problem.quantities("moss")


def test_pictures_along_one_index(rng):
    pytest.importorskip("matplotlib")
    problem = random_problem(rng)
    u = rng.standard_normal(24)
    blocks = u.reshape(8, 3)
    panel = problem.plot(u, slice={"i1": 2}).axes[0]
    np.testing.assert_array_equal(panel.lines[0].get_ydata(), blocks[:, 2])
    assert (panel.get_xlabel(), panel.get_title()) == ("block", "i1 = 2")
    panel = problem.plot(blocks, 0.3, along="i1", show="error").axes[0]
    row = np.unravel_index(np.abs(u).argmax(), (8, 3))[0]
    expected = (blocks - problem.exact_at(0.3).reshape(8, 3))[row]
    np.testing.assert_array_equal(panel.lines[0].get_ydata(), expected)
    assert len(problem.plot(u, 0.3).axes[0].lines) == 2
    for text, options in [
        ("'x' is no index; expected one of block, i1", {"slice": {"x": 0}}),
        ("slice has i1 = 3; expected 0 to 2", {"slice": {"i1": 3}}),
        ("all indices are fixed", {"slice": {"i1": 0, "block": 0}}),
        ("the exact solution is not known", {"show": "error"}),
        ("expected one of", {"show": "all"}),
    ]:
        with pytest.raises(ValueError, match=text):
            problem.plot(u, **options)


def test_descriptions(rng):
    problem = random_problem(rng)
    assert repr(problem) == (
        "<LinearProblem 'zufällig ∇': 24 unknowns, a BatchedKron of 12 products, float64>"
    )
    text = problem.describe()
    for part in ("8 along block, 3 along i1", "12 products of 3×3 ⊗ 2×2", "mass, Ä", "rk4"):
        assert part in text


def test_validation_and_other_forms(rng):
    problem = random_problem(rng)
    assert problem.validate(samples=2).ok
    A = rng.standard_normal((4, 4))
    total = LinearProblem(bk.KroneckerSum([A, A]), rng.standard_normal((4, 4)))
    with pytest.raises(TypeError, match="has no method validate"):
        total.validate()
    other = total.with_operator(bk.KroneckerProduct([A, A]))
    assert other.operator.shape == total.operator.shape
    assert other.content_hash != total.content_hash
    with pytest.raises(ValueError, match="that of the one before"):
        total.with_operator(bk.Identity(4))
    assert total.to("cpu") is total


def test_the_hash_follows_an_update(rng):
    problem = random_problem(rng)
    before = problem.content_hash
    problem.operator.update(weights=rng.standard_normal(12))
    assert problem.content_hash != before
    total = LinearProblem(problem.operator + bk.Identity(problem.unknowns), problem.initial)
    before = total.content_hash
    problem.operator.update(weights=rng.standard_normal(12))
    assert total.content_hash != before


def test_pickles(rng):
    problem = random_problem(rng)
    copy = pickle.loads(pickle.dumps(problem))
    assert copy.content_hash == problem.content_hash
    assert evolve(copy, until=0.5).u.tobytes() == evolve(problem, until=0.5).u.tobytes()


@pytest.mark.parametrize(("ranks", "dtype"), [(1, "float64"), (3, "float32"), (3, "complex128")])
def test_on_ranks(rng, ranks, dtype):
    problem = random_problem(rng, dtype)
    expected = evolve(problem, until=0.5)

    def program(comm):
        part = distribute(problem, comm)
        weights = part.scatter(problem.quantities("mass")["mass"])
        result = evolve(part, until=0.5, watch={"mass": weights})
        return part.gather(result.u), result.watched["mass"].last, part.content_hash

    for u, mass, known in simulate(ranks, program):
        assert u.dtype == expected.u.dtype
        assert np.abs(u - expected.u).max() < 1e4 * np.finfo(dtype).eps * np.abs(expected.u).max()
        assert mass == pytest.approx(expected.u.sum().real, rel=1e-4)
        assert known == problem.content_hash


def test_other_operators_on_ranks(rng):
    A, B = rng.standard_normal((2, 4, 4))
    for whole in (bk.KroneckerSum([A, B]), bk.KroneckerProduct([A, B])):
        problem = LinearProblem(whole, rng.standard_normal((4, 4)), rng.standard_normal(16))
        expected = evolve(problem, **RUN).u

        def program(comm, problem=problem):
            part = distribute(problem, comm)
            return part.gather(evolve(part, **RUN).u)

        for found in simulate(2, program):
            assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()
    with pytest.raises(TypeError, match="a Identity, which cannot be distributed"):
        distribute(LinearProblem(bk.Identity(4), np.ones(4)), None)
    code = LinearProblem(whole, np.ones(16), lambda t: np.ones(16))
    with pytest.raises(TypeError, match="the source is a function"):
        distribute(code, None)


def test_parts_that_do_not_fit(rng):
    op, u0 = random_list(rng), rng.standard_normal(24)
    bad = np.where(np.arange(24) == 7, np.nan, u0)
    for error, text, options in [
        (TypeError, "expected an operator of batchkron", {"op": np.eye(24)}),
        (TypeError, "name is ''", {"name": ""}),
        (TypeError, "expected StepperSettings", {"stepper": "rk4"}),
        (ValueError, r"blocks is \(5, 5\); expected .* the product 24", {"blocks": (5, 5)}),
        (ValueError, "u0 is nan at 7", {"u0": bad}),
        (ValueError, r"the vector of source\[0\] is nan at 7", {"source": bad}),
        (ValueError, "the weights of 'm' is nan at 7", {"quantities": {"m": bad}}),
        (ValueError, "a quantity is named 'norm'", {"quantities": {"norm": u0}}),
        (TypeError, "the weights of 'm' are complex", {"quantities": {"m": 1j * u0}}),
        (TypeError, "levels has dtype float64", {"levels": [1.5]}),
        (ValueError, "cells has shape", {"cells": [1, 2]}),
        (ValueError, "t0", {"t0": np.inf}),
    ]:
        with pytest.raises(error, match=text):
            LinearProblem(**{"op": op, "u0": u0, **options})


def test_on_a_device():
    run_check("linear_problems", "on_a_device")


def test_the_right_hand_side_in_parts(rng, dtype):
    problem = random_problem(rng, dtype)
    split = problem.split_rhs()
    u, out, whole = (random_array(rng, 24, dtype) for _ in range(3))
    ((factor, product),) = split.products
    product(0.7, u, out)
    for function, vector in split.sources:
        out += np.dtype(dtype).type(function(0.7)) * vector
    problem.rhs(0.7, u, whole)
    assert factor is None
    assert np.abs(out - whole).max() <= 400 * np.finfo(dtype).eps * np.abs(whole).max()
    code = LinearProblem(problem.operator, u, lambda t: u)
    assert code.split_rhs() is None
    own = LinearProblem(problem.operator, u, [(lambda t: 2.0 * t if t < 1.0 else 3.0, u)])
    for given in (problem, own, LinearProblem(problem.operator, u, u)):
        for function, _ in given.split_rhs().sources:  # of many times at once, too
            times = np.array([0.25, 0.5, 1.5])
            assert function(times).tolist() == [function(t) for t in times]


def test_the_picture_of_a_state_is_that_of_the_output(rng):
    problem = LinearProblem(bk.KroneckerSum([np.eye(3), np.eye(2)]), np.ones(6))
    u = rng.normal(size=6)
    assert np.array_equal(problem.picture(u).values, problem.output.picture(u).values)
