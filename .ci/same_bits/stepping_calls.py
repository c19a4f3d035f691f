"""Calls of evolve with each time stepper."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from inputs import DTYPES, Call, Inputs

import batchkron as bk
from batchkron.problems import Problem, gallery
from batchkron.solvers import Event, Quantity, Result, evolve, steppers

# what each kind of method is run on: name, level, degree, a step with which it is stable
_TRANSPORT = ("continuity-2d", 3, 2, 0.005)
_DIFFUSION = ("diffusion-2d", 3, 2, 0.005)
_BOTH = ("advection-diffusion-2d", 3, 1, 0.005)
_STEADY = ("advection-1d", 4, 2, 0.002)
_EXPLICIT = (
    "forward-euler",
    "ssp-rk3",
    "rk4",
    "ssp-rk2",
    "ssp-rk43",
    "bogacki-shampine",
    "dormand-prince",
)
_IMEX = ("ark2", "ark3")
_SOLVERS = ("gmres", "cg", "bicgstab")


def calls() -> Iterator[Call]:
    """Yield the calls of time steppers."""
    for name in steppers.names():
        yield Call(f"evolve {name} equal steps", partial(_equal_steps, name))
        yield Call(f"evolve {name} resumed", partial(_resumed, name), anywhere=False)
        yield Call(f"evolve {name} observed", partial(_observed, name))
        if steppers.get(name).error_order:
            yield Call(f"evolve {name} chosen steps", partial(_chosen_steps, name))
        for dtype in DTYPES:
            made = partial(_foreign_problem, name, dtype)
            yield Call(f"evolve {name} foreign problem {dtype}", made, anywhere=False)
    for solver in _SOLVERS:
        for preconditioner in ("none", "auto", "kronecker-product"):
            made = partial(_solver, solver, preconditioner)
            yield Call(f"evolve crank-nicolson {solver} {preconditioner}", made, anywhere=False)
    for name in ("exponential-euler", "exponential-trapezoidal"):
        for solver in ("krylov", "kronecker", "auto"):
            made = partial(_exponential, name, solver)
            yield Call(f"evolve {name} {solver} KroneckerSum", made, anywhere=False)
    yield Call("evolve tableaus", _tableaus, anywhere=False)
    yield Call("evolve failures", _failures, anywhere=False)


def outcome(result: Result) -> Any:
    """Return all that a run found and counted; no time of the clock."""
    history = [
        {key: value for key, value in record.items() if key != "seconds"}
        for record in result.history
        if record["event"] in ("step", str(result.status))
    ]
    events = [(event.name, event.t, event.u) for event in result.events]
    watched = {name: [w.first, w.last, w.drift] for name, w in result.watched.items()}
    counts = [result.steps, result.rejected, result.dt, result.t, result.last_error]
    return result.u, str(result.status), counts, history, result.samples, events, watched


def _problem(given: Inputs, name: str) -> tuple[Problem, float, dict[str, Any]]:
    """Return a problem for a method, on the device, a step, and options."""
    chosen = _TRANSPORT if name in _EXPLICIT else _BOTH if name in _IMEX else _DIFFUSION
    problem, level, degree, dt = chosen
    implicit = name not in _EXPLICIT and not name.startswith("exponential")
    options = {"preconditioner": "combination"} if implicit and given.device == "cpu" else {}
    return given.place(gallery.make(problem, level, degree)), dt, options


def _equal_steps(name: str, given: Inputs) -> Any:
    """Take a few steps, with and without a preconditioner, and with boundary data."""
    problem, dt, options = _problem(given, name)
    results = [
        evolve(problem, until=4.5 * dt, method=name, dt=dt, **more) for more in ({}, options)
    ]
    if name != "forward-euler":
        other = given.place(gallery.make(*_STEADY[:3]))
        step = _STEADY[3]
        results.append(evolve(other, until=3 * step, method=name, dt=step, allow_unstable=True))
    return [outcome(result) for result in results]


def _chosen_steps(name: str, given: Inputs) -> Any:
    """Choose steps by their errors, with several tolerances."""
    problem, _, options = _problem(given, name)
    results = []
    for tolerance in ({"rtol": 1e-3}, {"rtol": 1e-5, "atol": 1e-6}, {"atol": 1e-4, "dt": 0.1}):
        results.append(evolve(problem, until=0.1, method=name, **tolerance, **options))
    return [outcome(result) for result in results]


def _resumed(name: str, given: Inputs) -> Any:
    """Go on from a run's checkpoint."""
    problem, dt, options = _problem(given, name)
    results = []
    choices = [{"dt": dt}, {"rtol": 1e-4}] if steppers.get(name).error_order else [{"dt": dt}]
    for steps in choices:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "checkpoint.h5"
            kept = {"checkpoint": path, "checkpoint_every": 2}
            results.append(evolve(problem, until=4 * dt, method=name, **kept, **steps, **options))
            more = {} if "dt" in steps else steps
            results.append(evolve(problem, until=8 * dt, resume=path, **more, **options))
    return [outcome(result) for result in results]


