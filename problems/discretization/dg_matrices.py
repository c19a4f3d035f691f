"""Matrices of one-dimensional discontinuous Galerkin operators on the finest cells.

All matrices are sparse, in the nodal basis (see `multiwavelets`), and multiply with ``@`` into
chains such as div @ grad; `ModeOperator.from_nodal` takes the result to the hierarchical basis.
They stand on the right-hand side of f_t = A f.

Every edge of the domain has its own kind: "periodic" wraps, "neumann" keeps the trace from
inside, "dirichlet" drops it, and `boundary_terms` brings the datum.
"""

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from ..grids.levels import check_level
from ..statement.axis import Axis
from ..statement.boundary import EdgeKind
from ..statement.coefficients import FLUX_SIGNS, Flux, Function
from .multiwavelets import (
    check_degree,
    legendre_derivatives,
    legendre_values,
)
from .quadrature import cell_points, evaluate, gauss_rule

NodalMatrix: TypeAlias = "csr_array[Any, Any]"
Trace: TypeAlias = Flux | Literal["left", "right"]
Edges: TypeAlias = tuple[EdgeKind, EdgeKind]

OPPOSITE_TRACES: dict[Trace, Trace] = {
    "upwind": "downwind",
    "central": "central",
    "downwind": "upwind",
    "left": "right",
    "right": "left",
}
_SIDE_SIGNS = {"left": 1.0, "right": -1.0}
EDGE_KINDS = ("periodic", "dirichlet", "neumann")
EdgeWeights: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
Diagonal: TypeAlias = tuple[int, NDArray[np.float64]]

PERIODIC: Edges = ("periodic", "periodic")
_EXCHANGED: dict[EdgeKind, EdgeKind] = {
    "periodic": "periodic",
    "dirichlet": "neumann",
    "neumann": "dirichlet",
}


def mass_matrix(axis: Axis, level: int, degree: int, coefficient: Function = 1.0) -> NodalMatrix:
    """∫ g φ ψ: multiplication by a function g.

    Parameters
    ----------
    axis : Axis
        The axis.
    level, degree : int
        Finest level and degree.
    coefficient : callable or float
        g.

    Returns
    -------
    scipy.sparse.csr_array, float64 (2^level (degree + 1), 2^level (degree + 1))
        Block diagonal; exactly the identity for g = 1.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong kind or is out of range, or g is not finite at a node.

    Examples
    --------
    >>> mass_matrix(Axis("x", 0, 1), 1, 0, lambda s: s).toarray()
    array([[0.25, 0.  ],
           [0.  , 0.75]])
    """
    return block_diagonal(mass_blocks(axis, level, degree, coefficient))


def mass_blocks(
    axis: Axis, level: int, degree: int, coefficient: Function = 1.0, what: str = "mass"
) -> NDArray[np.float64]:
    """∫ g φ_i φ_j on every finest cell: the diagonal blocks of `mass_matrix`.

    Parameters
    ----------
    axis, level, degree, coefficient
        As in `mass_matrix`.
    what : str
        What g is a coefficient of, for the text of an error.

    Returns
    -------
    float64 (2^level, degree + 1, degree + 1)
        Symmetric blocks.

    Raises
    ------
    TypeError, ValueError
        As in `mass_matrix`.
    """
    n = check_degree(degree) + 1
    cells = 1 << check_level(level)
    if not callable(coefficient):
        number = evaluate(coefficient, np.empty(1), _what(what, axis))[0]
        return np.array(np.broadcast_to(number * np.eye(n), (cells, n, n)))
    values, shapes, _ = _volume(axis, level, degree, coefficient, what)
    return np.asarray(np.einsum("cq,qi,qj->cij", values, shapes, shapes, optimize=True))


def block_diagonal(blocks: NDArray[np.float64]) -> NodalMatrix:
    """Block-diagonal matrix of one block per finest cell.

    Parameters
    ----------
    blocks : float64 (cells, n, n)
        The blocks.

    Returns
    -------
    scipy.sparse.csr_array, float64 (cells * n, cells * n)
        Without stored zeros.
    """
    return _assemble([(0, blocks)], blocks.shape[0], blocks.shape[1], wraps=False)


