"""Operators whose vectors are blocks on the ranks of a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast, overload

import numpy as np
from numpy.typing import ArrayLike

from batchkron.array_kinds import native_entries
from batchkron.arrays import as_list
from batchkron.attributes import attribute
from batchkron.distributed.communication.communicator import Communicator
from batchkron.distributed.grid import Grid
from batchkron.distributed.traffic_plan import TrafficPlan, volume_of
from batchkron.distributed.vectors.layout import Layout
from batchkron.distributed.vectors.movement import check_root, gather, scatter
from batchkron.operators import Operator
from batchkron.operators.valued_operator import ValuedOperator
from batchkron.spec.identities import Factor, with_marks_as_matrices
from batchkron.spec.kron import Array, dense_factors, same_shapes

__all__ = ["DistributedFactors", "DistributedOperator", "Ranks", "Volume", "distributed_parts"]


@dataclass(frozen=True)
class Ranks:
    """The ranks of an operator.

    ``grid`` (tuple of int, (G_M, G_K)).
    ``of_vector``: the G_K ranks that share this rank's vectors.
    """

    all: Communicator
    grid: Grid
    of_vector: Communicator


@dataclass(frozen=True, slots=True)
class Volume:
    """What ranks send to each other in one product.

    Attributes
    ----------
    exchanges : int
        How many times they do.
    elements, bytes : int
        Of all vectors, by all ranks.
    own_elements, own_bytes : int
        By this rank.
    """

    exchanges: int
    elements: int
    bytes: int
    own_elements: int
    own_bytes: int


class DistributedOperator(ValuedOperator):
    """A linear operator of which each rank has a block of every vector.

    It is made by `distribute`, on every rank. ``shape`` is that of this rank's block: ``apply``
    takes and returns blocks, and every rank calls it at the same time. Sums, multiples and products
    of such operators, and solvers, work on blocks likewise.

    Attributes
    ----------
    layout, output_layout : Layout
        Who owns what of x and of y = A x.
    communicator : Communicator
        The ranks that share this rank's vectors; dot products of vectors are sums over them.
    """

    def __init__(
        self,
        ranks: Ranks,
        layout: Layout,
        output_layout: Layout,
        dtype: np.dtype[Any],
        plan: TrafficPlan,
    ) -> None:
        self.ranks, self.layout, self.output_layout = ranks, layout, output_layout
        self._traffic_plan = plan
        rank = ranks.all.rank
        super().__init__((output_layout.part(rank), layout.part(rank)), dtype)

    def _layouts(self) -> tuple[Layout, Layout]:
        return self.layout, self.output_layout

    @property
    def communicator(self) -> Communicator:
        """The ranks that share this rank's vectors."""
        return self.ranks.of_vector

    @property
    def capturable(self) -> bool:
        """Whether products on a device may be captured in CUDA graphs."""
        return self.communicator.size == 1 or self.communicator.capturable

    @property
    def T(self) -> DistributedOperator:
        """The transpose, built on the first request."""
        return cast(DistributedOperator, self._transpose())

    @property
    def H(self) -> DistributedOperator:
        """The adjoint (conjugate transpose), built on the first request."""
        return cast(DistributedOperator, self._adjoint())

    def scatter(self, x: ArrayLike | None = None, root: int | None = None) -> Array:
        """Return this rank's block of x.

        Parameters
        ----------
        x : array_like, (N,), (rows, N), or (..., N) if the grid has one row
            The whole vectors, the same on every rank, or on rank ``root``; then None on others.
            Of an operator on a device they may be on the host.
        root : int, optional
            The only rank that has x, which sends each rank its block.

        Returns
        -------
        ndarray, (n,), (rows of this rank, n) or (..., n)

        Raises
        ------
        ValueError
            If x does not fit, or there is no rank ``root``; on every rank.
        TypeError
            If x is None and should not be, or has a dtype without kernels.
        """
        ranks = self.ranks.all
        return scatter(self.layout, ranks, x, check_root(root, ranks.size), self._arrays)

    @overload
    def gather(self, y: ArrayLike, root: None = None, *, layout: Layout | None = None) -> Array: ...
    @overload
    def gather(self, y: ArrayLike, root: int, *, layout: Layout | None = None) -> Array | None: ...
    def gather(
        self, y: ArrayLike, root: int | None = None, *, layout: Layout | None = None
    ) -> Array | None:
        """Return the whole of vectors of which this rank has a block.

        Parameters
        ----------
        y : array_like, (m,), (rows of this rank, m), or (..., m) if the grid has one row
            This rank's block of vectors such as A x.
        root : int, optional
            The only rank that needs the result.
        layout : Layout, optional
            Of y: ``output_layout`` by default.

        Returns
        -------
        ndarray or None
            (M,), (rows, M) or (..., M), in the order of one process; None on ranks other than
            ``root``.

        Raises
        ------
        ValueError
            If y does not fit, or there is no rank ``root``.
        """
        ranks = self.ranks.all
        given = self.output_layout if layout is None else layout
        return gather(given, ranks, y, check_root(root, ranks.size), self._arrays)

    def volume(self) -> Volume:
        """Return what is sent in a product with ``layout.rows`` vectors, by plan.

        Returns
        -------
        Volume
            ``own_elements`` is what ``communicator.traffic`` counts in one `apply`.
        """
        plan, size = self._traffic_plan, self.dtype.itemsize
        rows = self.layout.rows_of(self.ranks.all.rank)
        own = (rows.stop - rows.start) * plan.sent(self.communicator.rank)
        total = self.layout.rows * volume_of(plan)
        return Volume(plan.num_exchanges, total, total * size, own, own * size)

    def describe(self) -> str:
        """Return a text with the grid, and what is sent."""
        (along, across), volume = self.ranks.grid, self.volume()
        return (
            f"{super().describe()}, a block of {self.output_layout.size}×{self.layout.size}\n"
            f"  on a grid of {along} × {across} ranks, {self.layout.rows} vectors\n"
            f"  {volume.exchanges} exchanges, {volume.bytes} bytes sent in a product"
        )

    def to_dense(self) -> NoReturn:
        """Raise TypeError: no rank has the whole matrix."""
        self._no_whole_matrix("to_dense")

    def diagonal(self) -> NoReturn:
        """Raise TypeError: no rank has the whole matrix."""
        self._no_whole_matrix("diagonal")

    def trace(self) -> NoReturn:
        """Raise TypeError: no rank has the whole matrix."""
        self._no_whole_matrix("trace")

    def _recipe(self) -> tuple[Callable[..., Operator], tuple[Any, ...]]:
        raise TypeError(
            "a distributed operator cannot be copied or pickled: its ranks are running processes. "
            "Pickle the operator that was distributed, and distribute it again"
        )

    def _build_on(self, device: str) -> Operator:
        raise TypeError(
            f"a distributed operator stays on {self.device!r}, where its vectors are; distribute "
            f"the whole operator's to({device!r})"
        )


class DistributedFactors(DistributedOperator):
    """A distributed operator with factors that all ranks have, ``factors``."""

    factors: tuple[Array, ...]

    def update(self, factors: Sequence[Factor]) -> None:
        """Replace the factors by others of the same shapes, in place, here and in .T, .H, ….

        Every rank does this.

        ``factors`` (sequence of array_like or `Identity`, each of the old factor's shape).

        Raises `ValueError`, `TypeError` as for `KroneckerProduct.update`.
        """
        given = as_list(native_entries(dense_factors(factors), "factors"), "factors")
        matrices = with_marks_as_matrices(given, self.dtype)
        self._update(same_shapes(matrices, self.factors, self.dtype, "factors"), None)


def distributed_parts(operator: Any) -> list[DistributedOperator]:
    """Return the distributed operators that a sum, multiple or composition is made of.

    ``operator``: or an object with one in its attribute ``operator``.

    Result: [operator] if it is one; [] if there are none.
    """
    if isinstance(operator, DistributedOperator):
        return [operator]
    inner = (
        operator.args if isinstance(operator, Operator) else [attribute(operator, "operator", ())]
    )
    parts = [part for part in inner if isinstance(part, Operator)]
    return [found for part in parts for found in distributed_parts(part)]
