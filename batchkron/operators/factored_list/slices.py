"""A factored plan that computes partial products in slices, so that they take bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from batchkron.arrays import array_module
from batchkron.backends import backend, own_apply, reserve
from batchkron.spec.kron import Array
from batchkron.spec.sweeps import SweepList

__all__ = ["SlicedPlan"]


class SlicedPlan:
    """The sum of some lists of sweeps, for a limited number of vectors at a time.

    ``groups``: they run one after another.
    ``matrices``: those of all parts, of the first group first.
    ``width``: largest number of vectors (``inner``) that are multiplied at once.
    """

    def __init__(self, groups: Sequence[SweepList], matrices: Sequence[Array], width: int) -> None:
        self._width = width
        parts = [sum(len(step.parts) for step in sweeps.steps) for sweeps in groups]
        self._stops = np.cumsum(parts)[:-1].tolist()
        split = self._split(matrices)
        self._plans = [backend().sweep_plan(*both) for both in zip(groups, split, strict=True)]
        self.apply = own_apply(self._plans[0]) if len(groups) == 1 else None

    def _split(self, matrices: Sequence[Array]) -> list[Sequence[Array]]:
        """Return the matrices of each group."""
        ends = [0, *self._stops, len(matrices)]
        return [matrices[begin:end] for begin, end in pairwise(ends)]

    def set_values(self, matrices: Sequence[Array]) -> None:
        """Copy new matrices, those of the first group first."""
        for plan, own in zip(self._plans, self._split(matrices), strict=True):
            plan.set_values(own)

    def reserve(self, outer: int, inner: int) -> None:
        """Compile and allocate what `run` will need, on a device."""
        widths = {min(inner, self._width), inner % self._width or self._width}
        for plan in self._plans:
            for width in widths if inner > self._width else {inner}:
                reserve(plan, outer, width)

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, N, inner) to alpha A x (outer, M, inner), added to y or overwriting it."""
        if inner <= self._width or not x.size or not y.size:
            self._run_all(x, y, outer, inner, alpha, accumulate)
            return
        module = array_module(x)
        vectors, results = (one.reshape(outer, -1, inner) for one in (x, y))
        for first in range(0, inner, self._width):
            own = np.s_[:, :, first : first + self._width]
            source = module.ascontiguousarray(vectors[own])
            result = module.array(results[own], order="C")
            self._run_all(source, result, outer, source.shape[-1], alpha, accumulate)
            results[own] = result

    def _run_all(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        for plan in self._plans:
            plan.run(x, y, outer, inner, alpha, accumulate)
            accumulate = True
