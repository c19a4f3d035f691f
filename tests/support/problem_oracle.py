"""An independent, dense discretization and integrators that the tests of problems share.

One-dimensional matrices are assembled cell by cell and edge by edge from the physics (a wave
f_t = ∂(g f)/∂x runs to the left where g > 0, so that the upwind trace is the right one). Only the
change to the hierarchical basis is the library's own. The integrators allocate freely.
"""

from functools import reduce
from itertools import product

import numpy as np
from numpy.polynomial import legendre
from scipy import linalg

from batchkron.problems.discretization.basis.multiwavelets import hierarchical_transform


def cell_functions(n, width, points):
    """Orthonormal Legendre functions and their derivatives at reference points, (points, n)."""
    series = [legendre.Legendre.basis(j) * np.sqrt((2 * j + 1) / width) for j in range(n)]
    values = np.array([[f(s) for f in series] for s in points])
    slopes = np.array([[f.deriv()(s) * 2 / width for f in series] for s in points])
    return values, slopes


def dense_div(axis, level, degree, g, flux="upwind", edges=("periodic", "periodic")):
    """Hierarchical matrix of ∂(g f)/∂x."""
    n, cells = degree + 1, 2**level
    width = (axis.upper - axis.lower) / cells
    nodes, weights = legendre.leggauss(n + 8)
    values, slopes = cell_functions(n, width, nodes)
    (L, R), _ = cell_functions(n, width, [-1.0, 1.0])
    A = np.zeros((cells, n, cells, n))
    for cell in range(cells):
        x = axis.lower + width * (cell + (1 + nodes) / 2)
        A[cell, :, cell, :] = -(slopes.T * (weights * width / 2 * g(x))) @ values
    for edge in range(cells + 1):
        kind = {0: edges[0], cells: edges[1]}.get(edge, "interior")
        below, above = (edge - 1) % cells, edge % cells
        strength = g(np.array([axis.lower + width * edge]))[0]
        from_right = {"upwind": strength > 0, "downwind": strength < 0, "central": 0.5}[flux]
        to_below, to_above = kind != "interior" and edge == 0, kind != "interior" and edge > 0
        if kind == "dirichlet" or (kind == "periodic" and edge == cells):
            continue
        if kind == "neumann":
            from_right = float(edge == 0)
        for cell, trace, share in ((below, R, 1.0 - from_right), (above, L, float(from_right))):
            if not (kind == "neumann" and to_below):
                A[below, :, cell, :] += strength * share * np.outer(R, trace)
            if not (kind == "neumann" and to_above):
                A[above, :, cell, :] -= strength * share * np.outer(L, trace)
    W = hierarchical_transform(level, degree)
    return W @ A.reshape(cells * n, cells * n) @ W.T


def dense_grad(axis, level, degree, g, flux="upwind", edges=("periodic", "periodic")):
    """Hierarchical matrix of g ∂f/∂x, minus the adjoint of the div of opposite kind."""
    opposite = {"upwind": "downwind", "downwind": "upwind", "central": "central"}[flux]
    exchanged = {"periodic": "periodic", "dirichlet": "neumann", "neumann": "dirichlet"}
    kinds = tuple(exchanged[kind] for kind in edges)
    return -dense_div(axis, level, degree, g, opposite, kinds).T


def dense_mass(axis, level, degree, g):
    """Hierarchical matrix of g f."""
    n, cells = degree + 1, 2**level
    width = (axis.upper - axis.lower) / cells
    nodes, weights = legendre.leggauss(n + 8)
    values, _ = cell_functions(n, width, nodes)
    A = np.zeros((cells, n, cells, n))
    for cell in range(cells):
        x = axis.lower + width * (cell + (1 + nodes) / 2)
        A[cell, :, cell, :] = (values.T * (weights * width / 2 * g(x))) @ values
    W = hierarchical_transform(level, degree)
    return W @ A.reshape(cells * n, cells * n) @ W.T


