"""The specification of an operator on a sparse grid: cells and terms, validated once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from batchkron.arrays import to_host
from batchkron.operators.couplings import Connections, Ids
from batchkron.operators.kronecker_terms import Blocks, KroneckerTerm, KroneckerTerms
from batchkron.spec.kron import (
    Array,
    check_replacement,
    compute_dtype,
    read_only_copies,
    same_shapes,
)

__all__ = [
    "BlockMatrix",
    "SweepSpec",
    "checked_cells",
    "checked_values",
    "conjugated",
    "of_dtype",
    "sweep_spec",
    "terms_of_sweeps",
    "transposed",
    "with_values",
]

_MAX_CELLS = 1 << 52  # largest 1-D index: levels are computed in float64, exact up to here


class BlockMatrix(NamedTuple):
    """A validated 1-D operator: ``blocks[b]`` maps cell ``columns[b]`` to cell ``rows[b]``."""

    connections: Connections
    blocks: Array

    @property
    def rows(self) -> Ids:
        """1-D index of the output cell of each block, (count,)."""
        return self.connections.rows

    @property
    def columns(self) -> Ids:
        """1-D index of the input cell of each block, (count,)."""
        return self.connections.columns

    def transpose(self) -> BlockMatrix:
        """Return the transpose, the blocks in the same order."""
        blocks = np.ascontiguousarray(self.blocks.swapaxes(1, 2))
        return BlockMatrix(self.connections.transpose(), blocks)


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """The sum of c_t ⊗_k A_tk over the terms t, restricted to a set of cells.

    Attributes
    ----------
    cells : ndarray of int64, (num_cells, modes)
        Multi-indices of hierarchical cells; rows are distinct.
    sizes : tuple of int
        Basis functions per 1-D cell, for each mode.
    given : tuple of int
        Those of the vectors that it acts on; they differ along one mode at most, along which alone
        all terms act then.
    matrices : tuple of BlockMatrix
        The distinct 1-D operators, of dtype ``dtype``.
    terms : tuple of tuples of int
        For each term and mode the index of a matrix, -1 for the identity.
    coefficients : ndarray of dtype ``dtype``, (terms,)
    transforms : tuple of (ndarray (4, n, n) or None), optional
        As of `KroneckerTerms`; products do not depend on them.
    plus_identity : bool
        Whether the identity is added to the sum.
    """

    cells: Ids
    sizes: tuple[int, ...]
    given: tuple[int, ...]
    matrices: tuple[BlockMatrix, ...]
    terms: tuple[tuple[int, ...], ...]
    coefficients: Array
    dtype: np.dtype[Any]
    transforms: tuple[Array | None, ...] | None = field(default=None, compare=False)
    plus_identity: bool = False

    @property
    def block_size(self) -> int:
        """Elements of one block."""
        return math.prod(self.sizes)

    @property
    def with_identity_term(self) -> SweepSpec:
        """The same operator with the identity as one of the terms, if it is added to them."""
        if not self.plus_identity:
            return self
        terms = *self.terms, (-1,) * len(self.sizes)
        scale = np.append(self.coefficients, self.dtype.type(1))
        return replace(self, terms=terms, coefficients=scale, plus_identity=False)

    @property
    def input_block_size(self) -> int:
        """Elements of one block of the vectors that it acts on."""
        return math.prod(self.given)


def sweep_spec(
    grid: Any,
    terms: Sequence[Sequence[Blocks | None]],
    n: int | Sequence[int],
    coefficients: ArrayLike | None,
    transforms: Sequence[ArrayLike | None] | None = None,
    inputs: int | Sequence[int] | None = None,
    plus_identity: bool = False,
) -> SweepSpec:
    """Validate a grid and terms, and copy them.

    Raises `ValueError`, `TypeError`, `IndexError` as documented for `batchkron.SparseGridOperator`.
    """
    cells = checked_cells(getattr(grid, "cells", grid))
    sizes = _checked_sizes("n", n, cells.shape[1])
    given = sizes if inputs is None else _checked_sizes("inputs", inputs, len(sizes))
    distinct: dict[int, int] = {}
    matrices: list[BlockMatrix] = []
    originals: list[Blocks] = []
    numbers = []
    # All operators are kept alive until the end: they are told apart by id, and a generator may
    # create them one by one.
    rows = [_listed(modes, f"terms[{t}]") for t, modes in enumerate(_listed(terms, "terms"))]
    for t, modes in enumerate(rows):
        if len(modes) != len(sizes):
            raise ValueError(
                f"terms[{t}] has {len(modes)} modes; expected {len(sizes)}, one per axis of the "
                f"grid (None for the identity)"
            )
        for k, own in enumerate(modes):
            if own is not None and id(own) not in distinct:
                distinct[id(own)] = len(matrices)
                originals.append(own)
                matrices.append(_checked_matrix(own, f"terms[{t}][{k}]"))
            if own is not None:
                size = sizes[k], given[k]
                _check_size(matrices[distinct[id(own)]], size, f"terms[{t}][{k}]")
        numbers.append(tuple(-1 if m is None else distinct[id(m)] for m in modes))
    _check_given(sizes, given, numbers)
    if plus_identity and sizes != given:
        raise ValueError(f"n is {sizes} and inputs is {given}: there is no identity to add")
    scale = np.ones(len(numbers)) if coefficients is None else to_host(coefficients, "coefficients")
    if scale.shape != (len(numbers),):
        raise ValueError(
            f"coefficients has shape {scale.shape}; expected ({len(numbers)},), one per term"
        )
    arrays = [matrix.blocks for matrix in matrices]
    dtype = compute_dtype(*arrays, *([] if coefficients is None and arrays else [scale]))
    converted = tuple(
        m._replace(blocks=_own(m.blocks, dtype, own))
        for m, own in zip(matrices, originals, strict=True)
    )
    known = None if transforms is None else _checked_transforms(transforms, sizes)
    return SweepSpec(
        cells,
        sizes,
        given,
        converted,
        tuple(numbers),
        scale.astype(dtype),
        dtype,
        known,
        bool(plus_identity),
    )


def _check_given(
    sizes: tuple[int, ...], given: tuple[int, ...], terms: Sequence[tuple[int, ...]]
) -> None:
    """Check that all terms act along the mode alone in which vectors have another size."""
    differing = [k for k, (n, own) in enumerate(zip(sizes, given, strict=True)) if n != own]
    for t, numbers in enumerate(terms):
        if differing and [k for k, number in enumerate(numbers) if number >= 0] != differing:
            raise ValueError(
                f"n is {sizes} and inputs is {given}, and terms[{t}] does not act along one axis "
                "alone, that in which they differ. Maps along several axes are products of such "
                "operators"
            )


def _listed(given: Any, name: str) -> tuple[Any, ...]:
    """Return the entries of a sequence or generator as a tuple."""
    if not hasattr(given, "__iter__"):
        raise TypeError(f"{name} is a {type(given).__name__}; expected a sequence")
    return tuple(given)


def checked_cells(given: ArrayLike) -> Ids:
    """Return cells as an int64 array of multi-indices, after checking that they are distinct."""
    cells = to_host(given, "cells")
    if cells.dtype.kind not in "iu":
        raise TypeError(f"cells have dtype {cells.dtype}; expected integers")
    if cells.ndim != 2 or 0 in cells.shape:
        raise ValueError(
            f"cells have shape {cells.shape}; expected (cells, modes), at least one of each"
        )
    wrong = np.argwhere((cells < 0) | (cells >= _MAX_CELLS))
    if wrong.size:
        row, axis = wrong[0]
        raise IndexError(f"cells[{row}, {axis}] is {cells[row, axis]}; expected 0 … 2^52 - 1")
    result = np.array(cells, dtype=np.int64, order="C")
    if not _is_sorted(result):
        _check_distinct(result)
    result.flags.writeable = False
    return result


def _is_sorted(cells: Ids) -> bool:
    """Whether the rows are strictly ascending, as in a `SparseGrid`: then they are distinct."""
    step = np.diff(cells, axis=0)
    first = (step != 0).argmax(axis=1)
    return bool((step[np.arange(len(step)), first] > 0).all())


def _check_distinct(cells: Ids) -> None:
    order = np.lexsort(cells.T[::-1])
    twice = np.flatnonzero((cells[order[1:]] == cells[order[:-1]]).all(axis=1))
    if twice.size:
        one, other = sorted((int(order[twice[0]]), int(order[twice[0] + 1])))
        raise ValueError(f"cells[{other}] is cells[{one}] again; expected distinct rows")


def _checked_sizes(name: str, n: int | Sequence[int], modes: int) -> tuple[int, ...]:
    """Return the functions per cell of every mode."""
    sizes = tuple(n) if isinstance(n, (Sequence, np.ndarray)) else (n,) * modes
    if len(sizes) != modes:
        raise ValueError(
            f"{name} has {len(sizes)} entries; expected {modes}, one per axis of the grid"
        )
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
            raise TypeError(
                f"{name} is {n!r}; expected an integer, or one for each axis of the grid"
            )
        if size < 1:
            raise ValueError(f"{name} is {n!r}; expected at least one function per cell")
    return tuple(int(size) for size in sizes)


def _checked_transforms(
    given: Sequence[ArrayLike | None], sizes: tuple[int, ...]
) -> tuple[Array | None, ...]:
    """Return copies of two-scale filters, one (4, n, n) per mode, after checking them."""
    if len(given) != len(sizes):
        raise ValueError(
            f"transforms has {len(given)} entries; expected {len(sizes)}, one per axis"
        )
    found: list[Array | None] = []
    for k, (filters, n) in enumerate(zip(given, sizes, strict=True)):
        if filters is None:
            found.append(None)
            continue
        array = read_only_copies([to_host(filters, f"transforms[{k}]")], np.dtype(np.float64))[0]
        if array.shape != (4, n, n):
            raise ValueError(
                f"transforms[{k}] has shape {array.shape}; expected {(4, n, n)}: H0, H1, G0, G1"
            )
        whole = array.reshape(2, 2, n, n).swapaxes(1, 2).reshape(2 * n, 2 * n)
        if not np.allclose(whole @ whole.T, np.eye(2 * n), rtol=0, atol=1e-10):
            raise ValueError(f"transforms[{k}] is not orthogonal; expected [[H0, H1], [G0, G1]]")
        found.append(array)
    return tuple(found)


def _checked_matrix(given: Blocks, name: str) -> BlockMatrix:
    """Return the blocks of a 1-D operator after checking their pairs of cells."""
    if not all(hasattr(given, part) for part in ("rows", "columns", "blocks")):
        raise TypeError(
            f"{name} is {type(given).__name__}; expected rows, columns and blocks, as a "
            f"ModeOperator has, or None"
        )
    blocks = to_host(given.blocks, f"{name}.blocks")
    if blocks.ndim != 3:
        raise ValueError(f"{name}.blocks has shape {blocks.shape}; expected (count, n, n)")
    ends = []
    for part in ("rows", "columns"):
        ids = to_host(getattr(given, part), f"{name}.{part}")
        if ids.shape != blocks.shape[:1]:
            raise ValueError(
                f"{name}.{part} has shape {ids.shape}; expected {blocks.shape[:1]}, one per block"
            )
        if ids.dtype.kind not in "iu" and ids.size:
            raise TypeError(f"{name}.{part} has dtype {ids.dtype}; expected integers")
        wrong = np.flatnonzero((ids < 0) | (ids >= _MAX_CELLS))
        if wrong.size:
            raise IndexError(f"{name}.{part}[{wrong[0]}] is {ids[wrong[0]]}; expected 0 … 2^52 - 1")
        ends.append(_own(ids, np.dtype(np.int64), given))
    rows, columns = ends
    order = np.lexsort((columns, rows))
    twice = np.flatnonzero((np.diff(rows[order]) == 0) & (np.diff(columns[order]) == 0))
    if twice.size:
        at = order[twice[0]]
        raise ValueError(f"{name} has two blocks for row {rows[at]}, column {columns[at]}")
    return BlockMatrix(Connections(rows, columns), blocks)


def checked_values(
    spec: SweepSpec, blocks: Sequence[ArrayLike] | None, coefficients: ArrayLike | None
) -> tuple[list[Array], Array]:
    """Return new blocks and coefficients, checked; None stands for those of the specification."""
    matrices = [matrix.blocks for matrix in spec.matrices]
    scale = spec.coefficients
    if blocks is not None:
        matrices = same_shapes(blocks, matrices, spec.dtype, "blocks")
    if coefficients is not None:
        scale = to_host(coefficients, "coefficients")
        check_replacement(scale, spec.coefficients.shape, spec.dtype, "coefficients")
        scale = scale.astype(spec.dtype)
    return matrices, scale


def with_values(spec: SweepSpec, matrices: Sequence[Array], weights: Array | None) -> SweepSpec:
    """Return the specification with copies of these blocks and coefficients; None: its own."""
    replaced = tuple(
        old._replace(blocks=new)
        for old, new in zip(spec.matrices, read_only_copies(matrices, spec.dtype), strict=True)
    )
    scale = spec.coefficients if weights is None else np.array(weights, spec.dtype)
    return replace(spec, matrices=replaced, coefficients=scale)


def transposed(spec: SweepSpec) -> SweepSpec:
    """Return the specification of the transpose."""
    matrices = tuple(matrix.transpose() for matrix in spec.matrices)
    return replace(spec, matrices=matrices, sizes=spec.given, given=spec.sizes)


def conjugated(spec: SweepSpec) -> SweepSpec:
    """Return the specification of the operator with complex conjugate elements."""
    matrices = tuple(m._replace(blocks=m.blocks.conj()) for m in spec.matrices)
    return replace(spec, matrices=matrices, coefficients=spec.coefficients.conj())


def of_dtype(spec: SweepSpec, dtype: np.dtype[Any]) -> SweepSpec:
    """Return the specification with elements of another dtype."""
    matrices = tuple(m._replace(blocks=m.blocks.astype(dtype)) for m in spec.matrices)
    scale = spec.coefficients.astype(dtype)
    return replace(spec, matrices=matrices, coefficients=scale, dtype=dtype)


def terms_of_sweeps(spec: SweepSpec) -> KroneckerTerms:
    """Return the Kronecker terms on the cells of the grid."""
    spec = spec.with_identity_term
    terms = tuple(
        KroneckerTerm(scalar, tuple(None if m < 0 else spec.matrices[m] for m in numbers))
        for scalar, numbers in zip(spec.coefficients, spec.terms, strict=True)
    )
    return KroneckerTerms(spec.sizes, terms, spec.cells, spec.transforms)


def _own(array: Array, dtype: np.dtype[Any], given: Blocks) -> Array:
    """Return a copy, or the array itself if nobody else can write to it, as for a ModeOperator.

    Its read-only flag is not sufficient: there may be writable views of the same memory.
    """
    is_private = getattr(given, "holds_copies", False) is True
    if is_private and array.dtype == dtype and array.flags.c_contiguous:
        return array
    return read_only_copies([array], dtype)[0]


def _check_size(matrix: BlockMatrix, size: tuple[int, int], name: str) -> None:
    """Check the size of a 1-D operator's blocks."""
    if matrix.blocks.shape[1:] != size:
        found, expected = ("×".join(map(str, own)) for own in (matrix.blocks.shape[1:], size))
        raise ValueError(f"{name} has {found} blocks; expected {expected}, n functions")
