"""Sums of Kronecker products on a sparse grid, applied by sweeps along its fibres."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.attributes import attribute
from batchkron.backends import building_on
from batchkron.operators.algebra import Operator
from batchkron.operators.block_operator import BlockOperator
from batchkron.operators.kronecker_terms import Blocks, KroneckerTerms
from batchkron.operators.sparse_grid.added_cells import extended
from batchkron.operators.sparse_grid.fibres import Profiles
from batchkron.operators.sparse_grid.linked_blocks import LinkedBlocks, checked_places
from batchkron.operators.sparse_grid.listing import SweepProgram
from batchkron.operators.sparse_grid.order import Cells, SweepOrder, sweep_orders
from batchkron.operators.sparse_grid.rows import diagonal, rows_as_products
from batchkron.operators.sparse_grid.schedule import MatrixSums, Stage, needed_sweeps, passed
from batchkron.operators.sparse_grid.spec import (
    SweepSpec,
    checked_cells,
    checked_values,
    conjugated,
    of_dtype,
    sweep_spec,
    terms_of_sweeps,
    transposed,
    with_values,
)
from batchkron.operators.validation import (
    ValidationReport,
    chosen_blocks,
    validate_blocks,
    ways_to_apply,
)
from batchkron.spec.kron import Array

# Results that an operator of the same terms on another grid can reuse: for each mode the profiles
# of the fibres of the grid, and of the grid with added cells; and couplings of sums of matrices.
_Known: TypeAlias = tuple[dict[int, Profiles], dict[int, Profiles], MatrixSums]


def _count_beside(stage: Stage, num_cells: int) -> int:
    """Return how many cells outside the operator's grid the vectors between its sweeps have."""
    return int(passed(stage)[num_cells:].sum())


