"""Formatting of printed text: lines without control characters, tables, and numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["finite", "number", "one_line", "plural", "printable", "table"]


def printable(text: str) -> str:
    r"""Return a text with all control characters escaped, which could control a terminal.

    ``text``: a text, perhaps from a file that cannot be trusted.

    Returns the text; line feeds are kept.

    Examples
    --------
    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )


def one_line(text: str) -> str:
    """Return a text as a single line.

    ``text``: any text.

    Returns the lines joined by spaces.
    """
    return printable(" ".join(text.split()))


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with some significant digits, "unknown" for None.

    Examples
    --------
    >>> number(0.000670712)
    '0.0006707'
    """
    return "unknown" if value is None else f"{value:.{digits}g}"


def finite(value: float | None) -> float | None:
    """Return the value, or None for NaN and infinity, which JSON does not have.

    Examples
    --------
    >>> finite(float("nan")) is None
    True
    """
    return value if value is not None and math.isfinite(value) else None


def plural(count: int, noun: str) -> str:
    """Return "1 cell", "2 cells".

    Examples
    --------
    >>> plural(1, "cell"), plural(2, "cell")
    ('1 cell', '2 cells')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and texts.

    ``rows``: a name and a text for each row; a text may have several lines.

    Returns the table; all texts begin in the same column.

    Examples
    --------
    >>> print(table([("steps", "3"), ("L2 error", "0.1")]))
    steps     3
    L2 error  0.1
    """
    listed = list(rows)
    width = max((len(name) for name, _ in listed), default=0) + 2
    lines = []
    for name, text in listed:
        first, *others = printable(text).split("\n")
        lines.append(f"{name:<{width}}{first}".rstrip())
        lines.extend(f"{'':<{width}}{line}".rstrip() for line in others)
    return "\n".join(lines)
