"""Where a warning points to: the user's call, however many calls of batchkron are between."""

from __future__ import annotations

import sys

__all__ = ["users_level"]

_BETWEEN = ("batchkron", "contextlib")  # contextlib calls what a context manager decorates


def users_level() -> int:
    """Return the ``stacklevel`` of `warnings.warn` for the first caller outside of batchkron."""
    level, frame = 1, sys._getframe(1)
    while (
        frame.f_back is not None
        and str(frame.f_globals.get("__name__", "")).split(".")[0] in _BETWEEN
    ):
        level, frame = level + 1, frame.f_back
    return level
