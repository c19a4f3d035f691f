"""Passes of Krylov methods, and those that all methods share.

A pass goes once over the vectors of every system: it updates elements, sums over them, and then
sets the scalars that follow from the sums. It is a structure in ``csrc/krylov``, for the CPU and
for devices, of the same name; the vectors of a method are a tuple, in the order of the enum of the
same name there. The tests compare the names, and each pass with its formula in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from ...products import Vector

Vectors = TypeVar("Vectors", bound=tuple[Vector | None, ...])


@dataclass(frozen=True, slots=True)
class Pass(Generic[Vectors]):
    """A pass over the vectors of a method.

    ``name``: of its structure in csrc/krylov.
    ``vectors``: the tuple of the method's vectors.
    """

    name: str
    vectors: type[Vectors]


Stages: TypeAlias = Sequence[tuple[Pass[Any], Sequence[Vector]]]  # passes, and what they are over


class SharedVectors(NamedTuple):
    """The vectors of passes that all methods share: A x = b, r = b - A x, w the first product."""

    b: Vector | None = None
    r: Vector | None = None
    x: Vector | None = None
    w: Vector | None = None


Product: Pass[Any] = Pass("", tuple)  # y = A x of vectors (x, y), among passes of iterations
StartExtent = Pass("StartExtent", SharedVectors)  # r = b - r, max |b|, max |r|
StartNorms = Pass("StartNorms", SharedVectors)  # norms of b and r; x = 0 where b is
ScaleResidual = Pass("ScaleResidual", SharedVectors)  # r / norm of r
OperatorExtent = Pass("OperatorExtent", SharedVectors)  # max |w|: the unit of products
InnerProduct = Pass("InnerProduct", SharedVectors)  # b* r
TrueResidual = Pass("TrueResidual", SharedVectors)  # r = b - r, its norm, and what it says
