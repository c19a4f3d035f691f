"""What this package needs of a problem: its exact solution, and what is read off its states."""

from __future__ import annotations

from ..exact_comparison import ExactComparison
from ..fields.observables import Observables

__all__ = ["Showable"]


class Showable(ExactComparison, Observables):
    """A problem whose states can be shown."""
