"""What a misspelt word on the command line may stand for."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean"]


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return " Did you mean X or Y?" with the most similar names, or nothing."""
    close = get_close_matches(word.lower().replace("_", "-"), list(names), cutoff=0.5)
    return f" Did you mean {' or '.join(close)}?" if close else ""
