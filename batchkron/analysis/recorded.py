"""Quantities over the time of a run, read from its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Recorded", "recorded_in"]


@dataclass(frozen=True, eq=False)
class Recorded:
    """Values of quantities at times of a run.

    Parameters
    ----------
    t : ndarray, shape (m,), float64
        Times, ascending.
    values : mapping of str to ndarray, shape (m,), float64
        The values of each quantity; NaN where it was not measured, or not finite.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> from batchkron.solvers import evolve
    >>> decay = SimpleNamespace(initial=np.ones(1), rhs=lambda t, u, out: np.negative(u, out=out))
    >>> watch = {"u": [1.0]}
    >>> recorded = evolve(decay, until=1.0, method="rk4", dt=0.5, watch=watch).recorded
    >>> print(recorded.t, recorded["u"].round(3))
    [0.  0.5 1. ] [1.    0.607 0.368]
    """

    t: NDArray[np.float64]
    values: Mapping[str, NDArray[np.float64]] = field(repr=False)

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        """Return the values of a quantity.

        Raises
        ------
        ValueError
            If it was not recorded; the text has those that were.
        """
        if name not in self.values:
            known = ", ".join(self.values) or "nothing"
            raise ValueError(f"{name!r} was not recorded; recorded: {known}")
        return self.values[name]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the quantities."""
        return tuple(self.values)


def recorded_in(history: Sequence[Mapping[str, Any]]) -> Recorded:
    """Return the quantities in the history of a run, which result files and checkpoints have, too.

    ``history``: the records; those without "quantities" are passed over.

    Result: if two records have the same time, with the values of the later one. Raises `ValueError`
    if a record is not what a run writes.
    """
    rows: dict[float, dict[str, float]] = {}
    names: dict[str, None] = {}
    for record in history:
        given = record.get("quantities") if isinstance(record, Mapping) else None
        if given is None:
            continue
        t: Any = record.get("t")
        numbers = given.values() if isinstance(given, Mapping) else [""]
        if not _is_number(t) or not all(v is None or _is_number(v) for v in numbers):
            raise ValueError("the history has a record of quantities that are not numbers")
        rows[float(t)] = {name: np.nan if v is None else float(v) for name, v in given.items()}
        names.update(dict.fromkeys(given))
    times = sorted(rows)
    values = {name: np.array([rows[t].get(name, np.nan) for t in times]) for name in names}
    return Recorded(np.array(times, dtype=np.float64), values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
