"""Calls of the gallery, of PDEs of one's own, of problem files, grids and functions of time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from inputs import Call, Inputs, title
from scipy.sparse import csr_array

from batchkron.operators import on_device
from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Inflow,
    Mixed,
    ModeOperator,
    Neumann,
    NoFlux,
    Problem,
    Separable,
    SparseGrid,
    div,
    gallery,
    grad,
    laplacian,
    load_asgard,
    load_checkpoint,
    load_problem,
    load_result,
    mass,
    penalty,
    save_problem,
    time,
)

_DATA = Path(__file__).parents[2] / "tests" / "data"
X, Y, Z = Axis("x", -1, 1), Axis("y", 0, 2), Axis("z", 0, 1)


def calls() -> Iterator[Call]:
    """Yield the calls of problems."""
    for name in gallery.names():
        yield Call(f"problem {name} right-hand side", partial(_right_hand_side, name))
        for run in (_content, _matrices, _forms, _errors, _other_grids):
            yield Call(f"problem {name} {title(run)}", partial(run, name), anywhere=False)
    for name in _PDES:
        for degree in (0, 1, 2, 4):
            made = partial(_own, name, degree)
            yield Call(f"PDE {name} degree {degree}", made, anywhere=False)
    yield Call("problem file", _file, anywhere=False)
    yield Call("files of an earlier version", _earlier_files, anywhere=False)
    for path in (
        "layout090_continuity_2d_adaptive",
        "layout2024_diffusion_2_step20",
        "layout090_bgk",
    ):
        yield Call(f"load_asgard {path}", partial(_asgard, path), anywhere=False)
    yield Call("functions of time", _functions_of_time, anywhere=False)
    yield Call("ModeOperator", _mode_operators, anywhere=False)
    yield Call("SparseGrid", _grids, anywhere=False)


def _made(name: str, **options: Any) -> Problem:
    dimensions = gallery.get(name).make(1, 0).grid.dimensions
    level, degree = {1: (5, 2), 2: (4, 2), 3: (3, 1), 4: (2, 1), 6: (2, 1)}[dimensions]
    return gallery.make(name, level, degree, **options)


def _state(given: Inputs, problem: Problem) -> Any:
    u = on_device(given.host(problem.unknowns), problem.device)
    # fields divide by densities, which have to be positive
    return problem.initial * (1 + 1e-3 * u) if problem.has_fields else u


def _values(problem: Problem, u: Any) -> Any:
    """Return the right-hand side and its parts, at two times."""
    results = []
    for t in (problem.t0, problem.t0 + 0.3):
        for method in (problem.rhs, problem.accumulate):
            out = u + 1
            method(t, u, out)
            results.append(out)
        for source in (problem.source, problem.implicit_source):
            out = u + 1
            source(t, out)
            results.append(out)
        if not problem.has_fields:
            for operator in (problem.operator_at(t), problem.implicit_operator_at(t)):
                results += [operator @ u, operator.T @ u]
        elif problem.form in ("auto", "sweep"):
            for part in (problem.whole_part(), problem.implicit_part()):
                if part is not None:
                    part.follow(t, u)
                    results.append(part.operator @ u)
    return results


def _right_hand_side(name: str, given: Inputs) -> Any:
    problem = given.place(_made(name))
    return problem.initial, _values(problem, _state(given, problem))


def _content(name: str, given: Inputs) -> Any:
    problem = _made(name)
    stepper = problem.stepper
    return problem.content_hash, problem.unknowns, stepper.method, stepper.dt, stepper.until


def _matrices(name: str, given: Inputs) -> Any:
    """Return the 1-D operators, and the diagonal of the whole one."""
    problem = _made(name)
    results: list[Any] = [problem.grid.cells, [term.time(0.2) for term in problem.terms]]
    for term in problem.terms:
        for factor in term.modes:
            if isinstance(factor, ModeOperator):
                results.append((factor.rows, factor.columns, factor.blocks))
            else:
                results.append(None if factor is None else factor.field.text())
    if not problem.has_fields:
        results.append(problem.operator_at(0.1).diagonal())
    return [*results, [s.factors for s in problem.sources]]


def _forms(name: str, given: Inputs) -> Any:
    """Apply the operator as sweeps, as a batch list, and dense."""
    problem = _made(name)
    u = _state(given, problem)
    forms = ("sweep", "batch", "dense") if problem.unknowns < 2000 else ("sweep",)
    return [_values(problem.with_form(form), u) for form in forms]


def _errors(name: str, given: Inputs) -> Any:
    """Return quantities, the exact solution, errors against it, values at points."""
    problem = _made(name)
    u, results = _state(given, problem), []
    for t in (problem.t0, problem.t0 + 0.2):
        results += [measure(t, u) for measure in problem.quantities().values()]
        if problem.exact is not None:
            results += [problem.exact_coefficients(t), problem.l2_norm_exact(t)]
            results += [problem.l2_error(u, t), problem.relative_error(problem.initial, t)]
    ends = np.array([(axis.lower, axis.upper) for axis in problem.axes])
    share = np.linspace(0.03, 0.97, 7)[:, None] ** np.arange(1, len(ends) + 1)
    return [*results, problem.evaluate(u, ends[:, 0] + share * (ends[:, 1] - ends[:, 0]))]


def _other_grids(name: str, given: Inputs) -> Any:
    """Take a full grid, and a part of the sparse one."""
    dimensions = _made(name).grid.dimensions
    level = 2 if dimensions < 5 else 1
    full = gallery.make(name, level, 1, "full")
    sparse = gallery.make(name, level + 1, 1)
    cells = sparse.grid.cells
    coarser = sparse.on_grid(SparseGrid.custom(cells[cells.max(axis=1) < 4], sparse.grid.levels))
    return [_values(problem, _state(given, problem)) for problem in (full, coarser)]


def _sine(s: Any) -> Any:
    return np.sin(np.pi * s)


def _hill(s: Any) -> Any:
    return 2 + _sine(s)


def _wave() -> Separable:
    return Separable(x=_sine, y=lambda s: np.exp(-s), t=time.cos(3.0))


def _channel() -> PDE:
    """Return transport, diffusion and decay, periodic in x, with data at the walls."""
    terms = [div(X, -1, others={Y: lambda s: s * (2 - s)}), laplacian([X, Y], 0.05), -mass(X)]
    walls = (Dirichlet("from exact"), Neumann("from exact"))
    boundary = {X: "periodic", Y: walls}
    return PDE([X, Y], terms, boundary=boundary, exact=_wave(), sources="from exact")


def _mixed_derivatives() -> PDE:
    both = -0.5 * div(X) @ grad(Y), -0.5 * div(Y) @ grad(X)
    initial = Separable(x=_sine, y=_sine)
    return PDE([X, Y], [*laplacian([X, Y]), *both], boundary=Dirichlet(0.0), initial=initial)


def _in_time() -> PDE:
    """Return a PDE with coefficients that change in time, and fluxes of several kinds."""
    terms = [
        div(X, lambda s: 1 + s**2, flux="central", time=time.cos(2.0)),
        div(Y, -1.0, boundary=Inflow(1.0)),
        penalty(X, 0.1),
        div(Y, 0.1, time=time.exp(-1.0)) @ grad(Y, lambda s: 1 + s),
    ]
    boundary = {X: "periodic", Y: Dirichlet(0.0)}
    return PDE([X, Y], terms, boundary=boundary, initial=_wave(), sources=[_wave()], t0=0.1)


def _in_space() -> PDE:
    """Return a PDE with three axes, a volume element, walls."""
    initial = Separable(x=_sine, y=lambda s: 1 + s, z=_sine)
    terms = [div(X, -0.5), laplacian(Y, lambda s: 1 + s), mass(X, _hill) @ div(Z) @ grad(Z)]
    boundary = {X: "periodic", Y: NoFlux(), Z: (Neumann(0.0), Dirichlet(1.0))}
    volume = {Y: lambda s: 1 + s**2}
    return PDE([X, Y, Z], terms, boundary=boundary, initial=initial, volume=volume)


def _function() -> PDE:
    """Return a PDE whose exact solution is a function, not a sum of products."""
    terms = [laplacian([X, Y], 0.1)]
    boundary = {X: "periodic", Y: Dirichlet(0.0)}
    return PDE([X, Y], terms, boundary=boundary, exact=_solution)


def _solution(x: Any, y: Any, t: float) -> Any:
    return np.exp(-t) * np.sin(np.pi * x) * np.sin(np.pi * y / 2) ** 2


_PDES = {
    "channel": _channel,
    "mixed derivatives": _mixed_derivatives,
    "in time": _in_time,
    "in space": _in_space,
    "exact function": _function,
}


def _own(name: str, degree: int, given: Inputs) -> Any:
    pde, results = _PDES[name](), []
    grids: list[Any] = ["sparse", "full"]
    if len(pde.axes) == 3:
        grids.append(Mixed(["x"], ["y", "z"]))
    for grid in grids:
        problem = pde.discretize(2, degree, grid)
        u = _state(given, problem)
        results.append([problem.content_hash, problem.initial, _values(problem, u)])
        if problem.exact is not None:
            results.append([problem.l2_error(u, 0.2), problem.exact_coefficients(0.2)])
    return results


def _file(given: Inputs) -> Any:
    """Save and load problems, with trust and without."""
    results = []
    names = ("continuity-3d", "runaway-collisions", "pitch-angle-c", "advection-diffusion-2d")
    for number, name in enumerate(names):
        problem = _made(name)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "problem.h5"
            save_problem(path, problem)
            loaded = load_problem(path, trusted=number > 0)
        results.append([loaded.content_hash, _values(loaded, _state(given, loaded))])
        results.append(loaded.relative_error(loaded.initial, 0.1))
    return results


def _earlier_files(given: Inputs) -> Any:
    """Load files that an earlier version wrote."""
    folder = _DATA / "files_of_4988497"
    problem = load_problem(folder / "problem.h5", trusted=True)
    result = load_result(folder / "result.h5", trusted=True)
    checkpoint = load_checkpoint(folder / "checkpoint.h5", trusted=True)
    contents = [(state.u, state.problem_hash, state.method) for state in (result, checkpoint)]
    return problem.content_hash, _values(problem, _state(given, problem)), contents


def _asgard(name: str, given: Inputs) -> Any:
    state = load_asgard(_DATA / "asgard" / f"{name}.h5", trusted=True)
    fields = [(field.name, field.coefficients) for field in (state, *state.fields)]
    return state.layout, state.time, state.grid.cells, fields


def _functions_of_time(given: Inputs) -> Any:
    table = time.spline(np.linspace(-1, 3, 12), given.host(12))
    parts = [time.constant(2.5), time.polynomial([1.0, -2.0, 0.5]), time.sin(2.0, 0.3)]
    parts += [time.cos(3.0), time.exp(-0.7), table]
    parts += [parts[1] * parts[2], parts[3] + 2 * parts[4], -table * parts[1] - parts[2]]
    t, results = np.linspace(-0.9, 2.9, 40), []
    for function in parts:
        again = time.from_json(function.to_json())
        slope = function.derivative()
        results += [function(t), function(0.3), slope(t), slope.derivative()(t), again(t)]
        results.append(str(function.to_json()))
    return results


def _mode_operators(given: Inputs) -> Any:
    """Make 1-D operators from dense and sparse matrices in both bases."""
    nodal, results = given.host(24, 24), []
    tridiagonal = csr_array(nodal * (np.abs(np.subtract.outer(range(24), range(24))) < 4))
    made = [
        ModeOperator.from_dense(nodal, 3),
        ModeOperator.from_nodal(tridiagonal, 2),
        ModeOperator.from_sparse(tridiagonal, 3),
        ModeOperator.identity(4, 2),
    ]
    for operator in made:
        x = given.host(operator.size)
        results += [operator.rows, operator.columns, operator.blocks, operator.multiply(x)]
        results += [operator.to_dense(), operator.transpose().multiply(x)]
    return results


def _grids(given: Inputs) -> Any:
    grids = [SparseGrid.sparse([4]), SparseGrid.sparse([3, 5]), SparseGrid.full([2, 1, 3])]
    grids += [SparseGrid.sparse([2, 3, 2, 1]), SparseGrid.sparse([2] * 6)]
    grids.append(SparseGrid.product(SparseGrid.sparse([2, 2]), SparseGrid.full([1])))
    grids.append(SparseGrid.custom([[0, 0], [5, 1], [2, 3]], [3, 2]).closed())
    return [(grid.cells, grid.cell_levels, grid.level_sets, grid.levels) for grid in grids]
