"""The iterates whose true residual was the least, which a solve returns at the end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module

from ...products import Vector


class VerifiedIterates:
    """Of each system, the iterate of the least true residual that was computed.

    The first one, x₀, is not copied but written again where it is wanted; others are copied only
    where a system goes on from them and may end with a larger residual. ``norms`` are ‖b - A x₀‖ of
    each system at first; ``guess(out)`` writes x₀ into an array like x.
    """

    def __init__(self, norms: NDArray[np.float64], guess: Callable[[Vector], object]) -> None:
        self.norms = norms
        self._guess = guess
        self._kept: Vector | None = None

    def compare(self, x: Vector, norms: NDArray[np.float64]) -> None:
        """Keep the iterates, (..., N), whose true residuals are less than any before."""
        less = norms < self.norms
        if not less.any():
            return
        if self._kept is None:
            self._kept = array_module(x).empty_like(x)
            if not less.all():
                self._guess(self._kept)
        self._copy(self._kept, x, less)
        self.norms = np.where(less, norms, self.norms)

    def restore(
        self, x: Vector, norms: NDArray[np.float64], settled: NDArray[np.bool_] | None = None
    ) -> NDArray[np.bool_]:
        """Write the best iterates over those that are worse, and their norms likewise.

        The norms of x may be NaN. Systems that are ``settled`` keep their iterate: it is the best
        in another norm, which counts. Returns which systems had a better one.
        """
        worse = ~(norms <= self.norms) & ~np.isnan(self.norms)
        if settled is not None:
            worse &= ~settled
        if worse.any():
            best = self._kept
            if best is None:
                best = x if worse.all() else array_module(x).empty_like(x)
                self._guess(best)
            self._copy(x, best, worse)
            norms[worse] = self.norms[worse]
        return worse

    @staticmethod
    def _copy(target: Vector, source: Vector, which: NDArray[np.bool_]) -> None:
        if target is source:
            return
        if which.all():
            np.copyto(target, source)
        else:
            shape = len(which), target.shape[-1]
            places = array_module(target).asarray(np.flatnonzero(which))
            target.reshape(shape)[places] = source.reshape(shape)[places]
