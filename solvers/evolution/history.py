"""The record of a run: a bounded list of plain dictionaries."""

from __future__ import annotations

import math
from typing import Any

_MAX_STEPS = 200  # steps recorded of a run; twice as many where it does not know their number


class History:
    """Records of a run, JSON-able, at most about 400 of them.

    Parameters
    ----------
    steps : int or None
        Steps of the whole run; so many of them are recorded, evenly, as the bound allows. None
        where they are not known: then the records are thinned as they come.
    carried : list of dict
        Records of the run that this one continues; thinned where they are too many.
    """

    def __init__(self, steps: int | None, carried: list[dict[str, Any]]) -> None:
        self.records = list(carried)
        while len(self.records) > _MAX_STEPS:
            del self.records[::2]
        self._open = steps is None
        self._stride = max(1, math.ceil((steps or 0) / _MAX_STEPS))

    def wants(self, step: int) -> bool:
        """Return whether this step is to be recorded."""
        return step % self._stride == 0

    def add(self, event: str, step: int, t: float, seconds: float, **more: Any) -> None:
        """Add a record.

        Parameters
        ----------
        event : str
            "step", "resume", or the status at the end.
        step : int
            The step's number from t0.
        t : float
            Its time.
        seconds : float
            Wall-clock seconds since this run, or its continuation, began.
        **more
            JSON-able details.
        """
        record = {"event": event, "step": step, "t": t, "seconds": round(seconds, 6), **more}
        self.records.append(record)
        if self._open and len(self.records) > 2 * _MAX_STEPS:
            del self.records[::2]
            self._stride *= 2
