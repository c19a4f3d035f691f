"""Shapes of Kron-Matmuls on the command line, such as 1024:8^5."""

from __future__ import annotations

import re
from typing import TypeAlias

import click

__all__ = ["KronShape", "kron_shapes"]

_FACTORS = re.compile(r"([0-9]{1,6})(?:x([0-9]{1,6}))?(?:\^([0-9]{1,2}))?", re.ASCII)
_ROWS = re.compile(r"[0-9]{1,10}", re.ASCII)


KronShape: TypeAlias = tuple[int, list[tuple[int, int]]]
"""A Kron-Matmul: the rows of x, and the shapes (P, Q) of the factors."""


def kron_shapes(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[KronShape, ...]:
    """Return shapes from texts of rows, a colon and factors: "1024:8^5" or "10:52x50,65x20".

    Raises `click.BadParameter` if a text is not of this form.
    """
    return tuple(map(_shape, value))


def _shape(text: str) -> KronShape:
    rows, colon, factors = text.partition(":")
    found = [_FACTORS.fullmatch(word) for word in factors.split(",")]
    sizes: list[tuple[int, int]] = []
    for match in found:
        if match is not None:
            P = int(match[1])
            sizes += [(P, int(match[2] or P))] * int(match[3] or 1)
    sound = bool(colon) and bool(_ROWS.fullmatch(rows)) and None not in found and bool(sizes)
    if not sound or not int(rows) or any(0 in pair for pair in sizes):
        raise click.BadParameter(
            f"{text!r} is no shape; expected rows and factors such as 1024:8^5 or 10:52x50,65x20."
        )
    return int(rows), sizes
