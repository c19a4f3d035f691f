"""Matrices of one-dimensional discontinuous Galerkin operators on the finest cells.

All matrices are sparse, in the nodal basis (see `multiwavelets`). They are multiplied with ``@`` to
chains such as div @ grad; `ModeOperator.from_nodal` takes the result to the hierarchical basis.
They stand on the right-hand side of f_t = A f.

Each end of the axis has its own kind: "periodic" takes the trace (the value of f at the edge) from
the other end, "neumann" keeps the trace from inside, and "dirichlet" drops it; `boundary_terms`
makes the source of the datum that is given instead.
"""

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from ...grids.levels import check_level
from ...statement.axis import Axis
from ...statement.boundary import EdgeKind
from ...statement.coefficients import FLUX_SIGNS, Flux, Function
from ..basis.edge_values import edge_values
from ..basis.multiwavelets import check_degree, legendre_derivatives, legendre_values
from ..basis.quadrature import cell_points, evaluate, gauss_rule

NodalMatrix: TypeAlias = "csr_array[Any, Any]"
Trace: TypeAlias = Flux | Literal["left", "right"]
"""From which side of an edge f is taken; "left" and "right" do not depend on a coefficient."""

Edges: TypeAlias = tuple[EdgeKind, EdgeKind]
"""The kinds of the left and the right end of an axis."""

# the flux that takes its trace from the other side of an edge
OPPOSITE_TRACES: dict[Trace, Trace] = {
    "upwind": "downwind",
    "central": "central",
    "downwind": "upwind",
    "left": "right",
    "right": "left",
}
_SIDE_SIGNS = {"left": 1.0, "right": -1.0}  # a / F in the notes of `div_matrix`
EDGE_KINDS = ("periodic", "dirichlet", "neumann")
Diagonal: TypeAlias = tuple[int, NDArray[np.float64]]
"""A block diagonal: its offset in cells (0 is the main one) and its blocks (cells, n, n)."""

PERIODIC: Edges = ("periodic", "periodic")
# the kind of an end in -A^T, from the kind of that end in A
_EXCHANGED: dict[EdgeKind, EdgeKind] = {
    "periodic": "periodic",
    "dirichlet": "neumann",
    "neumann": "dirichlet",
}


