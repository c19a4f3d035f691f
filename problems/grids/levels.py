"""Levels: an axis of level l is halved l times, into 2^l finest cells."""

from __future__ import annotations

from ..statement.number_checks import check_integer

__all__ = ["MAX_LEVEL", "check_level"]

MAX_LEVEL = 30  # 2^30 finest cells along an axis


def check_level(level: int) -> int:
    """Return the level as an int; it has to be one in 0 … ``MAX_LEVEL``."""
    return check_integer("level", level, MAX_LEVEL)
