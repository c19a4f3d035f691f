"""Operators whose entries can be replaced."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

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

    def _update(self, matrices: Sequence[Array], weights: Array | None, done: set[int]) -> None:
        """Assign new values here, and their transposes, conjugates and conversions to relatives.

        ``done`` has the ids of operators that have them already.
        """
        with relatives_lock:  # so that no relative is built from the old values meanwhile
            done.add(id(self))
            self._assign(matrices, weights)
            for kind, relative in self._relatives.items():
                if id(relative) in done or not isinstance(relative, ValuedOperator):
                    continue
                if kind == "transpose":
                    relative._update([m.swapaxes(-1, -2) for m in matrices], weights, done)
                elif kind == "conjugate":
                    conjugate = None if weights is None else weights.conj()
                    conjugates = [m if is_identity(m) else m.conj() for m in matrices]
                    relative._update(conjugates, conjugate, done)
                else:
                    relative._update(matrices, weights, done)
