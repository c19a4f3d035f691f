"""Blocks of 1-D operators that are entries of one vector, for values that change at each use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import to_host
from batchkron.operators.sparse_grid.spec import SweepSpec
from batchkron.spec.kron import Array

__all__ = ["LinkedBlocks", "checked_places"]

_Places = NDArray[np.int64]


class LinkedBlocks:
    """The blocks of some 1-D operators of a `SparseGridOperator`, as entries of one vector.

    `SparseGridOperator.link` returns it. Write to ``values`` and call `update`.

    ``values`` (ndarray, shape (count,)): the vector, where the operator is, of its dtype; zeros at
      first.
    """

    def __init__(
        self,
        values: Array,
        places: Mapping[int, _Places],
        assign: Callable[[], None],
        is_alone: Callable[[], bool],
    ) -> None:
        self.values, self._places, self._assign = values, dict(places), assign
        self._is_ahead, self._is_alone = False, is_alone

    @property
    def is_repeatable(self) -> bool:
        """Whether `update` may be captured in a graph: if the operator has no relatives.

        After a replay, say so by `note_replay`.
        """
        return self._is_alone()

    def note_replay(self) -> None:
        """Say that a graph may have done what `update` does."""
        self._is_ahead = True

    def update(self) -> None:
        """Replace the blocks by the present entries of ``values``.

        Nothing is planned or checked. On a device this is work of the current stream, which also
        has to be the one of products.
        """
        self._is_ahead = True
        self._assign()

    def into(self, spec: SweepSpec) -> SweepSpec:
        """Return a specification with the blocks of the last `update`, if that was not yet done."""
        if not self._is_ahead:
            return spec
        self._is_ahead = False
        values = to_host(self.values, "values")
        matrices = list(spec.matrices)
        for number, places in self._places.items():
            blocks = values[places]
            blocks.flags.writeable = False
            matrices[number] = matrices[number]._replace(blocks=blocks)
        return replace(spec, matrices=tuple(matrices))

    def forget(self) -> None:
        """Take the blocks of the specification for the present ones."""
        self._is_ahead = False


def checked_places(
    spec: SweepSpec, places: Mapping[int, NDArray[np.int64]], count: int
) -> dict[int, _Places]:
    """Return places as int64 arrays, after checking that they fit the operators' blocks."""
    found = {}
    for number, given in places.items():
        if not 0 <= number < len(spec.matrices):
            raise ValueError(
                f"places has the 1-D operator {number}; the operator has {len(spec.matrices)}"
            )
        array = np.asarray(given)
        expected = spec.matrices[number].blocks.shape
        if array.shape != expected or array.dtype.kind not in "iu":
            raise ValueError(
                f"places[{number}] has shape {array.shape} and dtype {array.dtype}; expected "
                f"integers of shape {expected}, one for each entry of the blocks"
            )
        if array.size and not (array.min() >= 0 and array.max() < count):
            raise IndexError(f"places[{number}] is not from 0 to {count - 1} everywhere")
        found[number] = array.astype(np.int64, copy=False)
    return found