def _observed(name: str, given: Inputs) -> Any:
    """Record states between steps, events, watched quantities."""
    problem, dt, _ = _problem(given, name)
    size = float(abs(problem.initial).max())
    event = Event(lambda t, u: float(t) - 2.3 * dt, "time")
    height = Event(lambda t, u: float(abs(u).max()) - 0.99 * size, "height", direction=-1)
    result = evolve(
        problem,
        until=5 * dt,
        method=name,
        dt=dt,
        at=[0.0, 0.7 * dt, 3 * dt, 4.9 * dt],
        events=[event, height],
        watch={"sum": Quantity(np.ones(problem.unknowns))},
    )
    ended = Event(lambda t, u: float(t) - 1.4 * dt, "end", terminal=True)
    return outcome(result), outcome(evolve(problem, until=3 * dt, method=name, dt=dt, events=ended))


class _Linear:
    """The system u' = A u + cos(t) v in any dtype."""

    is_linear = True

    def __init__(self, operator: Any, initial: Any, source: Any) -> None:
        self.operator, self.initial, self._source = operator, initial, source

    def rhs(self, t: float, u: Any, out: Any) -> None:
        self.operator.matvec(u, out)
        out += self._source * out.real.dtype.type(np.cos(t))


def _foreign_problem(name: str, dtype: str, given: Inputs) -> Any:
    """Solve for an object with a right-hand side and an operator."""
    factors = [-given.definite(n, dtype) for n in (3, 4)]
    initial, source = given.host(12, dtype=dtype), given.host(12, dtype=dtype)
    problem = _Linear(bk.KroneckerSum(factors), initial, source)
    results = [evolve(problem, until=0.1, method=name, dt=0.02)]
    if steppers.get(name).error_order:
        results.append(evolve(problem, until=0.3, method=name, rtol=1e-3))
    if name in (*_EXPLICIT, *_IMEX):
        results.append(evolve(_nonlinear(problem), until=0.1, method=name, dt=0.01))
    return [outcome(result) for result in results]


def _nonlinear(problem: _Linear) -> Any:
    """Return u' = A u - u², of which A is the implicit part."""

    def rhs(t: float, u: Any, out: Any) -> None:
        problem.operator.matvec(u, out)
        out -= u * u

    return SimpleNamespace(initial=problem.initial, rhs=rhs, implicit_operator=problem.operator)


def _solver(solver: str, preconditioner: str, given: Inputs) -> Any:
    problem = gallery.make("diffusion-2d-neumann", 3, 1)
    options = {"solver": {"name": solver, "rtol": 1e-8}, "preconditioner": preconditioner}
    result = evolve(problem, until=0.02, method="crank-nicolson", dt=0.005, **options)
    return outcome(result)


def _exponential(name: str, solver: str, given: Inputs) -> Any:
    factors = [-20 * given.definite(n) for n in (3, 4, 5)]
    problem = _Linear(bk.KroneckerSum(factors), given.host(60), given.host(60))
    return outcome(evolve(problem, until=0.5, method=name, dt=0.1, solver=solver))


def _tableaus(given: Inputs) -> Any:
    """Take methods given as tableaus."""
    problem, results = gallery.make("advection-1d", 3, 1), []
    for tableau in steppers.TABLEAUS:
        results.append(
            (tableau.name, outcome(evolve(problem, until=0.01, method=tableau, dt=0.002)))
        )
    return results


def _failures(given: Inputs) -> Any:
    """End as unstable, not finite, out of tolerance, or with a solve that fails."""
    problem = gallery.make("advection-1d", 4, 2)
    results = [evolve(problem, until=50.0, method="rk4", dt=0.5, allow_unstable=True)]
    watch = {"sum": Quantity(np.ones(problem.unknowns), 1e-9)}
    results.append(evolve(problem, until=0.1, method="rk4", dt=0.002, watch=watch))
    explosion = SimpleNamespace(
        initial=np.ones(3), rhs=lambda t, u, out: np.multiply(u, u, out=out)
    )
    results.append(evolve(explosion, until=2.0, method="dormand-prince", rtol=1e-6))
    results.append(evolve(explosion, until=2.0, method="rk4", dt=0.1))
    solver = {"name": "gmres", "rtol": 1e-12, "maxiter": 1, "restart": 2}
    results.append(evolve(problem, until=1.0, method="backward-euler", dt=0.5, solver=solver))
    return [(str(r.status), r.steps, r.t, np.nan_to_num(r.u)) for r in results]
