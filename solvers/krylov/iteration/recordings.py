"""Work that a device repeats as graphs, and the products with the operators that it contains."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ..systems.system import LinearSystem
from ..vectors.space import Recorder


class Recordings:
    """Work on a device that is done with the least effort, as long as the operators are the same.

    Parameters
    ----------
    recorder : Recorder
        Of the device.
    system : LinearSystem
        Its operators.
    """

    def __init__(self, recorder: Recorder, system: LinearSystem) -> None:
        self.recorder = recorder
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
