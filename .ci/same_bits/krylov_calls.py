"""Calls of the Krylov methods and of the preconditioners."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from inputs import DTYPES, Call, Inputs, title
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator

import batchkron as bk
from batchkron.problems import gallery
from batchkron.solvers import (
    Bicgstab,
    Cg,
    Fgmres,
    Gmres,
    KrylovResult,
    Minres,
    bicgstab,
    block_cg,
    block_gmres,
    cg,
    fgmres,
    gmres,
    minres,
    preconditioners,
)

_METHODS = {"cg": cg, "minres": minres, "bicgstab": bicgstab, "gmres": gmres, "fgmres": fgmres}
_WORKSPACES = {"cg": Cg, "minres": Minres, "bicgstab": Bicgstab, "gmres": Gmres, "fgmres": Fgmres}
_HERMITIAN = ("cg", "minres")
_SIZES = (5, 6, 7)
_N = 210
_NEED_CELLS = ("fibre-inverse", "block-jacobi")
_SUM_PRECONDITIONERS = [name for name in preconditioners.names() if name not in _NEED_CELLS]
_PROBLEMS = ("diffusion-2d", "diffusion-3d", "advection-diffusion-2d", "runaway-collisions")


def calls() -> Iterator[Call]:
    """Yield the calls of solvers."""
    for dtype in DTYPES:
        for name in _METHODS:
            for run in (_one_system, _many_systems, _many_operators, _workspace, _callbacks, _long):
                yield Call(f"{name} {title(run)} {dtype}", partial(run, name, dtype))
            for run in (_foreign_operators, _failures):
                made = partial(run, name, dtype)
                yield Call(f"{name} {title(run)} {dtype}", made, anywhere=False)
        yield Call(f"gmres restarts {dtype}", partial(_restarts, dtype))
        yield Call(f"fgmres changing preconditioner {dtype}", partial(_changing, dtype))
        yield Call(f"block_cg {dtype}", partial(_block, block_cg, dtype), anywhere=False)
        yield Call(f"block_gmres {dtype}", partial(_block, block_gmres, dtype), anywhere=False)
    for problem in _PROBLEMS:
        for kind in preconditioners.names():
            made = partial(_preconditioned, problem, kind)
            yield Call(f"preconditioner {kind} {problem}", made, anywhere=False)
    for dtype in DTYPES:
        for kind in _SUM_PRECONDITIONERS:
            made = partial(_preconditioned_sum, kind, dtype)
            yield Call(f"preconditioner {kind} KroneckerSum {dtype}", made, anywhere=False)
    yield Call("nearest_product, nearest_sum", _nearest, anywhere=False)


def outcome(result: KrylovResult) -> Any:
    """Return all that a solve found, counted and measured."""
    statuses = None if result.statuses is None else [str(s) for s in result.statuses.ravel()]
    counts = [result.iterations, result.restarts, result.applications]
    counts.append(result.preconditioner_applications)
    return (
        result.x,
        str(result.status),
        statuses,
        result.residual_norm,
        result.residual_norms,
        counts,
    )


def _tolerance(dtype: str) -> float:
    return 1e-9 if dtype in ("float64", "complex128") else 1e-4


def _factors(given: Inputs, name: str, dtype: str) -> list[Any]:
    """Return the factors of a sum that a method solves: Hermitian and positive definite, or not."""
    make = given.definite if name in _HERMITIAN else given.regular
    return [make(n, dtype) for n in _SIZES]


def _operator(given: Inputs, name: str, dtype: str) -> Any:
    return given.place(bk.KroneckerSum(_factors(given, name, dtype)))


def _jacobi(given: Inputs, operator: Any) -> Any:
    """Return the inverse of the diagonal, made positive."""
    inverse = (1 / abs(operator.diagonal())).astype(operator.dtype)
    return given.place(bk.Diagonal(inverse.get() if hasattr(inverse, "get") else inverse))


def _one_system(name: str, dtype: str, given: Inputs) -> Any:
    """Solve with and without M, x0, atol; ended by maxiter; b = 0."""
    solve, A, b = _METHODS[name], _operator(given, name, dtype), given.array(_N, dtype=dtype)
    M, rtol = _jacobi(given, A), _tolerance(dtype)
    guess = given.array(_N, dtype=dtype)
    results = [solve(A, b, rtol=rtol), solve(A, b, rtol=rtol, M=M), solve(A, b)]
    results += [solve(A, b, guess, rtol=rtol), solve(A, b, "Mb", rtol=rtol, M=M)]
    results += [solve(A, b, atol=0.5), solve(A, b[:, None], rtol=rtol), solve(A, 0 * b, guess)]
    results += [solve(A, 1e-30 * b, rtol=rtol), solve(A, b, rtol=rtol, maxiter=2)]
    composed = given.place(bk.Identity(_N, dtype)) + 0.5 * A
    return [outcome(result) for result in [*results, solve(composed, b, rtol=rtol)]]


def _many_systems(name: str, dtype: str, given: Inputs) -> Any:
    """Solve for many right-hand sides of one operator, in both layouts, of very different sizes."""
    solve, A = _METHODS[name], _operator(given, name, dtype)
    M, rtol = _jacobi(given, A), _tolerance(dtype)
    rows = given.array(2, 3, _N, dtype=dtype)
    rows[0, 1] *= 0
    rows[1, 1] *= 1e3
    columns = rows.reshape(6, _N).T
    results = [solve(A, rows, rtol=rtol, batched="leading", M=M if k else None) for k in range(2)]
    results.append(solve(A, columns, rtol=rtol, batched="columns"))
    results.append(solve(A, columns, columns, rtol=rtol, batched="columns", M=M, maxiter=3))
    return [outcome(result) for result in results]


def _many_operators(name: str, dtype: str, given: Inputs) -> Any:
    """Solve with an operator of its own for each right-hand side."""
    make = given.definite if name in _HERMITIAN else given.regular
    first = np.stack([(1 + 10 * k) * make(5, dtype) for k in range(4)])
    A = given.place(bk.KroneckerSum([first, make(6, dtype)]))
    b = given.array(4, 30, dtype=dtype)
    M = _jacobi(given, A)
    rtol = _tolerance(dtype)
    solve = _METHODS[name]
    results = [solve(A, b, rtol=rtol, batched="leading", M=other) for other in (None, M)]
    return [outcome(result) for result in results]


def _workspace(name: str, dtype: str, given: Inputs) -> Any:
    """Keep a workspace for several right-hand sides and operators."""
    A = _operator(given, name, dtype)
    solver = _WORKSPACES[name](A)
    rtol, b = _tolerance(dtype), given.array(3, _N, dtype=dtype)
    results = [outcome(solver(b[k], rtol=rtol)) for k in range(3)]
    other = _operator(given, name, dtype)
    results.append(outcome(solver.solve(other, b[0], rtol=rtol, M=_jacobi(given, other))))
    results.append(
        outcome(solver.solve(A, b[1], b[2], rtol=rtol, out=given.array(_N, dtype=dtype)))
    )
    return results


def _callbacks(name: str, dtype: str, given: Inputs) -> Any:
    """Return what callbacks see: iterates, or residuals of gmres and fgmres."""
    seen: list[Any] = []
    A, b = _operator(given, name, dtype), given.array(_N, dtype=dtype)
    options = [{}] if name in (*_HERMITIAN, "bicgstab") else [{}, {"callback_type": "x"}]
    for more in options:
        result = _METHODS[name](A, b, rtol=1e-3, callback=lambda x: seen.append(x.copy()), **more)
        seen.append(outcome(result))
    return seen


def _long(name: str, dtype: str, given: Inputs) -> Any:
    """Solve for vectors that several threads share."""
    make = given.definite if name in _HERMITIAN else given.regular
    A, b = bk.KroneckerSum([make(n, dtype) for n in (40, 41, 42)]), given.array(68880, dtype=dtype)
    return outcome(_METHODS[name](given.place(A), b, rtol=1e-4, maxiter=30))


def _foreign_operators(name: str, dtype: str, given: Inputs) -> Any:
    """Solve with arrays, sparse arrays, SciPy's operators, a batch of matrices."""
    solve, rtol = _METHODS[name], _tolerance(dtype)
    matrix = (given.definite if name in _HERMITIAN else given.regular)(40, dtype)
    b = given.host(40, dtype=dtype)
    function = LinearOperator(matrix.shape, lambda x: matrix @ x, dtype=matrix.dtype)
    results = [solve(A, b, rtol=rtol) for A in (matrix, csr_array(matrix), function)]
    many, rows = np.stack([matrix, 3 * matrix]), given.host(2, 40, dtype=dtype)
    results.append(solve(many, rows, rtol=rtol, batched="leading"))
    results.append(solve(matrix, b.real, rtol=rtol))
    return [outcome(result) for result in results]