class SparseGridOperator(BlockOperator):
    """The operator Σ_t c_t A_t1 ⊗ … ⊗ A_td, restricted to the cells of a sparse grid.

    It is applied mode by mode along the grid's fibres, so that its cost grows with the number of
    cells times their levels, not with the number of coupled pairs of cells. A vector consists of
    one block of Π n_k elements per cell.

    Parameters
    ----------
    grid : SparseGrid, or array_like of int, (cells, modes)
        The cells, as multi-indices of 1-D hierarchical cells: 0 for level 0 and
        2^(l-1) + position for level l.
    terms : sequence of sequences of (ModeOperator or None)
        For each term one 1-D operator per mode: any object with ``rows``, ``columns`` and
        ``blocks``, where block b, n × n, maps 1-D cell ``columns[b]`` to ``rows[b]``. None is the
        identity and costs nothing. The same object in several terms is one operator: sweeps with
        which these terms begin in common are computed once. The entries are copied.
    n : int or sequence of int
        Basis functions per 1-D cell, for all modes or for each.
    coefficients : array_like, (terms,), optional
        The c_t; 1 by default.
    extend : bool
        Whether sweeps that would leave the grid may use additional cells, see Notes.
    transforms : sequence of (array_like (4, n, n) or None), optional
        For each mode the orthogonal two-scale filters H0, H1, G0, G1 of its hierarchical basis, for
        preconditioners (`KroneckerTerms.transforms`); products do not depend on them.

    inputs : int or sequence of int, optional
        Functions per 1-D cell of the vectors that it is applied to; n by default. They may differ
        along one mode, along which alone all terms act then, with blocks (n, inputs). Maps between
        other vectors are products of such operators.
    plus_identity : bool
        Whether the identity is added to the sum of the terms, without products.

    Attributes
    ----------
    num_added_cells : int
        Number of cells outside the grid that vectors between sweeps have.
    num_sweeps : int
        Number of sweeps of one apply.
    multiply_adds : int
        Multiply-adds of one apply to one vector.

    Raises
    ------
    ValueError
        If shapes do not fit; with ``extend=False`` if sweeps would leave the grid; if they might
        need millions of cells outside it; or if there would be too many sweeps.
    IndexError
        If a cell is out of range.
    TypeError
        If a dtype has no kernels, or cells are not integers.
    OverflowError
        If a cell's number of functions does not fit in 64 bits.

    Notes
    -----
    The 1-D operators of all modes of a term but one are split into two parts: blocks to the same or
    a coarser level, applied first, and blocks to a finer level, applied last. (Without blocks to a
    coarser level, those to the same are applied last, so that a part is empty.) The vectors between
    need no cells outside the grid in two cases: if the grid is closed downward and the blocks of
    the split modes couple cells with their ancestors and descendants only; or if the grid has all
    cells of each of its level multi-indices, for any blocks. Otherwise (several modes with fluxes
    on an adaptive grid, or grids with gaps) the sweeps use additional cells, `num_added_cells`; the
    operator is the same. The transpose and other relatives extend the grid if necessary. This may
    happen even if the operator has ``extend=False``: if its 1-D operators couple cells of one level
    in one direction only.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> from batchkron.problems import ModeOperator, SparseGrid
    >>> double = ModeOperator.from_dense(2 * np.eye(2), n=1)
    >>> op = bk.SparseGridOperator(SparseGrid.sparse([1, 1]), [(double, None), (double, double)], 1)
    >>> op.apply([[1.0], [10.0], [100.0]]).ravel()
    array([  6.,  60., 600.])
    """

    _linked: LinkedBlocks | None = None
    _stored_spec: SweepSpec

    def __init__(
        self,
        grid: Any,
        terms: Sequence[Sequence[Blocks | None]],
        n: int | Sequence[int],
        *,
        coefficients: ArrayLike | None = None,
        extend: bool = True,
        transforms: Sequence[ArrayLike | None] | None = None,
        inputs: int | Sequence[int] | None = None,
        plus_identity: bool = False,
    ) -> None:
        spec = sweep_spec(grid, terms, n, coefficients, transforms, inputs, plus_identity)
        self._prepare(spec, extend)

    @classmethod
    def _from_spec(cls, spec: SweepSpec) -> SparseGridOperator:
        """Build the operator from validated terms."""
        operator = cls.__new__(cls)
        operator._prepare(spec, True)
        return operator

    def _prepare(self, spec: SweepSpec, extend: bool, known: _Known = ({}, {}, {})) -> None:
        grid = Cells(spec.cells, known[0])
        ordered = sweep_orders(spec, grid)
        hull = extended(grid, ordered, spec.matrices, known[1])
        sums = dict(known[2])

        def sweeps_of(some: Sequence[SweepOrder]) -> Stage:
            return needed_sweeps(spec, some, hull, len(grid), sums)

        stage = sweeps_of(ordered)
        num_added = _count_beside(stage, len(grid))
        if num_added and not extend:
            outside = [w.term for w in ordered if _count_beside(sweeps_of([w]), len(grid))]
            raise ValueError(
                f"sweeps of terms {outside} pass through {num_added} cells that the grid of "
                f"{len(grid)} lacks; pass extend=True, or use a BatchedKron"
            )
        self._spec = spec
        self._program = SweepProgram(spec, stage)
        used = {matrix.connections for matrix in spec.matrices}
        used |= {connections for _, connections, _ in sums.values()}
        for profiles in (*grid.profiles.values(), *hull.profiles.values()):
            profiles.forget_others(used)
        self._known = grid.profiles, hull.profiles, sums
        self._input_shape = len(grid), spec.input_block_size
        self._output_shape = len(grid), spec.block_size
        self.num_added_cells = num_added
        rows, columns = (math.prod(shape) for shape in (self._output_shape, self._input_shape))
        super().__init__((rows, columns), spec.dtype)
        self._apply_fast = self._program.apply_fast

    def on_grid(self, grid: Any, *, extend: bool = True) -> SparseGridOperator:
        """Return the operator of the same terms on another grid, such as a refined one.

        It is equal, bit by bit, to one that is built from the terms, but built faster: the 1-D
        operators are shared, and couplings are computed only for sets of cells along fibres
        (profiles) that this operator's grid does not have (`num_new_profiles`). An `update` of one
        operator does not change the other.

        Parameters
        ----------
        grid : SparseGrid, or array_like of int, (cells, modes)
            The cells of the other grid.
        extend : bool
            As for the class.

        Returns
        -------
        SparseGridOperator
            The operator, on the same device.

        Raises
        ------
        ValueError, IndexError, TypeError
            As for the class, if the grid is not valid.

        Examples
        --------
        >>> import numpy as np, batchkron as bk
        >>> from batchkron.problems import ModeOperator, SparseGrid
        >>> double = ModeOperator.from_dense(2 * np.eye(8), n=1)
        >>> op = bk.SparseGridOperator(SparseGrid.sparse([2, 2]), [(double, double)], 1)
        >>> op.num_profiles, op.num_new_profiles
        (6, 6)
        >>> finer = op.on_grid(SparseGrid.sparse([3, 3]))
        >>> finer.shape, finer.num_profiles, finer.num_new_profiles
        ((20, 20), 8, 2)
        """
        cells = checked_cells(attribute(grid, "cells", grid))
        modes = len(self._spec.sizes)
        if cells.shape[1] != modes:
            raise ValueError(f"the grid has {cells.shape[1]} axes; expected {modes}")
        operator = type(self).__new__(type(self))
        with building_on(self._backend):
            operator._prepare(replace(self._spec, cells=cells), extend, self._known)
        return operator

    def _recipe(self) -> tuple[Any, ...]:
        return SparseGridOperator._from_spec, (self._spec,)

    @property
    def num_inputs(self) -> int:
        """Number of cells."""
        return self._input_shape[0]

    @property
    def num_sweeps(self) -> int:
        """Number of sweeps of one apply."""
        return self._program.num_sweeps

    @property
    def num_profiles(self) -> int:
        """Number of distinct sets of 1-D cells along the fibres of its sweeps, over all modes."""
        return sum(map(len, self._known[1].values()))

    @property
    def num_new_profiles(self) -> int:
        """Number of these sets whose couplings were computed here: all, except after `on_grid`."""
        return sum(profiles.num_new for profiles in self._known[1].values())

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of one apply to one vector."""
        return self._program.multiply_adds

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        self._program.run(x, y, outer, inner, alpha, accumulate)

    def _bind(self, x: Array, y: Array) -> Callable[[], object] | None:
        return self._program.bind(x, y)

    def _reserve(self, outer: int, inner: int) -> None:
        self._program.reserve(outer, inner)

    def update(
        self, blocks: Sequence[ArrayLike] | None = None, coefficients: ArrayLike | None = None
    ) -> None:
        """Replace blocks or coefficients by others of the same shapes, in place.

        This changes .T, .H, converted and composed operators, too, and captured CUDA graphs. A
        product that another thread is computing ends with the old values; an update on a device
        waits for all earlier work there.

        Parameters
        ----------
        blocks : sequence of array_like, (count, n, n), optional
            The blocks of each distinct 1-D operator, in the order of their first use in the terms.
        coefficients : array_like, (terms,), optional

        Raises
        ------
        ValueError
            If a number of arrays or a shape differs.
        TypeError
            If a dtype cannot be converted to the operator's.
        """
        self._update(*checked_values(self._spec, blocks, coefficients))

    def _assign(self, matrices: Sequence[Array], weights: Array | None) -> None:
        self._spec = with_values(self._spec, matrices, weights)
        self._program.set_values(self._spec)

    def link(self, places: Mapping[int, NDArray[np.int64]], count: int) -> LinkedBlocks:
        """Make the blocks of some 1-D operators entries of one vector, for frequent updates.

        After values have been written to the vector, its `LinkedBlocks.update` replaces the blocks
        where the operator is: on a device without the host, unless the operator has relatives (a
        transpose, a copy elsewhere), which are updated, too. A later `link` takes the place of an
        earlier one.

        Parameters
        ----------
        places : mapping of int to ndarray of int, (count_m, n, n)
            For each of these 1-D operators, numbered in the order of their first use in the terms,
            where in the vector the entries of its blocks are.
        count : int
            The vector's length.

        Returns
        -------
        LinkedBlocks
            The operator keeps its blocks until the first update.

        Raises
        ------
        ValueError
            If a number or shape is wrong, or a sweep adds one of these operators and another one:
            then `update` is the way.
        IndexError
            If a place is out of range.

        Examples
        --------
        >>> import numpy as np, batchkron as bk
        >>> from batchkron.problems import ModeOperator, SparseGrid
        >>> double = ModeOperator.from_dense(2 * np.eye(2), n=1)
        >>> op = bk.SparseGridOperator(SparseGrid.sparse([1]), [(double,)], 1)
        >>> linked = op.link({0: np.arange(len(double.blocks)).reshape(-1, 1, 1)}, 4)
        >>> linked.values[:] = 3.0
        >>> linked.update()
        >>> op.apply([[1.0], [10.0]]).ravel()
        array([ 3., 30.])
        """
        spec = self._spec
        checked = checked_places(spec, places, count)
        with building_on(self._backend):
            values = self._program.link(checked, count, spec)
        self._linked = LinkedBlocks(values, checked, self._take_linked, self._has_no_relatives)
        return self._linked

    def _take_linked(self) -> None:
        """Replace blocks by those of the linked vector."""
        if self._has_no_relatives():
            self._program.gather()
        else:
            self.update([matrix.blocks for matrix in self._spec.matrices])

    def _has_no_relatives(self) -> bool:
        return all(relative is self for relative in self._relatives.values())

    @property
    def _spec(self) -> SweepSpec:
        if self._linked is not None:
            self._stored_spec = self._linked.into(self._stored_spec)
        return self._stored_spec

    @_spec.setter
    def _spec(self, spec: SweepSpec) -> None:
        if self._linked is not None:
            self._linked.forget()
        self._stored_spec = spec

    def _build_on(self, device: str) -> SparseGridOperator:
        return SparseGridOperator._from_spec(self._spec)

    def _build_transpose(self) -> SparseGridOperator:
        return SparseGridOperator._from_spec(transposed(self._spec))

    def _build_conjugate(self) -> SparseGridOperator:
        return SparseGridOperator._from_spec(conjugated(self._spec))

    def _build_as(self, dtype: np.dtype[Any]) -> SparseGridOperator:
        return SparseGridOperator._from_spec(of_dtype(self._spec, dtype))

    def kronecker_terms(self) -> KroneckerTerms:
        """Return the terms on the cells of the grid."""
        return terms_of_sweeps(self._spec)

    def diagonal(self) -> Array:
        """Return the diagonal, (N,), from the factors' diagonals."""
        if self.shape[0] != self.shape[1]:
            raise ValueError(f"the operator has shape {self.shape}; expected a square one")
        result = diagonal(self._spec).reshape(-1)
        return self._arrays.asarray(result)  # type: ignore[no-any-return]

    def validate(
        self,
        samples: int | None = None,
        seed: int = 0,
        *,
        apply: Operator | Callable[[Array], Array] | None = None,
    ) -> ValidationReport:
        """Compare the sweeps with dense Kronecker products of coupled cells on random vectors.

        Compared are products of one vector and of several, with `apply`, with `accumulate` for
        alpha = 1 and another value, and with the transpose.

        Parameters
        ----------
        samples : int, optional
            Number of output blocks to check, drawn at random; all by default. The cost of each is
            proportional to the number of cells.
        seed : int
            Seed of the random vectors and of the choice of blocks.
        apply : Operator or callable, optional
            Compared instead of the sweeps: another operator with the same matrix, or a function
            that computes the product with one vector of blocks (cells, Π n_k).

        Returns
        -------
        ValidationReport
            The largest ratio of an error to its bound, the product where it occurs, and whether it
            is at most 1.

        Raises
        ------
        ValueError
            If ``samples`` is less than 1.
        """
        rows = chosen_blocks(self._output_shape[0], samples, seed)
        products = rows_as_products(self._spec, rows)
        chosen = self if apply is None else apply
        if isinstance(chosen, Operator):
            ways = ways_to_apply(chosen, self._input_shape, self._output_shape)
            return validate_blocks(products, ways, rows, self._output_shape[0], seed)
        return validate_blocks(products, chosen, rows, self._output_shape[0], seed)

    def describe(self) -> str:
        """Return a text with the grid's size, the sweeps of one apply, and their cost."""
        cells, size = self._input_shape
        edges = self._program.num_edges
        return (
            f"{super().describe()}: {len(self._spec.terms)} terms on {cells} cells of {size}\n"
            f"  {self.num_sweeps} sweeps, {self.multiply_adds} multiply-adds, {edges} pairs of "
            f"cells, {self.num_added_cells} added cells"
        )
