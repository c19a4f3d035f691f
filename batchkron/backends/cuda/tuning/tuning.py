"""Which plans for a device are tuned when they are built, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DEFAULT_SECONDS = 120.0  # limit of the search for one shape; chosen by hand
DEFAULT_CANDIDATES = 10_000  # limit of the search for one shape; chosen by hand


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found for a shape.

    Attributes
    ----------
    shape : str
        The shape in words.
    rule_microseconds, microseconds : float
        Of the rule's kernels, and of the best: the same where nothing was faster.
    tried, pruned, failed : int
        Candidates that were measured; that were left out for what they need; that did not compile,
        could not be launched or gave wrong results.
    seconds : float
        That the search took.
    reasons : tuple of str
        Why candidates failed; the first twenty.
    is_complete : bool
        Whether all candidates were looked at, within the bounds of time and number.
    was_known : bool
        Whether it was found by an earlier search.
    choice : object
        What the store has of it: a list of the knobs.
    """

    shape: str
    rule_microseconds: float
    microseconds: float
    tried: int = 0
    pruned: int = 0
    failed: int = 0
    seconds: float = 0.0
    reasons: tuple[str, ...] = ()
    is_complete: bool = True
    was_known: bool = False
    choice: Any = None

    @property
    def gain(self) -> float:
        """The rule's time over the best."""
        return self.rule_microseconds / self.microseconds


@dataclass(slots=True)
class Tuning:
    """How plans are tuned, and what came of it.

    Attributes
    ----------
    seconds : float
        A search of one shape ends after so long.
    candidates : int
        And after so many candidates.
    again : bool
        Search also where an earlier search has found something.
    progress : callable
        Called as ``progress(shape, looked_at, gain)`` after each candidate.
    outcomes : list of Outcome
        Of all shapes, in the order of their plans.
    """

    seconds: float = DEFAULT_SECONDS
    candidates: int = DEFAULT_CANDIDATES
    again: bool = False
    progress: Callable[[str, int, float], object] | None = None
    outcomes: list[Outcome] = field(default_factory=list)


_wanted: ContextVar[Tuning | None] = ContextVar("tuning", default=None)


def wanted_tuning() -> Tuning | None:
    """Return how the plans of this context are to be tuned; None: by the rule and the store."""
    return _wanted.get()


def tuning_for(tune: object) -> Tuning | None:
    """Return what the argument ``tune`` of a public function asks for.

    Raises
    ------
    TypeError
        If it is no bool.
    """
    if not isinstance(tune, (bool, np.bool_)):
        raise TypeError(f"tune is {tune!r}; expected a bool")
    return Tuning() if tune else None


@contextmanager
def tuned_plans(tuning: Tuning | None) -> Iterator[Tuning | None]:
    """Tune the plans for a device that are built in a ``with`` block; None changes nothing."""
    token = _wanted.set(tuning or _wanted.get())
    try:
        yield tuning
    finally:
        _wanted.reset(token)
