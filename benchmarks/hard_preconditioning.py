"""GMRES on hard equations: counts for each preconditioner, and times beside SciPy's ILU and LU.

``python -m benchmarks.preconditioners --hard`` prints the counts, ``--peers`` the times.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, eye_array
from scipy.sparse.linalg import LinearOperator, spilu, splu

import batchkron as bk
from batchkron.problems import PDE, Problem
from batchkron.solvers import gmres, preconditioners
from batchkron.solvers.preconditioners import CombinationPreconditioner
from benchmarks import hard_equations as equations
from benchmarks.core.tables import duration, head, row

RTOL, RESTART, MAX_ITERATIONS = 1e-6, 50, 400
STEPS = 10  # implicit steps that are timed


class Case(NamedTuple):
    """A problem with its name, and the c of I - c A."""

    name: str
    level: int
    c: float
    problem: Callable[[], Problem]


def _on(name: str, pde: PDE, level: int, c: float = 1.0, grid: Any = "sparse") -> Case:
    if isinstance(grid, str):
        return Case(name, level, c, lambda: pde.discretize(level=level, degree=2, grid=grid))
    return Case(name, level, c, lambda: pde.discretize(grid=grid, degree=2))


def cases() -> Iterator[Case]:
    """Yield the rows of the table of counts."""
    two = {
        "sin8": equations.sin8(),
        "bump 100": equations.bump(),
        "bump 10⁴": equations.bump(1e4),
        "box": equations.box(),
        "oblique": equations.oblique(),
    }
    for name, pde in two.items():
        yield from (_on(name, pde, level) for level in (4, 5, 6))
    for c in (0.1, 1.0):
        yield from (_on("wind", equations.wind(), level, c) for level in (4, 5, 6))
    for level in (3, 4, 5):
        yield _on("bump 100, full grid", equations.bump(), level, grid="full")
    for dimensions, level in ((3, 4), (4, 3)):
        for name, build in (
            ("sin8", equations.sin8),
            ("box", equations.box),
            ("oblique", equations.oblique),
            ("bump 100", lambda d: equations.bump(100.0, d)),
            ("bump 10⁴", lambda d: equations.bump(1e4, d)),
        ):
            yield _on(f"{name}, {dimensions}-D", build(dimensions), level)
    yield from (_on("wind, 3-D", equations.wind(3), level) for level in (3, 4))
    for shape in equations.SHAPES:
        grid = equations.adapted_grid(shape, 6, 5e-4)
        for name, pde in (("diffusion", equations.diffusion()), ("bump 100", equations.bump())):
            yield from (_on(f"{name}, adapted: {shape}", pde, 6, c, grid) for c in (1.0, 0.005))
    for amplitude in (1e-12, 1e-9, 1e-6, 1e-3):
        yield _on(f"bump {amplitude:g}", equations.bump(amplitude), 5)


def large_cases() -> Iterator[Case]:
    """Yield the rows of the table of finer grids, of which `auto` alone is counted."""
    for level in (7, 8):
        for name, pde in (
            ("sin8", equations.sin8()),
            ("bump 100", equations.bump()),
            ("bump 10⁴", equations.bump(1e4)),
            ("box", equations.box()),
            ("oblique", equations.oblique()),
            ("wind", equations.wind()),
        ):
            yield _on(name, pde, level)
    for dimensions, level in ((3, 5), (4, 4)):
        for name, build in (
            ("sin8", equations.sin8),
            ("bump 100", lambda d: equations.bump(100.0, d)),
            ("box", equations.box),
            ("oblique", equations.oblique),
        ):
            yield _on(f"{name}, {dimensions}-D", build(dimensions), level)


CANDIDATES: dict[str, dict[str, Any]] = {
    "additive": {"local": "factorised"},
    "multiplicative": {"local": "factorised", "composition": "multiplicative"},
    "symmetric": {"local": "factorised", "composition": "symmetric"},
    "eigenvectors": {"composition": "symmetric"},
}


def solved(problem: Problem, c: float, M: Any) -> tuple[int | None, int | None]:
    """Return GMRES's iterations, and its products with A and those of M; None beyond 400."""
    A, b = problem.operator, np.random.default_rng(0).standard_normal(problem.unknowns)
    B = bk.Identity(problem.unknowns) - c * A
    result = gmres(B, b, M=M, rtol=RTOL, restart=RESTART, maxiter=MAX_ITERATIONS // RESTART)
    if not result.converged:
        return None, None
    inside = max(0, len(getattr(M, "order", ())) - 1)
    products = result.applications + inside * result.preconditioner_applications
    return result.iterations, products


def print_counts(most: int, only: str = "") -> list[dict[str, Any]]:
    """Print the table of iterations and products, and return its figures.

    Levels are at most ``most``, and names of equations have ``only`` in them.
    """
    names = ["auto", *CANDIDATES, "block Jacobi"]
    print("GMRES(50), ‖b - B x‖ ≤ 1e-6 ‖b‖, B = I - c A; iterations / products with A")
    print(head(["equation", "c", "level", "unknowns", *names, "numbers", "auto is"]))
    found = []
    for case in cases():
        if case.level > most or only not in case.name:
            continue
        problem = case.problem()
        A, cells = problem.operator, []
        M = preconditioners.make("auto", A, case.c)
        others = [
            CombinationPreconditioner(A, case.c, **options) for options in CANDIDATES.values()
        ]
        counts = [
            solved(problem, case.c, own)
            for own in (M, *others, preconditioners.block_jacobi(A, case.c))
        ]
        for iterations, products in counts:
            cells.append(
                f"> {MAX_ITERATIONS}" if iterations is None else f"{iterations} / {products}"
            )
        numbers, way = _memory(M, A), M.describe().splitlines()[1].strip()
        line = [case.name, case.c, case.level, problem.unknowns, *cells, numbers, way]
        print(row(line), flush=True)
        keys = ["equation", "c", "level", "unknowns", *names, "numbers", "auto is"]
        found.append(dict(zip(keys, line, strict=True)))
    return found


def print_large(most: int, only: str = "") -> list[dict[str, Any]]:
    """Print the table of `auto` on finer grids, and return its figures; arguments as above."""
    keys = ["equation", "c", "level", "unknowns", "auto", "numbers", "auto is"]
    print("GMRES(50), ‖b - B x‖ ≤ 1e-6 ‖b‖, B = I - c A; iterations / products with A")
    print(head(keys))
    found = []
    for case in large_cases():
        if case.level > most or only not in case.name:
            continue
        problem = case.problem()
        M = preconditioners.make("auto", problem.operator, case.c)
        iterations, products = solved(problem, case.c, M)
        count = f"> {MAX_ITERATIONS}" if iterations is None else f"{iterations} / {products}"
        numbers = getattr(M, "numbers", 0)
        way = M.describe().splitlines()[1].strip()
        line = [case.name, case.c, case.level, problem.unknowns, count, numbers, way]
        print(row(line), flush=True)
        found.append(dict(zip(keys, line, strict=True)))
    return found


def _memory(M: Any, A: Any) -> str:
    """Return M's numbers relative to those of the assembled operator."""
    if not getattr(M, "keeps_factors", False):
        return "–"
    stored = preconditioners.factorised.stored_numbers(A.kronecker_terms())
    return f"{M.numbers / stored:.2f}"


def print_times() -> list[dict[str, Any]]:
    """Print the processor seconds of set-up and ten implicit steps beside SciPy's, one thread."""
    print(f"{STEPS} steps (I - c A) u⁺ = u with c = 1, to 1e-6; processor time, one thread")
    print(
        head(
            ["equation", "level", "unknowns", "solver", "set-up", "steps", "iterations", "numbers"]
        )
    )
    found = []
    for name, level, pde in (
        ("bump 100", 7, equations.bump()),
        ("bump 100, 3-D", 4, equations.bump(100.0, 3)),
    ):
        problem = pde.discretize(level=level, degree=2)
        B = assembled(problem)
        for solver, make in SOLVERS.items():
            setup, step, iterations, numbers = _timed(make, problem, B)
            line = [name, level, problem.unknowns, solver, duration(setup), duration(step)]
            print(row([*line, iterations, numbers]), flush=True)
            found.append(
                {"equation": name, "level": level, "solver": solver, "setup": setup}
                | {"steps": step, "iterations": iterations, "numbers": numbers}
            )
    return found


def assembled(problem: Problem) -> csr_matrix:
    """Return I - A as a sparse matrix."""
    A = problem.operator.to_dense()
    A[np.abs(A) <= 1e-13 * np.abs(A).max()] = 0.0
    return csr_matrix(eye_array(problem.unknowns) - csr_matrix(A))


def _timed(
    make: Callable[..., tuple[Any, Any, int]], problem: Problem, B: csr_matrix
) -> tuple[float, float, int, int]:
    """Return the seconds of set-up and of the steps, their iterations, and the numbers stored."""
    begin = time.process_time()
    product, M, numbers = make(problem, B)
    setup = time.process_time() - begin
    u = np.random.default_rng(0).standard_normal(problem.unknowns)
    iterations, begin = 0, time.process_time()
    for _ in range(STEPS):
        if product is None:
            u = M(u)
            continue
        result = gmres(product, u, M=M, rtol=RTOL, restart=RESTART, maxiter=8)
        assert result.converged
        u, iterations = result.x, iterations + result.iterations
    return setup, time.process_time() - begin, iterations, numbers


def _ours(problem: Problem, B: csr_matrix) -> tuple[Any, Any, int]:
    A = problem.operator
    M = preconditioners.make("auto", A, 1.0)
    return bk.Identity(problem.unknowns) - A, M, M.numbers


def _incomplete(problem: Problem, B: csr_matrix) -> tuple[Any, Any, int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        factors = spilu(csc_matrix(B), drop_tol=1e-3)
    M = LinearOperator(B.shape, matvec=factors.solve, dtype=np.float64)
    return B, M, factors.nnz


def _complete(problem: Problem, B: csr_matrix) -> tuple[Any, Any, int]:
    factors = splu(csc_matrix(B), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
    return None, factors.solve, factors.nnz


SOLVERS = {"auto": _ours, "spilu(1e-3)": _incomplete, "splu": _complete}