def dense_end_penalty(axis, level, degree):
    """Hierarchical matrix of -(1/h) φ φ^T at both ends of the axis."""
    n, cells = degree + 1, 2**level
    width = (axis.upper - axis.lower) / cells
    (L, R), _ = cell_functions(n, width, [-1.0, 1.0])
    A = np.zeros((cells, n, cells, n))
    A[0, :, 0, :] -= np.outer(L, L) / width
    A[-1, :, -1, :] -= np.outer(R, R) / width
    W = hierarchical_transform(level, degree)
    return W @ A.reshape(cells * n, cells * n) @ W.T


def positions(grid, degree):
    """Place of every coefficient of a grid in the Kronecker product of all 1-D coefficients."""
    n = degree + 1
    sizes = [2**level * n for level in grid.levels]
    places = []
    for cell in grid.cells:
        for local in product(range(n), repeat=grid.dimensions):
            index = [c * n + j for c, j in zip(cell, local, strict=True)]
            places.append(np.ravel_multi_index(index, sizes))
    return np.array(places)


def dense_sum(terms, grid, degree):
    """Σ numpy.kron(A_1, A_2, …) of lists of dense 1-D matrices (None: identity), on a grid."""
    places = positions(grid, degree)
    total = np.zeros((len(places), len(places)))
    for term in terms:
        matrices = [
            np.eye(2**level * (degree + 1)) if matrix is None else matrix
            for matrix, level in zip(term, grid.levels, strict=True)
        ]
        total += reduce(np.kron, matrices)[np.ix_(places, places)]
    return total


def rates(problem, u, t=0.0):
    """The right-hand side of a state, in an array that holds no number before."""
    found = np.full_like(u, np.nan)
    problem.rhs(t, u, found)
    return found


def rk3(problem, until, steps):
    """Third-order strong-stability-preserving Runge-Kutta."""
    u, slope, dt = problem.initial.copy(), np.empty(problem.unknowns), (until - problem.t0) / steps
    for step in range(steps):
        t = problem.t0 + step * dt
        problem.rhs(t, u, slope)
        v = u + dt * slope
        problem.rhs(t + dt, v, slope)
        v = 0.75 * u + 0.25 * (v + dt * slope)
        problem.rhs(t + dt / 2, v, slope)
        u = u / 3 + 2 / 3 * (v + dt * slope)
    return u


def gauss2(problem, until, steps):
    """Gauss' implicit method of order 4, dense, for constant operators."""
    A, dt = problem.operator.to_dense(), (until - problem.t0) / steps
    nodes = 0.5 + np.sqrt(3) / 6 * np.array([-1.0, 1.0])
    weights = np.array([[0.25, 0.25 - np.sqrt(3) / 6], [0.25 + np.sqrt(3) / 6, 0.25]])
    factors = linalg.lu_factor(np.eye(2 * len(A)) - dt * np.kron(weights, A))
    u, slopes = problem.initial.copy(), np.empty((2, len(A)))
    for step in range(steps):
        for slope, node in zip(slopes, nodes, strict=True):
            problem.rhs(problem.t0 + (step + node) * dt, u, slope)
        u = u + dt / 2 * linalg.lu_solve(factors, slopes.ravel()).reshape(2, -1).sum(axis=0)
    return u


def steady(problem, t=0.0):
    """The solution of A u + s(t) = 0, dense."""
    source = np.empty(problem.unknowns)
    problem.source(t, source)
    return np.linalg.solve(problem.operator.to_dense(), -source)


def orders(errors):
    """Observed orders of errors at successive levels."""
    return np.log2(np.array(errors[:-1]) / errors[1:])


def points_and_weights(axis, level, count=24):
    """Gauss-Legendre points in each cell of a level, and their weights."""
    nodes, weights = legendre.leggauss(count)
    width = axis.length / 2**level
    points = axis.lower + width * (np.arange(2**level)[:, None] + (1 + nodes) / 2)
    return points.ravel(), np.tile(weights * width / 2, 2**level)
