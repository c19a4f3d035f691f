"""What is known from the last solves: work that a device repeats as graphs, and iterations."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from ..systems.system import LinearSystem
from ..vectors.space import Passes, Recorder

# Solves whose iterations are remembered: as many as an IMEX method has stages. One iteration too
# many costs less than one too few, after which a device has to be waited for twice.
_REMEMBERED = 4
# Addresses of right-hand sides for which that is done. Stages that are iterated have two.
_MAX_ADDRESSES = 2


class Recordings:
    """Work on a device that is done with the least effort, as long as the operators are the same.

    ``recorder``: of the device.
    ``system``: its operators.
    ``launch``: iterations that the device does in one launch.
    """

    def __init__(self, recorder: Recorder, system: LinearSystem, launch: Passes | None) -> None:
        self.recorder, self.launch = recorder, launch
        self._operators = [_reference(operator) for operator in system.operators]
        self._products: dict[Any, tuple[int, int]] = {}

    def fit(self, system: LinearSystem) -> bool:
        """Return whether a system has the operators of these recordings."""
        pairs = zip(self._operators, system.operators, strict=True)
        return all(known() is operator for known, operator in pairs)

    def run(self, system: LinearSystem, key: Any, work: Callable[[], None]) -> bool:
        """Do work, which is the same for the same key, and count its products.

        Returns whether it was done by a graph, without calling ``work``.
        """
        before = system.applications, system.preconditioner_applications
        if not self.recorder.run(key, work):
            after = system.applications, system.preconditioner_applications
            self._products[key] = after[0] - before[0], after[1] - before[1]
            return False
        system.applications += self._products[key][0]
        system.preconditioner_applications += self._products[key][1]
        return True


def _reference(operator: Any) -> Callable[[], Any]:
    """Return what returns the operator, as long as others keep it."""
    return (lambda: None) if operator is None else weakref.ref(operator)


class IterationCounts:
    """The iterations that the last solves took."""

    def __init__(self) -> None:
        self.latest = 0
        self._at: dict[int, deque[int]] = {}

    def at(self, address: int) -> deque[int]:
        """Return those of the last right-hand sides at an address."""
        known = self._at.get(address)
        if known is None:
            while len(self._at) >= _MAX_ADDRESSES:
                self._at.pop(next(iter(self._at)))
            known = self._at[address] = deque(maxlen=_REMEMBERED)
        return known
