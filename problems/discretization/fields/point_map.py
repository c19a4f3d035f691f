"""Values of functions and of their antiderivatives at Gauss points, from coefficients.

Both are linear, and the matrices are made once. The antiderivative of a multiwavelet is zero
outside its cell, as the multiwavelet itself, so that a cell's points depend on the coefficients of
the cell's ancestors only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.functions.segmented import SegmentedModeMultiply
from batchkron.operators import on_device

from ...statement.axis import Axis
from ..basis.multiwavelets import legendre_values
from ..basis.quadrature import gauss_rule
from .points import CellPoints

__all__ = ["Channel", "ChannelKind", "PointMap", "grouped_cells"]

Values = NDArray[np.float64]
ChannelKind: TypeAlias = Literal["value", "integral", "neutral"]

# Levels that one product of the host takes together: with more, the matrices have too many zeros,
# with fewer, calls of NumPy take longer than the products. Chosen by hand.
_MAX_DEPTH = 4


Channel: TypeAlias = tuple[ChannelKind, tuple[float, ...]]
"""One function that `PointMap` computes from several given ones g_c: its kind, and the weights w_c.
"value": g = Σ w_c g_c. "integral": the antiderivative of g with mean 0. "neutral": the same of g
minus its mean."""


class PointMap:
    """Several functions at the Gauss points of the finest cells, from hierarchical coefficients.

    ``level``, ``degree``: finest level, and degree of the basis.
    ``channels``: what is computed.
    ``device`` ({"cpu", "cuda"}): where.

    On the host a few levels at a time are one product with a small matrix: its inputs are the
    polynomial of degree p + 1 that the coarser levels make of the function on a cell, and the
    multiwavelets inside; its outputs the polynomials on the finer cells, in the end the values. On
    a device all levels are one launch, with an edge for each cell and ancestor.
    """

    def __init__(
        self, axis: Axis, level: int, degree: int, channels: Sequence[Channel], device: str = "cpu"
    ) -> None:
        self._n, self._level, self._channels = degree + 1, level, tuple(channels)
        self._points = CellPoints(axis, level, degree)
        if device == "cpu":
            depths = _depths(level)
            mix = np.array([weights for _, weights in channels])
            self._mix: Values | None = mix
            self._factor = 1.0  # of the given function, where it is the only one
            if mix.shape == (1, 1):
                self._mix, self._factor = None, float(mix[0, 0])
            self._groups = self._grouped(axis, depths)
        else:
            self._edges = self._edge_sum(axis).to(device)
        self._is_host = device == "cpu"
        # The antiderivative of a multiwavelet has the mean 0, but for piecewise constants.
        kinds = enumerate(kind for kind, _ in channels)
        self._centred = [r for r, kind in kinds if degree == 0 and kind != "value"]
        self._weights = on_device(gauss_rule(self._points.count)[1] / 2, device)

    @staticmethod
    def order(level: int, device: str = "cpu") -> NDArray[np.int64]:
        """Return the order in which a map takes the coefficients of 1-D cells, (2^level,)."""
        return grouped_cells(_depths(level)) if device == "cpu" else np.arange(1 << level)

    @property
    def is_product(self) -> bool:
        """Whether the map is no more than the products with the matrices of `levels`."""
        return self._is_host and not self._centred

    @property
    def levels(self) -> list[tuple[int, Values]]:
        """For each group of levels its number of cells and matrices (channels, inputs, outputs)."""
        return self._groups

    def mix_of(self, weights: Values) -> Values:
        """Return the weights of the given functions in the channels, without what `levels` has."""
        return weights if self._mix is not None else np.ones_like(weights)

    def __call__(self, coefficients: Values) -> Values:
        """Return the values (channels, 2^level, q) of all channels.

        Of coefficients (functions, 2^level n) of each g_c, by cells in the order of `order`.
        """
        shape = (len(self._channels), 1 << self._level, self._points.count)
        if not self._is_host:
            found = self._edges.apply(coefficients.reshape(-1, self._n)).reshape(shape)
        else:
            mixed = coefficients if self._mix is None else self._mix @ coefficients
            found = self._by_groups(mixed).reshape(shape)
        for r in self._centred:
            found[r] -= (found[r] * self._weights).sum() / len(found[r])
        return found

    def _by_groups(self, mixed: Values) -> Values:
        count, start, state = len(mixed), 0, None
        for number, matrices in self._groups:
            width = matrices.shape[1] - (0 if state is None else self._n + 1)
            own = mixed[:, start : start + number * width].reshape(count, number, width)
            start += number * width
            if state is not None:
                own = np.concatenate([state.reshape(count, number, -1), own], axis=2)
            state = own @ matrices
        assert state is not None
        return state

    def _grouped(self, axis: Axis, depths: Sequence[int]) -> list[tuple[int, Values]]:
        """Return for each group its number of cells and matrices (channels, inputs, outputs)."""
        groups, level = [], 0
        for depth in depths:
            small = Axis(axis.name, 0.0, axis.length / (1 << level))
            is_last = level + depth == self._level
            made = [self._matrix(small, depth, level, kind, is_last) for kind, _ in self._channels]
            groups.append((1 << level, np.stack(made)))
            level += depth
        return groups

    def _matrix(
        self, small: Axis, depth: int, level: int, kind: ChannelKind, is_last: bool
    ) -> Values:
        """Return one group's matrix (inputs, outputs) for one channel."""
        points = CellPoints(small, depth, self._n - 1)
        values = self._factor * _functions(points, self._n, kind, is_top=level == 0)
        if level:
            nodes, cells = gauss_rule(points.count)[0], np.arange(1 << depth)[:, None]
            places = (2.0 * cells + 1.0 + nodes) / (1 << depth) - 1.0
            given = legendre_values(places.ravel(), self._n, small.length)
            state = given.T.reshape(self._n + 1, 1 << depth, -1)
            values = np.concatenate([state, values[self._n :]])
        if is_last:
            return values.reshape(len(values), -1)
        nodes, weights = gauss_rule(points.count)
        width = small.cell_width(depth)
        shapes = legendre_values(nodes, self._n, width) * (weights * (width / 2))[:, None]
        return (values @ shapes).reshape(len(values), -1)

    def _edge_sum(self, axis: Axis) -> SegmentedModeMultiply:
        """Return the map as a sum over the edges from each finest cell to its ancestors."""
        level, cells = self._level, 1 << self._level
        finest, levels = np.arange(cells)[:, None], np.arange(1, level + 1)[None]
        depths = level - levels + 1
        ancestors = np.hstack([0 * finest, (1 << (levels - 1)) + (finest >> depths)])
        inside = np.hstack([finest, finest & ((1 << depths) - 1)])
        matrices: list[Values] = []
        starts_of: dict[tuple[ChannelKind, float], NDArray[np.int64]] = {}
        ids, children, counts = [], [], []
        for kind, weights in self._channels:
            used = [(c, w) for c, w in enumerate(weights) if w]
            for _, weight in used:
                if (kind, weight) not in starts_of:
                    made = [weight * own for own in self._by_level(axis, kind)]
                    before = sum(len(known) for known in matrices)
                    stops = before + np.cumsum([len(own) for own in made])
                    starts_of[kind, weight] = np.concatenate([[before], stops[:-1]])
                    matrices += made
            ids.append(np.hstack([starts_of[kind, w] + inside for _, w in used]).ravel())
            children.append(np.hstack([c * cells + ancestors for c, _ in used]).ravel())
            counts += [len(used) * (level + 1)] * cells
        return SegmentedModeMultiply(
            np.concatenate(matrices),
            np.concatenate([[0], np.cumsum(counts)]),
            np.concatenate(ids),
            np.concatenate(children),
            before=1,
            behind=1,
            num_inputs=len(self._channels[0][1]) * cells,
        )

    def _by_level(self, axis: Axis, kind: ChannelKind) -> list[Values]:
        """Return for cells of each level the matrices (finest cells inside, q, n)."""
        n, found = self._n, []
        for own in range(self._level + 1):
            depth = self._level - max(own - 1, 0)
            small = Axis(axis.name, 0.0, axis.length / (1 << (self._level - depth)))
            rows = slice(0, n) if own == 0 else slice(n, 2 * n)
            values = _functions(CellPoints(small, depth, n - 1), n, kind, own == 0, rows)
            found.append(values.transpose(1, 2, 0))
        return found