def _failures(name: str, dtype: str, given: Inputs) -> Any:
    """Take singular, indefinite and infinite systems, and tolerances below rounding."""
    solve, b = _METHODS[name], given.host(40, dtype=dtype)
    values = np.linspace(0, 1, 40).astype(dtype)
    results = [
        solve(bk.Diagonal(values), b, maxiter=60),
        solve(bk.Diagonal(values - 0.51), b, maxiter=60),
    ]
    results.append(solve(bk.Diagonal(values + 1e-3), b, rtol=1e-20))
    b[3] = np.nan
    results.append(solve(bk.Diagonal(values + 1), b))
    return [(np.nan_to_num(r.x), str(r.status), r.iterations, r.restarts) for r in results]


def _restarts(dtype: str, given: Inputs) -> Any:
    """Restart gmres and fgmres after few steps and after many."""
    A, b = _operator(given, "gmres", dtype), given.array(2, _N, dtype=dtype)
    results = []
    for restart in (1, 2, 5, 50, None):
        for solve in (gmres, fgmres):
            options = {"rtol": _tolerance(dtype), "restart": restart, "maxiter": 20}
            results.append(outcome(solve(A, b[0], **options)))
            results.append(outcome(solve(A, b, batched="leading", **options)))
    return results


def _changing(dtype: str, given: Inputs) -> Any:
    """Take a preconditioner that is another one in each step."""
    A, b = _operator(given, "fgmres", dtype), given.array(_N, dtype=dtype)
    steps = iter(range(1, 1000))

    def multiply(x: Any) -> Any:
        return x / (2.0 + 1.0 / next(steps))

    class Changing:
        shape, dtype = A.shape, A.dtype

        def matvec(self, x: Any) -> Any:
            return multiply(x).astype(x.dtype)

    return outcome(fgmres(A, b, M=Changing(), rtol=_tolerance(dtype)))