def div_matrix(
    axis: Axis,
    level: int,
    degree: int,
    coefficient: Function = 1.0,
    *,
    flux: Trace = "upwind",
    boundary: Edges = PERIODIC,
) -> NodalMatrix:
    """∂(g f)/∂x with a numerical flux, as it stands on the right-hand side of f_t = ∂(g f)/∂x.

    Parameters
    ----------
    axis : Axis
        The axis.
    level, degree : int
        Finest level and degree.
    coefficient : callable or float
        g; its value at an edge decides which side is upwind there.
    flux : {"upwind", "central", "downwind", "left", "right"}
        From which side of an edge f is taken; "left" and "right" whatever the sign of g.
    boundary : (left, right), each "periodic", "dirichlet" or "neumann"
        Kind of the two ends of the axis.

    Returns
    -------
    scipy.sparse.csr_array, float64 (2^level (degree + 1), 2^level (degree + 1))
        Without boundary data, see `batchkron.problems.discretization.boundary_terms.edge_data`.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong kind or is out of range, or g is not finite at a node.

    Notes
    -----
    -∫ g φ ψ' and, per edge with F = g/2 and a = s |F|, s = -1 upwind, 0 central, +1 downwind (or
    a = F for the trace from the left, -F for the right one), L and R the row vectors of the
    functions at the cell's left and right end: block (i, i-1) is
    (-F_L - a_L) L^T R, (i, i) adds (-F_L + a_L) L^T L + (F_R + a_R) R^T R, (i, i+1) is
    (F_R - a_R) R^T L. At a "neumann" end the edge term is ∓2 F times the trace from inside, at a
    "dirichlet" end nothing.

    Examples
    --------
    >>> div_matrix(Axis("x", 0, 3), 1, 0, 3.0).toarray()
    array([[-2.,  2.],
           [ 2., -2.]])
    """
    edges = _check_boundary(boundary)
    n = check_degree(degree) + 1
    values, shapes, slopes = _volume(axis, level, degree, coefficient, "div")
    inside = -np.einsum("cq,qi,qj->cij", values, slopes, shapes, optimize=True)
    half = _at_edges(axis, level, coefficient, "div") / 2
    upwinding = _one_sided(flux, half)
    weights = _edge_weights(half, upwinding, edges)
    blocks = [(0, inside), *_edge_blocks(axis, level, degree, *weights)]
    return _assemble(blocks, 1 << level, n, wraps=edges == PERIODIC)


def grad_matrix(
    axis: Axis,
    level: int,
    degree: int,
    coefficient: Function = 1.0,
    *,
    flux: Trace = "upwind",
    boundary: Edges = PERIODIC,
) -> NodalMatrix:
    """G ∂f/∂x with a numerical flux: minus the transposed `div_matrix` of the opposite kind.

    Parameters
    ----------
    axis, level, degree, coefficient, flux, boundary
        As in `div_matrix`.

    Returns
    -------
    scipy.sparse.csr_array, float64 (2^level (degree + 1), 2^level (degree + 1))
        Without boundary data, see `batchkron.problems.discretization.boundary_terms.edge_data`.

    Raises
    ------
    TypeError, ValueError
        As in `div_matrix`.

    Notes
    -----
    -(div with the flux sign flipped and Dirichlet and Neumann exchanged)^T. A second derivative is
    the chain div @ grad with opposite fluxes (local discontinuous Galerkin). Where f has Dirichlet
    data, grad is "dirichlet" and div "neumann"; where the flux g ∂f/∂x is given, grad is "neumann"
    and div "dirichlet".

    Examples
    --------
    >>> x = Axis("x", 0, 2)
    >>> div, grad = div_matrix(x, 1, 0), grad_matrix(x, 1, 0, flux="downwind")
    >>> (div @ grad).toarray()
    array([[-2.,  2.],
           [ 2., -2.]])
    """
    left, right = _check_boundary(boundary)
    _check_flux(flux)
    div = div_matrix(
        axis,
        level,
        degree,
        coefficient,
        flux=OPPOSITE_TRACES[flux],
        boundary=(_EXCHANGED[left], _EXCHANGED[right]),
    )
    return csr_array(-div.T)


def penalty_matrix(
    axis: Axis,
    level: int,
    degree: int,
    coefficient: Function = 1.0,
    *,
    flux: Trace = "upwind",
    boundary: Edges = PERIODIC,
) -> NodalMatrix:
    """Keep the terms of `div_matrix` in a = s |g|/2 alone: they damp jumps (upwind) or feed them.

    Parameters
    ----------
    axis, level, degree, coefficient, flux
        As in `div_matrix`.
    boundary : (left, right), each "periodic", "dirichlet" or "neumann"
        Ends that are not periodic have no jump and no term.

    Returns
    -------
    scipy.sparse.csr_array, float64 (2^level (degree + 1), 2^level (degree + 1))
        Symmetric; negative semidefinite for "upwind".

    Raises
    ------
    TypeError, ValueError
        As in `div_matrix`.
    """
    edges = _check_boundary(boundary)
    n = check_degree(degree) + 1
    size = np.abs(_at_edges(axis, level, coefficient, "penalty")) / 2
    _check_flux(flux, FLUX_SIGNS)
    weights = _edge_weights(np.zeros_like(size), FLUX_SIGNS[flux] * size, edges)
    blocks = _edge_blocks(axis, level, degree, *weights)
    return _assemble(blocks, 1 << level, n, wraps=edges == PERIODIC)