def mass_matrix(axis: Axis, level: int, degree: int, coefficient: Function = 1.0) -> NodalMatrix:
    """Return the block-diagonal matrix ∫ g φ_i φ_j of the multiplication by a function g.

    It is exactly the identity for g = 1.

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
    """Return the diagonal blocks (2^level, n, n) of `mass_matrix`; ``what`` is for error texts."""
    n = check_degree(degree) + 1
    cells = 1 << check_level(level)
    if not callable(coefficient):
        number = evaluate(coefficient, np.empty(1), _what(what, axis))[0]
        return np.array(np.broadcast_to(number * np.eye(n), (cells, n, n)))
    values, shapes, _ = _volume(axis, level, degree, coefficient, what)
    return np.asarray(np.einsum("cq,qi,qj->cij", values, shapes, shapes, optimize=True))


def block_diagonal(blocks: NDArray[np.float64]) -> NodalMatrix:
    """Return the matrix with the diagonal blocks (cells, n, n), without stored zeros."""
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
    """Return the operator ∂(g f)/∂x with a numerical flux.

    ``level``, ``degree``: finest level and degree.
    ``coefficient``: g; the sign of its value at an edge determines which side is upwind there.
    ``flux`` ({"upwind", "central", "downwind", "left", "right"}): from which side of an edge f is
      taken; "left" and "right" do not depend on the sign of g.
    ``boundary`` ((left, right), each "periodic", "dirichlet" or "neumann"): kind of the two ends of
      the axis.

    Returns scipy.sparse.csr_array, float64 (2^level (degree + 1), 2^level (degree + 1)): without
    boundary data, see `boundary_terms.edge_data` beside this file. Raises `TypeError`, `ValueError`
    if an argument has the wrong kind or is out of range, or g is not finite at a node.

    The matrix is the volume term -∫ g φ_i' φ_j in the diagonal blocks plus the edge terms. The
    numerical flux at an edge is P f⁻ + M f⁺ with P = F⁻ + a⁻ and M = F⁺ - a⁺, where f⁻ and f⁺ are
    the traces from the left and the right, F = g/2, and a = s |F| with s = -1 for upwind, 0 for
    central, +1 for downwind; a = F for "left" and -F for "right". Where g jumps, F⁻ and a⁻ are of
    its value on the left and F⁺ and a⁺ of that on the right, so that a constant flux g f is kept.
    The flux is the same for both cells in any case, and ∫ f is conserved. Let L and R be the row
    vectors of the basis functions at the left and the right end of a cell, and let the indices L
    and R of P and M mean its left and right edge. Then block (i, i-1) is -P_L L^T R;
    -M_L L^T L + P_R R^T R is added to block (i, i); and block (i, i+1) is M_R R^T L. At a "neumann"
    end the flux is g, from inside, times the trace from inside, at a "dirichlet" end it is zero.

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
    values_at_edges = edge_values(
        coefficient, axis, level, _what("div", axis), periodic=edges == PERIODIC
    )
    half = values_at_edges / 2
    upwinding = _one_sided(flux, half)
    taken = _at_ends(half[0] + upwinding[0], half[1] - upwinding[1], edges, values_at_edges)
    blocks = [(0, inside), *_edge_blocks(axis, level, degree, *taken)]
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
    """Return the operator g ∂f/∂x with a numerical flux; arguments are those of `div_matrix`.

    The matrix is minus the transpose of `div_matrix` with the opposite flux and with "dirichlet"
    and "neumann" exchanged. A second derivative is the chain div @ grad with opposite fluxes (local
    discontinuous Galerkin). Where f has Dirichlet data, grad is "dirichlet" and div "neumann";
    where the flux g ∂f/∂x is given, grad is "neumann" and div "dirichlet".

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
    """Return the part of `div_matrix` that damps jumps between cells (upwind) or amplifies them.

    It has the edge terms of `div_matrix` in a = s |g|/2 only. Where g jumps at an edge, a is that
    of the side with the larger |g|, for both traces, so that it is zero for continuous f. At ends
    that are not periodic there is no jump. The matrix is symmetric, and negative semidefinite for
    "upwind".
    """
    edges = _check_boundary(boundary)
    n = check_degree(degree) + 1
    values = edge_values(
        coefficient, axis, level, _what("penalty", axis), periodic=edges == PERIODIC
    )
    size = np.abs(values).max(axis=0) / 2
    _check_flux(flux, FLUX_SIGNS)
    weight = FLUX_SIGNS[flux] * size
    taken = _at_ends(weight, -weight, edges, np.zeros_like(values))
    blocks = _edge_blocks(axis, level, degree, *taken)
    return _assemble(blocks, 1 << level, n, wraps=edges == PERIODIC)


def volume_nodes(degree: int) -> int:
    """Return the number q of Gauss nodes per finest cell in the integrals of coefficients.

    A rule of q nodes is exact for polynomials of degree 2q - 1. φ_i φ_j has degree 2n - 2, so that
    ∫ g φ_i φ_j is exact if g is a polynomial of degree up to 25 in a cell.
    """
    return max(16, 2 * check_degree(degree) + 10)


def _volume(
    axis: Axis, level: int, degree: int, coefficient: Function, operator: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Quadrature of the volume term with q nodes per cell.

    Returns weights times g (cells, q), and the basis functions' values and derivatives (q, n).
    """
    width = axis.cell_width(check_level(level))
    nodes, weights = gauss_rule(volume_nodes(degree))
    values = evaluate(coefficient, cell_points(axis, level, nodes), _what(operator, axis))
    return (
        values * (weights * (width / 2)),
        legendre_values(nodes, degree, width),
        legendre_derivatives(nodes, degree, width),
    )


def _what(operator: str, axis: Axis) -> str:
    return f"coefficient of {operator} in {axis.name!r}"


def _at_ends(
    from_left: NDArray[np.float64],
    from_right: NDArray[np.float64],
    boundary: Edges,
    values: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the factors of both traces in the flux through each edge, changed by the ends' kinds.

    At the ends a "neumann" edge takes the inner trace times ``values`` (2, edges), a "dirichlet"
    edge takes nothing.
    """
    if boundary[0] != "periodic":
        from_left[0] = 0.0
        from_right[0] = values[1, 0] if boundary[0] == "neumann" else 0.0
    if boundary[1] != "periodic":
        from_left[-1] = values[0, -1] if boundary[1] == "neumann" else 0.0
        from_right[-1] = 0.0
    return from_left, from_right


def _edge_blocks(
    axis: Axis,
    level: int,
    degree: int,
    from_left: NDArray[np.float64],
    from_right: NDArray[np.float64],
) -> list[Diagonal]:
    """Return the edge terms as three block diagonals, from the factors of both traces at edges."""
    L, R = legendre_values([-1.0, 1.0], degree, axis.cell_width(level))
    own = np.multiply.outer(-from_right[:-1], np.outer(L, L))
    own += np.multiply.outer(from_left[1:], np.outer(R, R))
    return [
        (-1, np.multiply.outer(-from_left[:-1], np.outer(L, R))),
        (0, own),
        (1, np.multiply.outer(from_right[1:], np.outer(R, L))),
    ]


def _assemble(diagonals: list[Diagonal], cells: int, n: int, *, wraps: bool) -> NodalMatrix:
    """Return the sum of block diagonals (offset, blocks), with blocks of shape (cells, n, n).

    Block c is in row c and column c + offset; outside the matrix it is dropped, or wraps around.
    """
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
    """Return a of the notes of `div_matrix` at the edges; ``half`` is F."""
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
