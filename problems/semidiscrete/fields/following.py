"""The terms that follow the state, and their product as a device repeats it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.backends import backend_on

from ..operators import TermGroup
from ..value import ProblemValue
from .terms import FieldTerms

__all__ = ["Following"]


class _StateProduct:
    """Overwrites a vector with A(u) u, of the terms that do not depend on time.

    It is what a device repeats by a graph, and so does not know the graph.
    """

    def __init__(self, groups: Sequence[TermGroup], terms: FieldTerms, t0: float) -> None:
        self._groups, self._terms, self._t0 = groups, terms, t0

    def __call__(self, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        t = self._t0  # on a device it is in no error text
        out[...] = 0.0
        for group in self._groups:
            group.accumulate(t, u, out)
        self._terms.accumulate(t, u, out)


class Following:
    """The terms with fields, and what a device repeats of A(u) u.

    Both are made at once: threads that ask for them at the same time may each get their own, but
    never terms that another one's graph changes.

    ``problem``: the problem's parts.
    ``steady``: returns the groups of terms without fields that do not depend on time.
    ``repeated``: A(u) u of all terms that do not depend on time, whose calls take turns; None where
      nothing is repeated.
    """

    def __init__(
        self, terms: FieldTerms, problem: ProblemValue, steady: Callable[[], Sequence[TermGroup]]
    ) -> None:
        self.terms = terms
        self.repeated: Any = None
        if problem.device != "cpu" and terms.is_repeatable:
            sizes = problem.unknowns, problem.unknowns
            self.repeated = backend_on(problem.device).repetition.repeated(
                _StateProduct(steady(), terms, problem.t0), sizes, problem.initial.dtype
            )

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Have the terms' operator alone, and know that it has changed."""
        with nullcontext() if self.repeated is None else self.repeated.turn():
            yield
        self.terms.note_replay()
