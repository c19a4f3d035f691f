"""Preconditioners and time steppers with their vectors on a device, against the CPU."""

import warnings

import numpy as np
import pytest
from hard_problems import equations
from raw_lists import as_raw

import batchkron as bk
from batchkron.problems import PDE, Axis, Dirichlet, Neumann, gallery
from batchkron.problems.statement.terms import div, grad, mass
from batchkron.solvers import PreconditionerWarning, evolve, gmres, preconditioners, steppers

pytestmark = pytest.mark.gpu


def with_pitch():
    """A mode that is solved densely, with coefficients of p in front of an operator of z."""
    axes = p, z = [Axis("p", 0.5, 2), Axis("z", -1, 1)]
    terms = [
        div(p, -1.0, boundary=(Dirichlet(), Neumann())),
        mass(p, lambda s: 1 / s) @ div(z) @ mass(z, lambda s: 1 - s**2) @ grad(z),
    ]
    return PDE(axes, terms, boundary=Neumann(), initial=1.0)


@pytest.mark.parametrize("name", ["auto", "block-jacobi"])
@pytest.mark.parametrize("has_terms", [True, False])
def test_raw_lists_have_the_preconditioners_that_they_have_on_the_cpu(cupy, rng, name, has_terms):
    raw = as_raw(gallery.make("diffusion-2d", level=4).with_form("batch").operator)
    if not has_terms:
        raw.update(weights=1.0 + 0.1 * rng.random(raw.num_products))
    x = rng.standard_normal(raw.shape[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PreconditionerWarning)
        expected = preconditioners.make(name, raw, 1e-3).matvec(x)
        M = preconditioners.make(name, as_raw(raw).to("cuda"), 1e-3)
    out = cupy.full(x.size, np.nan)
    assert M.matvec(cupy.asarray(x), out=out) is out
    np.testing.assert_allclose(out.get(), expected, atol=1e-9 * np.abs(expected).max())


def hard(name):
    if name == "adapted":
        grid = equations.adapted_grid("front", 5, 2e-3)
        return equations.bump().discretize(grid=grid, degree=2)
    if name == "full":
        return equations.bump().discretize(level=4, degree=2, grid="full")
    return equations.wind().discretize(level=5, degree=2)


@pytest.mark.parametrize("name", ["sparse", "full", "adapted"])
def test_factorised_combinations_take_as_many_iterations_as_on_the_cpu(cupy, rng, name):
    problem, counts = hard(name), []
    b = rng.standard_normal(problem.unknowns)
    for on in (problem, problem.to("cuda")):
        A = on.operator
        M = preconditioners.make("auto", A, 0.1)
        assert "'factorised'" in M.describe()
        right = cupy.asarray(b) if on is not problem else b
        for c in (0.1, 0.15, 0.5):  # factors are kept, and replaced
            B = bk.Identity(A.shape[0]).to(A.device) - c * A
            result = gmres(B, right, M=M.shifted(c), rtol=1e-6)
            assert result.converged
            counts.append(result.iterations)
    assert max(counts) <= 32
    assert np.abs(np.subtract(counts[:3], counts[3:])).max() <= 1


@pytest.mark.parametrize("name", ["sparse", "full", "adapted"])
def test_factorised_combinations_are_captured_and_rescaled_in_place(cupy, rng, name):
    """GMRES's graphs contain products with M, also after M is that of another scale."""
    problem = hard(name)
    A, b = problem.to("cuda").operator, rng.standard_normal(problem.unknowns)
    M = preconditioners.make("factorised-combination", A, 0.1)
    assert M.capturable
    right = cupy.asarray(b)
    for c in (0.1, 0.15, 0.9, 0.1):  # the same factors, others, and the first ones again
        M.rescale(c)
        at = 0.1 if c == 0.15 else c
        alone = preconditioners.make("factorised-combination", problem.operator, at)
        for _ in range(3):  # plain, captured, repeated
            found = M.matvec(right).get()
            expected = alone.matvec(b)
            assert np.linalg.norm(found - expected) < 1e-8 * np.linalg.norm(expected)
        B = bk.Identity(A.shape[0]).to("cuda") - c * A
        for _ in range(3):
            result = gmres(B, right, rtol=1e-6, M=M, restart=50)
            assert result.converged
            assert result.iterations <= 32


@pytest.mark.parametrize("name", [n for n in preconditioners.names() if n != "none"])
@pytest.mark.parametrize("make", ["diffusion-2d", with_pitch])
@pytest.mark.parametrize("size", [(1, 1), (3, 2)])
def test_preconditioners_give_what_they_give_on_the_cpu(cupy, rng, name, make, size):
    level, degree = size
    if isinstance(make, str):
        problem = gallery.make(make, level=level, degree=degree)
    else:
        problem = make().discretize(level=level, degree=degree)
    x = rng.standard_normal(problem.unknowns)
    expected = preconditioners.make(name, problem.operator, 1e-3).matvec(x)
    M = preconditioners.make(name, problem.to("cuda").operator, 1e-3)
    out = cupy.full(x.size, np.nan)
    found = M.matvec(cupy.asarray(x), out=out)
    assert found is out
    np.testing.assert_allclose(out.get(), expected, atol=1e-9 * np.abs(expected).max())


def test_gmres_with_the_combination_technique(cupy, rng):
    problem = gallery.make("diffusion-2d", level=4).to("cuda")
    B = bk.Identity(problem.unknowns).to("cuda") - 0.005 * problem.operator
    b = cupy.asarray(rng.standard_normal(problem.unknowns))
    M = preconditioners.make("auto", problem.operator, 0.005)
    result = gmres(B, b, M=M, rtol=1e-6)
    assert result.converged
    assert result.iterations <= 15


@pytest.mark.parametrize("method", steppers.names())
def test_every_stepper_runs_as_on_the_cpu(cupy, method):
    problem = gallery.make("diffusion-1d", level=3)
    chooses = steppers.get(method).chooses_order
    options = {"until": 2e-4, "method": method, **({"rtol": 1e-8} if chooses else {"dt": 5e-5})}
    expected = evolve(problem, **options).u
    found = evolve(problem.to("cuda"), **options)
    np.testing.assert_allclose(found.u.get(), expected, atol=1e-7)


@pytest.mark.parametrize("name", ["diffusion-2d", "diffusion-3d", "relaxation-1x1v"])
@pytest.mark.parametrize("method", ["backward-euler", "crank-nicolson", "esdirk3", "ark3"])
def test_implicit_steps_with_the_preconditioner_of_the_run(cupy, name, method):
    problem = gallery.make(name, level=4, degree=1)
    dt = (2 if name == "relaxation-1x1v" else 20) * problem.stepper.dt
    options = {"until": 16 * dt, "method": method, "dt": dt, "solver": {"rtol": 1e-11}}
    expected, found = evolve(problem, **options), evolve(problem.to("cuda"), **options)
    assert found.status == expected.status
    np.testing.assert_allclose(found.u.get(), expected.u, atol=1e-6 * np.abs(expected.u).max())


def test_a_solve_is_one_graph_and_one_reading(cupy, monkeypatch):
    """Also after c has changed."""
    problem = gallery.make("diffusion-2d", level=4, degree=2)
    dt, asked, original = 20 * problem.stepper.dt, [], cupy.asnumpy
    pair = [
        steppers.get("esdirk3")(one, dt, preconditioner="auto")
        for one in (problem, problem.to("cuda"))
    ]
    states = [problem.initial.copy(), cupy.asarray(problem.initial)]
    outs = [np.empty_like(states[0]), cupy.empty_like(states[1])]
    recorder = None
    for k in range(24):
        asked.clear()
        for stepper, u, out in zip(pair, states, outs, strict=True):
            if stepper is pair[1]:
                monkeypatch.setattr(cupy, "asnumpy", lambda a: asked.append(1) or original(a))
            assert stepper.attempt(u, k * dt, (k + 1) * dt, dt * (1 + k // 16), out) is None
        monkeypatch.setattr(cupy, "asnumpy", original)
        np.testing.assert_allclose(outs[1].get(), outs[0], atol=1e-8 * np.abs(outs[0]).max())
        if k == 15:
            recorder = pair[1]._solver._solver._workspace._recordings.recorder
            assert len(asked) == 3
            assert any(key[0] == "cycle" for key in recorder._graphs)
    assert pair[1]._solver._solver._workspace._recordings.recorder is recorder


@pytest.mark.parametrize(
    "method", ["dormand-prince", "dop853", "rkc2", "esdirk3", "bdf", "exponential-trapezoidal"]
)
def test_chosen_steps_events_and_states_between_steps(cupy, method):
    problem = gallery.make("diffusion-1d", level=1)
    start = float(np.linalg.norm(problem.initial))

    def shrunk(t, u):
        return float(abs(u.dot(u)) ** 0.5) - 0.9 * start

    options = {"until": 0.02, "method": method, "rtol": 1e-4, "at": [0.001], "events": shrunk}
    if method in ("esdirk3", "bdf"):
        options["preconditioner"] = "auto"
    expected, found = evolve(problem, **options), evolve(problem.to("cuda"), **options)
    assert found.steps == expected.steps
    np.testing.assert_allclose(found.u.get(), expected.u, atol=1e-6)
    np.testing.assert_allclose(found.samples[0][1].get(), expected.samples[0][1], atol=1e-6)
    assert found.events[0].t == pytest.approx(expected.events[0].t, rel=1e-5)


def test_factorised_sums_and_phi_functions(cupy, rng):
    factors = [np.diag([-1.0, -3.0, -20.0]), -np.eye(2) - np.ones((2, 2))]
    host = bk.KroneckerSum(factors)
    device = host.to("cuda")
    b = rng.standard_normal(6)
    found = device.factorise().solve_shifted(cupy.asarray(b), [0.0, -1.0])
    np.testing.assert_allclose(found.get(), host.factorise().solve_shifted(b, [0.0, -1.0]))
    vectors = [rng.standard_normal(6) for _ in range(3)]
    phi = device.phi_apply([cupy.asarray(v) for v in vectors], 0.5)
    np.testing.assert_allclose(phi.get(), host.phi_apply(vectors, 0.5), rtol=1e-12)
    turned = bk.KroneckerSum([np.array([[1.0, 5.0], [0.0, 1.0]]), factors[0]])
    found = turned.to("cuda").factorise().solve_shifted(cupy.asarray(b), [0.5, -1.5])
    expected = turned.factorise().solve_shifted(b, [0.5, -1.5])
    np.testing.assert_allclose(found.get(), expected, rtol=1e-12, atol=1e-13)
