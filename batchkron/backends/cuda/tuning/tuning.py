"""Settings of tuning for plans that are built in a context, and its outcomes.

"The rule" is the choice of kernels without tuning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DEFAULT_SECONDS = 120.0  # time limit of the search for one shape, in seconds; chosen by hand
DEFAULT_CANDIDATES = 10_000  # limit of candidates for one shape; chosen by hand


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of tuning for one shape.

    Attributes
    ----------
    shape : str
        Description of the shape.
    rule_microseconds, microseconds : float
        Time of the rule's kernels, and of the fastest: equal if nothing was faster.
    tried, pruned, failed : int
        Candidates that were measured; that were left out because they need too many resources;
        that did not compile, could not be launched or gave wrong results.
    seconds : float
        Duration of the search.
    reasons : tuple of str
        Why candidates failed; the first twenty.
    is_complete : bool
        Whether all candidates were tried before a limit of time or number was reached.
    was_known : bool
        Whether an earlier search had found it.
    choice : object
        The choice as it is stored: a list of the kernel's parameters.
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
        """Speedup: the rule's time divided by the best time."""
        return self.rule_microseconds / self.microseconds


@dataclass(slots=True)
class Tuning:
    """How plans are tuned, and the outcomes.

    Attributes
    ----------
    seconds : float
        Time limit of the search for one shape.
    candidates : int
        Limit of the number of candidates for one shape.
    again : bool
        Search also shapes for which an earlier search has stored a result.
    progress : callable
        Called as ``progress(shape, looked_at, gain)`` after each candidate.
    outcomes : list of Outcome
        The outcomes of all shapes, in the order in which their plans were built.
    """

    seconds: float = DEFAULT_SECONDS
    candidates: int = DEFAULT_CANDIDATES
    again: bool = False
    progress: Callable[[str, int, float], object] | None = None
    outcomes: list[Outcome] = field(default_factory=list)


_wanted: ContextVar[Tuning | None] = ContextVar("tuning", default=None)

wanted_tuning: Callable[[], Tuning | None] = _wanted.get
"""Return how plans of this context are to be tuned, None to use the rule and the store only.

It is the method itself: eager calls of functions on a device call it each time.
"""


def tuning_for(tune: object) -> Tuning | None:
    """Return the tuning for the argument ``tune`` of a public function; TypeError if no bool."""
    if not isinstance(tune, (bool, np.bool_)):
        raise TypeError(f"tune is {tune!r}; expected a bool")
    return Tuning() if tune else None


@contextmanager
def tuned_plans(tuning: Tuning | None) -> Iterator[Tuning | None]:
    """Tune the device plans that are built in a ``with`` block; None changes nothing."""
    token = _wanted.set(tuning or _wanted.get())
    try:
        yield tuning
    finally:
        _wanted.reset(token)
