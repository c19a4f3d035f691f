"""Inverses on many full grids at once, which share the products along their longest modes.

A full grid of a sparse grid is long in one mode and short in the others. Along its longest mode it
consists of fibres. Grids with the same longest mode and level form a section; a coarser one has
some of the fibres of a finer one. So the products with the large matrices are done once per
section. Sections of several modes with equal matrices form a bundle and are also done together. The
remaining work of each grid is small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.operators import KroneckerProduct, on_device

from .bases import ModeBasis, dtype_of_solves
from .subgrids import Subgrid

__all__ = ["SharedModes"]

Vector: TypeAlias = NDArray[Any]
Bases: TypeAlias = Sequence[ModeBasis]


class SharedModes:
    """Σ_l c_l P_l V_l D_l⁻¹ F_l P_l* over full grids l, V_l, F_l and D_l as in `DiagonalInverse`.

    ``bases`` are, for each grid, those of each mode; equal ones are the same object. Grids must
    have ``places``. Storage: each basis once, and a number and an index for each unknown of the
    grids.
    """

    def __init__(
        self, grids: Sequence[Subgrid], bases: Sequence[Bases], dtype: Any, device: str
    ) -> None:
        self.bases = bases
        self._dtype, self._device = np.dtype(dtype), device
        self._bundles = [_Bundle(found) for found in _bundled(grids, bases)]
        self._runs: list[_Run] = []

    def with_diagonals(self, diagonals: Sequence[Vector]) -> SharedModes:
        """Return the inverse for given D_l, one (unknowns,) array per grid, last mode fastest."""
        other = copy(self)
        other._runs = [_Run(own, diagonals, self._dtype, self._device) for own in self._bundles]
        return other

    def add(self, x: Vector, target: Vector) -> None:
        """Add the product with x to ``target``; both are as for `GridInverses.add`."""
        for run in self._runs:
            run.add(x, target)


class _Member:
    """A grid with its longest mode moved to the end, so that each row is a fibre."""

    def __init__(self, number: int, grid: Subgrid, bases: Bases) -> None:
        assert grid.places is not None
        self.number, self.coefficient = number, grid.coefficient
        self.shape = shape = tuple(len(basis.ones) for basis in bases)
        self.mode = mode = int(np.argmax(shape))
        self.places = np.moveaxis(grid.places.reshape(shape), mode, -1).reshape(-1, shape[mode])
        self.long = bases[mode]
        self.short = tuple(basis for k, basis in enumerate(bases) if k != mode)

    def arranged(self, diagonal: Vector) -> Vector:
        """Return a vector of the grid as a matrix with one fibre per row."""
        return np.moveaxis(diagonal.reshape(self.shape), self.mode, -1).reshape(self.places.shape)


def _bundled(grids: Sequence[Subgrid], bases: Sequence[Bases]) -> list[list[list[_Member]]]:
    """Return the bundles, each a list of sections; a section is a list of grids."""
    sections: dict[tuple[int, int], list[_Member]] = {}
    for number, (grid, found) in enumerate(zip(grids, bases, strict=True)):
        member = _Member(number, grid, found)
        sections.setdefault((member.mode, grid.levels[member.mode]), []).append(member)
    bundles: dict[Any, list[list[_Member]]] = {}
    for section in sections.values():
        section.sort(key=lambda member: -len(member.places))
        key = (id(section[0].long), *(tuple(map(id, member.short)) for member in section))
        bundles.setdefault(key, []).append(section)
    return list(bundles.values())


class _Bundle:
    """Sections with the same bases: the k-th grids of all sections are handled together.

    ``rows`` are, for each k, the bundle's fibres that belong to the k-th grids; ``places``,
    (fibres, sections, n), where each unknown of the fibres is in the sparse grid's vector.
    """

    def __init__(self, sections: list[list[_Member]]) -> None:
        self.sections = sections
        fibres = [_fibres(section) for section in sections]
        self.rows = fibres[0][1]
        self.places = np.stack([found for found, _ in fibres], axis=1)


def _fibres(section: list[_Member]) -> tuple[NDArray[np.int64], list[Any]]:
    """Return the fibres of a section, and for each of its grids the fibres that belong to it."""
    shapes = [tuple(len(basis.ones) for basis in member.short) for member in section]
    widest = tuple(map(max, zip(*shapes, strict=True)))
    numbers = np.arange(math.prod(widest)).reshape(widest)
    keys = [numbers[tuple(map(slice, shape))].ravel() for shape in shapes]
    known, first = np.unique(np.concatenate(keys), return_index=True)
    order = np.argsort(first)  # in order of appearance: those of coarser grids mostly come first
    place = np.argsort(order)
    rows: list[Any] = []
    for key in keys:
        own = place[np.searchsorted(known, key)]
        leading = np.array_equal(own, np.arange(len(own)))
        rows.append(slice(0, len(own)) if leading else own)
    fibres = np.concatenate([member.places for member in section])[first[order]]
    return fibres, rows


class _Piece:
    """The k-th grids of a bundle's sections: matrices of the short modes, and diagonals."""

    def __init__(
        self,
        members: Sequence[_Member],
        rows: Any,
        diagonals: Sequence[Vector],
        kind: Any,
        place: str,
    ) -> None:
        short = members[0].short
        self._forward = _product([basis.forward for basis in short], kind, place)
        self._back = _product([basis.vectors for basis in short], kind, place)
        self._rows = rows if isinstance(rows, slice) else on_device(rows, place)
        inverted = [m.coefficient / m.arranged(d) for m, d in zip(members, diagonals, strict=True)]
        stacked = np.stack(inverted, axis=1).reshape(len(inverted[0]), -1)
        self._scale = on_device(stacked.astype(kind), place)

    def add(self, y: Vector, z: Vector | None) -> Vector:
        """Add the grids' V D⁻¹ F y to z and return z; V and F of the short modes only.

        If z is None, the grids must have all fibres; then V D⁻¹ F y itself is returned.
        """
        part = y[self._rows]
        if self._forward is not None:
            part = self._forward.matmat(part)
        part = part * self._scale
        if self._back is not None:
            part = self._back.matmat(part)
        if z is None:
            return part
        z[self._rows] += part
        return z