def _block(solve: Any, dtype: str, given: Inputs) -> Any:
    """Solve for right-hand sides that share a space, some of which depend on each other."""
    name, rtol = ("cg" if solve is block_cg else "gmres"), _tolerance(dtype)
    A, b = _operator(given, name, dtype), given.array(_N, 4, dtype=dtype)
    M, guess = _jacobi(given, A), given.array(_N, 4, dtype=dtype)
    dependent = b.copy()
    dependent[:, 2] = dependent[:, 0] + dependent[:, 1]
    results = [solve(A, b, rtol=rtol), solve(A, b, rtol=rtol, M=M), solve(A, b, guess, rtol=rtol)]
    results += [solve(A, dependent, rtol=rtol), solve(A, b, rtol=rtol, maxiter=2)]
    if solve is block_gmres:
        results.append(solve(A, b, rtol=rtol, restart=3))
    return [outcome(result) for result in results]


def _preconditioned(problem: str, kind: str, given: Inputs) -> Any:
    """Apply a preconditioner of a gallery problem by itself and in solves."""
    A = gallery.make(problem, 3, 2 if "2d" in problem else 1).operator
    M, b = preconditioners.make(kind, A, 0.01), given.host(A.shape[0])
    B = bk.Identity(A.shape[0]) - 0.01 * A
    results = [None if M is None else M.matvec(b)]
    results += [
        outcome(solve(B, b, M=M, rtol=1e-8, maxiter=30)) for solve in (gmres, fgmres, bicgstab)
    ]
    if problem.startswith("diffusion"):
        results += [outcome(solve(B, b, M=M, rtol=1e-8, maxiter=60)) for solve in (cg, minres)]
        results.append(outcome(block_cg(B, given.host(len(b), 3), M=M, rtol=1e-8, maxiter=30)))
    several = np.stack([b, 2 * b, given.host(len(b))])
    results.append(outcome(gmres(B, several, M=M, rtol=1e-6, maxiter=5, batched="leading")))
    return results


def _preconditioned_sum(kind: str, dtype: str, given: Inputs) -> Any:
    """Apply a preconditioner of a Kronecker sum plus a product, neither of them Hermitian."""
    total, product = (make([given.regular(n, dtype) for n in (4, 5)]) for make in _KINDS)
    A, b = total + 0.1 * product, given.host(20, dtype=dtype)
    M = preconditioners.make(kind, A, dtype=dtype)
    found = gmres(A, b, M=M, rtol=_tolerance(dtype))
    return None if M is None else M.matvec(b), outcome(found)


_KINDS = (bk.KroneckerSum, bk.KroneckerProduct)


def _nearest(given: Inputs) -> Any:
    """Find the nearest product and sum of a sum of products."""
    stacks = [given.host(3, n, n) for n in (3, 4, 5)]
    return preconditioners.nearest_product(stacks), preconditioners.nearest_sum(stacks)
