"""The estimates of the residual's norm, collected while a Krylov method works."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..vectors.space import KrylovSpace


class ResidualHistory:
    """The norms of all systems, the ``first`` ones, (systems,), and one after each iteration.

    The history of the space, of limited length, is taken over from time to time.
    """

    def __init__(self, space: KrylovSpace, first: NDArray[np.float64]) -> None:
        self._space = space
        self._seen = np.zeros(space.systems, np.int64)
        self._parts: list[NDArray[np.float64]] = [first[None, :]]

    def latest(self) -> float:
        """Return the latest estimate, of the first system."""
        return float(self._parts[-1][-1, 0])

    def take(self) -> bool:
        """Take over what was written since the last time: at most ``space.rows`` iterations.

        Returns whether there was anything.
        """
        space = self._space
        counts = space.progress()[1].astype(np.int64)
        new = counts - self._seen
        maximum = int(new.max(initial=0))
        if maximum == 0:
            return False
        rows = space.rows
        history = space.history(min(int(counts.max()), rows))
        if space.systems == 1:
            self._parts.append(history[np.arange(self._seen[0], counts[0]) % rows])
        else:
            steps = np.arange(maximum)[:, None]
            first = maximum <= rows and not self._seen.any()
            together = np.empty((first + maximum, space.systems))
            values = together[int(first) :]
            if first:  # as nearly always: what is there, in one copy
                together[0] = self._parts.pop()
                values[...] = history[:maximum]
            else:
                places = (self._seen + steps) % rows % len(history)
                values[...] = np.take_along_axis(history, places, 0)
            np.putmask(values, steps >= new, np.nan)
            self._parts.append(together)
        self._seen = counts
        return True

    def norms(self) -> NDArray[np.float64]:
        """Return the norms, (iterations + 1, systems), NaN after a system's last."""
        if len(self._parts) == 1:  # a system's own come first
            return self._parts[0]
        together = np.concatenate(self._parts)
        if self._space.systems == 1:
            return together
        missing = np.isnan(together)
        if not missing.any():
            return together
        order = np.argsort(missing, axis=0, kind="stable")
        packed = np.take_along_axis(together, order, 0)
        return packed[: int(self._seen.max(initial=0)) + 1]