def _product(factors: list[Vector], kind: Any, place: str) -> Any:
    return KroneckerProduct(factors).astype(kind).to(place) if factors else None


class _Run:
    """A bundle with its matrices and diagonals, ready to be applied."""

    def __init__(
        self, bundle: _Bundle, diagonals: Sequence[Vector], dtype: Any, place: str
    ) -> None:
        members = [member for section in bundle.sections for member in section]
        used = [diagonals[m.number] for m in members]
        used += [basis.vectors for m in members for basis in (m.long, *m.short)]
        kind = dtype_of_solves(dtype, *used)
        long = members[0].long
        self._kind, self._real = kind, dtype.kind != "c"
        self._forward = _product([long.forward], kind, place)
        self._back = _product([long.vectors], kind, place)
        self._pieces = [
            _Piece(grids, rows, [diagonals[m.number] for m in grids], kind, place)
            for rows, grids in zip(bundle.rows, zip(*bundle.sections, strict=True), strict=True)
        ]
        first = bundle.rows[0]
        self._first_has_all = isinstance(first, slice) and first.stop == len(bundle.places)
        self._places = on_device(bundle.places, place)
        self._sections = [
            on_device(np.ascontiguousarray(bundle.places[:, k]), place)
            for k in range(len(bundle.sections))
        ]

    def add(self, x: Vector, target: Vector) -> None:
        """Add the bundle's part of the product with x to ``target``."""
        fibres = x.take(self._places).astype(self._kind, copy=False)
        shape = fibres.shape
        y = self._forward.apply(fibres).reshape(shape[0], -1)
        z = self._pieces[0].add(y, None if self._first_has_all else array_module(y).zeros_like(y))
        for piece in self._pieces[1:]:
            piece.add(y, z)
        w = self._back.apply(z.reshape(shape))
        w = w.real if self._real else w
        for k, places in enumerate(self._sections):
            target[places] += w[:, k]  # distinct, except N for unknowns outside the sparse grid