def _depths(level: int) -> list[int]:
    """Return the numbers of levels that are taken together."""
    groups = max(1, -(-level // _MAX_DEPTH))
    return [level // groups + (g < level % groups) for g in range(groups)]


def grouped_cells(depths: Sequence[int]) -> NDArray[np.int64]:
    """Return the 1-D cells by groups of so many levels each.

    First come all cells of the first group, then those inside each of its finest cells, and so on.
    """
    found, level = [np.arange(1 << depths[0])], depths[0]
    for depth in depths[1:]:
        above = np.arange(1 << level)[:, None]
        inside = [(1 << (level + j)) + (above << j) + np.arange(1 << j)[None] for j in range(depth)]
        found.append(np.concatenate(inside, axis=1).ravel())
        level += depth
    return np.concatenate(found)


def _functions(
    points: CellPoints, n: int, kind: ChannelKind, is_top: bool, rows: slice = slice(None)
) -> Values:
    """Return the values (functions, cells, q) of hierarchical functions, or antiderivatives.

    ``is_top`` says that the points are those of the whole axis, on which the antiderivatives have
    mean 0; otherwise they are 0 at its ends.
    """
    values = points.values(np.eye(n << points.level)[rows])
    if kind == "value":
        return values
    length, found = points.axis.length, []
    for own in values:
        if is_top and kind == "neutral":
            own = own - points.integral(own) / length
        field = points.antiderivative(own)
        found.append(field - points.integral(field) / length if is_top else field)
    return np.stack(found)
