"""Operators whose entries can be replaced."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from batchkron.operators.algebra import Operator
from batchkron.operators.conversions import relatives_lock
from batchkron.spec.identities import is_identity
from batchkron.spec.kron import Array

__all__ = ["ValuedOperator"]


class ValuedOperator(Operator):
    """An operator whose entries can be replaced in place.

    Its relatives (transpose, conjugate, copies in other dtypes and on other devices) are updated,
    too.
    """

    @abstractmethod
    def _assign(self, matrices: Sequence[Array], weights: Array | None) -> None:
        """Copy checked matrices (..., P_k, Q_k), one array per mode, and weights, in place."""

    def _assignment(self, matrices: Sequence[Array], weights: Array | None) -> Callable[[], object]:
        """Return a call of `_assign`; what may be refused or fail before it is done already."""
        return partial(self._assign, matrices, weights)

    def _update(self, matrices: Sequence[Array], weights: Array | None) -> None:
        """Assign new values here, and their transposes, conjugates and conversions to relatives."""
        with relatives_lock:  # so that no relative is built from the old values meanwhile
            assignments = list(self._assignments(matrices, weights, set()))
            for assign in assignments:
                assign()

    def _assignments(
        self, matrices: Sequence[Array], weights: Array | None, done: set[int]
    ) -> Iterator[Callable[[], object]]:
        """Yield the assignments of this operator and of its relatives.

        ``done`` has the ids of operators that have one already.
        """
        done.add(id(self))
        yield self._assignment(matrices, weights)
        for kind, relative in self._relatives.items():
            if id(relative) in done or not isinstance(relative, ValuedOperator):
                continue
            values, scales = matrices, weights
            if kind == "transpose":
                values = [m.swapaxes(-1, -2) for m in matrices]
            elif kind == "conjugate":
                values = [m if is_identity(m) else m.conj() for m in matrices]
                scales = None if weights is None else weights.conj()
            yield from relative._assignments(values, scales, done)
