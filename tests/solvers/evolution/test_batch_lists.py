"""Runs of batch lists that are numbers alone, against the problems that they came from."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from raw_lists import as_raw

import batchkron as bk
from batchkron.problems import gallery
from batchkron.solvers import EvolveStatus, PreconditionerWarning, evolve


def of_raw_list(problem, A=None):
    """A problem of a raw list, with the initial state and the source of another problem."""
    if A is None:
        A = as_raw(problem.with_form("batch").operator)
    added = np.empty_like(problem.initial)

    def rhs(t, u, out):
        A.matvec(u, out=out)
        problem.source(t, added)
        out += added

    return SimpleNamespace(initial=problem.initial, operator=A, rhs=rhs, is_linear=True)


def iterations(result):
    assert result.status is EvolveStatus.COMPLETED
    return max(record.get("iterations", 0) for record in result.history)


@pytest.mark.parametrize(("name", "level"), [("diffusion-2d", 5), ("diffusion-3d", 4)])
def test_implicit_steps_of_a_raw_list_take_few_iterations(name, level):
    problem = gallery.make(name, level=level)
    dt = problem.stepper.dt
    options = {"until": 2 * dt, "dt": dt, "method": "backward-euler", "preconditioner": "auto"}
    ours = evolve(problem, **options)
    raw = evolve(of_raw_list(problem), **options)
    assert iterations(raw) <= 10
    np.testing.assert_allclose(raw.u, ours.u, rtol=0, atol=1e-11 * np.abs(ours.u).max())


@pytest.mark.parametrize("name", ["diffusion-2d", "continuity-2d", "runaway", "two-stream"])
@pytest.mark.parametrize("method", ["rk4", "crank-nicolson"])
def test_states_of_raw_lists_are_those_of_the_problem(name, method):
    problem = gallery.make(name, level=2, degree=1)
    if name == "two-stream":
        problem = problem.frozen(problem.initial)
    dt = {"rk4": 1e-5, "crank-nicolson": 1e-2}[method]
    options = {"until": 5 * dt, "dt": dt, "method": method}
    if method != "rk4":
        options.update(preconditioner="auto", solver={"name": "gmres", "rtol": 1e-12})
    ours, raw = evolve(problem, **options), evolve(of_raw_list(problem), **options)
    np.testing.assert_allclose(raw.u, ours.u, rtol=0, atol=1e-11 * np.abs(ours.u).max())


def test_a_list_without_terms_has_block_jacobi_and_a_warning(rng):
    problem = gallery.make("diffusion-2d", level=4)
    A = as_raw(problem.with_form("batch").operator)
    A.update(weights=1.0 + 0.1 * rng.random(A.num_products))
    options = {"until": 0.002, "dt": 0.001, "method": "backward-euler"}
    plain = evolve(of_raw_list(problem, A), **options)
    with pytest.warns(PreconditionerWarning, match="'block-jacobi' here") as seen:
        result = evolve(of_raw_list(problem, A), preconditioner="auto", **options)
    assert len(seen) == 1
    assert iterations(result) < 0.8 * iterations(plain)
    np.testing.assert_allclose(result.u, plain.u, rtol=0, atol=1e-6 * np.abs(plain.u).max())
    with warnings.catch_warnings():  # once for each operator, also with steps of several sizes
        warnings.simplefilter("error")
        evolve(of_raw_list(problem, A), preconditioner="auto", **{**options, "dt": 0.0005})


def test_steps_of_a_raw_list_are_checked_and_chosen_as_those_of_its_problem():
    problem = gallery.make("diffusion-2d", level=4)
    raw = of_raw_list(problem)
    with pytest.raises(ValueError, match="rk4 is not stable with it: A has an eigenvalue"):
        evolve(raw, until=0.1, dt=0.01, method="rk4")
    ours = evolve(problem, until=1e-3, method="rk4")
    result = evolve(raw, until=1e-3, method="rk4")
    assert "at most 0.8 times the largest stable step of 'rk4'" in result.message
    assert result.steps == ours.steps
    np.testing.assert_allclose(result.u, ours.u, rtol=0, atol=1e-12 * np.abs(ours.u).max())
    raw.is_linear = False
    with pytest.raises(ValueError, match="dt is missing"):
        evolve(raw, until=1e-3, method="rk4")
    raw.is_linear = True
    with pytest.raises(ValueError, match="dt is missing"):
        evolve(raw, until=1e-3, method="backward-euler")
    with pytest.raises(ValueError, match="dt is missing"):
        evolve(raw, until=0.0, method="rk4")


@pytest.mark.parametrize("plan", ["direct", "factored"])
def test_a_sum_with_a_list_resumes_whatever_is_known_of_the_list(tmp_path, plan):
    problem = gallery.make("diffusion-2d", level=3)

    def shifted():
        raw = as_raw(problem.with_form("batch").operator)
        return raw.plan(plan) - bk.Identity(raw.shape[0])

    options = {"u0": problem.initial, "until": 0.004, "dt": 0.001, "method": "backward-euler"}
    options["preconditioner"] = "auto"  # finds the terms of the list as the run begins
    whole = evolve(shifted(), **options)
    path = tmp_path / "c.h5"
    evolve(shifted(), checkpoint=path, callback=lambda step: step.step == 2, **options)
    rest = evolve(shifted(), resume=path, **options)
    np.testing.assert_array_equal(rest.u, whole.u)


@pytest.mark.parametrize("form", ["alone", "in a sum"])
def test_stiff_steps_of_a_raw_list_are_those_of_its_problem_by_default(form):
    """Whatever has been asked of the list before."""
    problem = gallery.make("diffusion-2d", level=4)
    raw = as_raw(problem.with_form("batch").operator)
    A = raw if form == "alone" else raw + 0 * bk.Identity(raw.shape[0])
    dt = 5 * problem.stepper.dt
    options = {"until": 2 * dt, "dt": dt, "method": "backward-euler"}
    ours, first = evolve(problem, **options), evolve(of_raw_list(problem, A), **options)
    assert iterations(first) <= iterations(ours) <= 10
    raw.recover_terms()
    assert evolve(of_raw_list(problem, A), **options).u.tobytes() == first.u.tobytes()
    none = evolve(of_raw_list(problem, A), preconditioner="none", **options)
    np.testing.assert_allclose(first.u, none.u, rtol=0, atol=1e-6 * np.abs(none.u).max())


def test_terms_are_looked_for_in_stiff_steps_only(monkeypatch):
    problem = gallery.make("diffusion-2d", level=3)
    raw = as_raw(problem.with_form("batch").operator)
    monkeypatch.setattr(bk.BatchedKron, "recover_terms", lambda _: pytest.fail("looked for"))
    evolve(of_raw_list(problem, raw), until=2e-6, dt=1e-6, method="backward-euler")