def _volume(
    axis: Axis, level: int, degree: int, coefficient: Function, operator: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Weights times g (cells, q), values (q, n) and derivatives (q, n) at the nodes of a cell."""
    width = axis.cell_width(check_level(level))
    # φ_i φ_j takes degree 2n - 2 of the rule's exactness: what is left must resolve g
    nodes, weights = gauss_rule(max(16, 2 * check_degree(degree) + 10))
    values = evaluate(coefficient, cell_points(axis, level, nodes), _what(operator, axis))
    return (
        values * (weights * (width / 2)),
        legendre_values(nodes, degree, width),
        legendre_derivatives(nodes, degree, width),
    )


def _at_edges(axis: Axis, level: int, coefficient: Function, operator: str) -> NDArray[np.float64]:
    """G at the 2^level + 1 edges."""
    points = cell_points(axis, check_level(level), [-1.0])[:, 0]
    return evaluate(coefficient, np.append(points, axis.upper), _what(operator, axis))


def _what(operator: str, axis: Axis) -> str:
    return f"coefficient of {operator} in {axis.name!r}"


def _edge_weights(
    half: NDArray[np.float64], upwinding: NDArray[np.float64], boundary: Edges
) -> tuple[EdgeWeights, EdgeWeights]:
    """F and a at the (left, right) edge of every cell, with the ends of the axis by their kind.

    A cell takes F + a times its own trace and F - a times its neighbour's at its right edge, and
    so on. Without a neighbour, a = F keeps 2F times the own trace and F = a = 0 drops both.
    """
    half_left, half_right = half[:-1].copy(), half[1:].copy()
    a_left, a_right = upwinding[:-1].copy(), upwinding[1:].copy()
    if boundary[0] == "neumann":
        a_left[0] = -half_left[0]
    elif boundary[0] == "dirichlet":
        half_left[0] = a_left[0] = 0.0
    if boundary[1] == "neumann":
        a_right[-1] = half_right[-1]
    elif boundary[1] == "dirichlet":
        half_right[-1] = a_right[-1] = 0.0
    return (half_left, half_right), (a_left, a_right)


def _edge_blocks(
    axis: Axis, level: int, degree: int, central: EdgeWeights, one_sided: EdgeWeights
) -> list[Diagonal]:
    """Edge terms as three block diagonals, from F and a at the edges of every cell."""
    (half_left, half_right), (a_left, a_right) = central, one_sided
    L, R = legendre_values([-1.0, 1.0], degree, axis.cell_width(level))
    own = np.multiply.outer(a_left - half_left, np.outer(L, L))
    own += np.multiply.outer(a_right + half_right, np.outer(R, R))
    return [
        (-1, np.multiply.outer(-half_left - a_left, np.outer(L, R))),
        (0, own),
        (1, np.multiply.outer(half_right - a_right, np.outer(R, L))),
    ]


def _assemble(diagonals: list[Diagonal], cells: int, n: int, *, wraps: bool) -> NodalMatrix:
    """Sum of block diagonals, each (offset, blocks (cells, n, n)) by row of cells."""
    own = np.arange(cells)
    rows, columns, entries = [], [], []
    for offset, blocks in diagonals:
        inside = np.full(cells, True) if wraps else (own + offset >= 0) & (own + offset < cells)
        row = own[inside, None, None] * n + np.arange(n)[:, None]
        column = (own[inside, None, None] + offset) % cells * n + np.arange(n)
        shape = (inside.sum(), n, n)
        rows.append(np.broadcast_to(row, shape).ravel())
        columns.append(np.broadcast_to(column, shape).ravel())
        entries.append(blocks[inside].ravel())
    places = (np.concatenate(rows), np.concatenate(columns))
    matrix = coo_array((np.concatenate(entries), places), shape=(cells * n, cells * n)).tocsr()
    matrix.eliminate_zeros()
    return csr_array(matrix)


def _one_sided(flux: Trace, half: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a at the edges, from F."""
    _check_flux(flux)
    if flux in _SIDE_SIGNS:
        return np.asarray(_SIDE_SIGNS[flux] * half)
    return np.asarray(FLUX_SIGNS[flux] * np.abs(half))


def _check_flux(flux: str, words: Iterable[str] = OPPOSITE_TRACES) -> None:
    if flux not in words:
        raise ValueError(f"flux is {flux!r}; expected one of {', '.join(map(repr, words))}")


def _check_boundary(boundary: Edges) -> Edges:
    if not isinstance(boundary, tuple) or len(boundary) != 2:
        raise ValueError(f"boundary is {boundary!r}; expected a pair (left, right)")
    for side, kind in zip(("left", "right"), boundary, strict=True):
        if kind not in EDGE_KINDS:
            raise ValueError(
                f"{side} boundary is {kind!r}; expected one of {', '.join(map(repr, EDGE_KINDS))}"
            )
    if "periodic" in boundary and boundary != PERIODIC:
        raise ValueError(
            f"boundary is {boundary!r}; an axis is periodic at both ends or at neither"
        )
    return boundary
