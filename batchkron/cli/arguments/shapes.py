"""Products on the command line, such as 1024:8^5, and 25088:1,192,48,2 of a sparse matrix."""

from __future__ import annotations

import re
from typing import TypeAlias

import click

from batchkron.spec.kron_sparse import Pattern

__all__ = ["KronShape", "SparseProduct", "kron_shapes", "sparse_products"]

_FACTORS = re.compile(r"([0-9]{1,6})(?:x([0-9]{1,6}))?(?:\^([0-9]{1,2}))?", re.ASCII)
_PATTERN = re.compile(r"([0-9]{1,10}):" + ",".join(4 * [r"([0-9]{1,9})"]), re.ASCII)
_ROWS = re.compile(r"[0-9]{1,10}", re.ASCII)


KronShape: TypeAlias = tuple[int, list[tuple[int, int]]]
"""A Kron-Matmul: the rows of x, and the shapes (P, Q) of the factors."""

SparseProduct: TypeAlias = tuple[int, Pattern]
"""A product with a Kronecker-sparse matrix: the number of vectors, and the matrix's pattern."""


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


def sparse_products(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[SparseProduct, ...]:
    """Return products from texts of vectors, a colon and a pattern, "25088:1,192,48,2".

    Raises `click.BadParameter` if a text is not of this form, or a number is 0.
    """
    found = []
    for text in value:
        match = _PATTERN.fullmatch(text)
        vectors, *pattern = map(int, match.groups()) if match else (0,)
        if not vectors or 0 in pattern:
            raise click.BadParameter(
                f"{text!r} is no pattern; expected vectors and four sizes such as 25088:1,192,48,2."
            )
        found.append((vectors, Pattern(*pattern)))
    return tuple(found)
