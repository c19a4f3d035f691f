"""Polynomial degrees and numbers of functions: one for all axes, or one for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

__all__ = [
    "Degree",
    "common_degree",
    "common_or_each",
    "degree_text",
    "of_each_axis",
    "sizes_of_degrees",
]

Degree: TypeAlias = int | tuple[int, ...]
"""The degree of all axes, or that of each."""


def of_each_axis(number: int | Sequence[int], dimensions: int) -> tuple[int, ...]:
    """Return a number for each axis, of one for all of them or one for each."""
    if isinstance(number, Sequence):
        if len(number) != dimensions:
            raise ValueError(f"{len(number)} numbers are given for {dimensions} axes")
        return tuple(number)
    return (number,) * dimensions


def common_or_each(degrees: Sequence[int]) -> Degree:
    """Return the degree that all axes have, or that of each where they differ."""
    first, *others = degrees
    return tuple(degrees) if any(other != first for other in others) else first


def common_degree(degrees: Sequence[int], what: str) -> int:
    """Return the degree that all axes have; ValueError where they differ, which ``what`` cannot."""
    if len(set(degrees)) > 1:
        given = ", ".join(map(str, degrees))
        raise ValueError(f"{what}: one degree is needed for all axes, and they have {given}")
    return degrees[0]


def degree_text(degree: Degree, names: Sequence[str]) -> str:
    """Return the degree in words, such as "2" or "2 along x, 3 along v"."""
    if isinstance(degree, int):
        return str(degree)
    return ", ".join(f"{own} along {name}" for own, name in zip(degree, names, strict=True))


def sizes_of_degrees(degree: Degree, dimensions: int) -> tuple[int, ...]:
    """Return the number of functions per cell along each axis, its degree plus one."""
    return tuple(own + 1 for own in of_each_axis(degree, dimensions))
