"""The record of a run: a bounded list of plain dictionaries."""

from __future__ import annotations

import math
from typing import Any

# Number of steps recorded of a run; up to twice as many if the number of steps is not known in
# advance. Chosen by hand.
_MAX_STEPS = 200
# The same if quantities are recorded at these steps, which fits of rates and pictures need.
_MAX_MEASURED_STEPS = 2000


class History:
    """The records of a run, which can be written as JSON; at most about 400, or 4000 if measured.

    ``steps``: steps of the whole run, of which about 200 are recorded at even distances. None if
      the number is not known: then every second record is dropped whenever there are too many.
    ``carried``: records of the run that this one continues; some are dropped if there are too many.
    ``adapts``: whether changes of the grid are recorded as well; then, too, every second record is
      dropped whenever there are too many.
    ``measured``: whether quantities are recorded; then ten times as many steps are.
    """

    def __init__(
        self,
        steps: int | None,
        carried: list[dict[str, Any]],
        *,
        adapts: bool = False,
        measured: bool = False,
    ) -> None:
        self._limit = _MAX_MEASURED_STEPS if measured else _MAX_STEPS
        self.records = list(carried)
        while len(self.records) > self._limit:
            del self.records[::2]
        self._open = steps is None or adapts
        self._stride = max(1, math.ceil((steps or 0) / self._limit))

    def wants(self, step: int) -> bool:
        """Return whether this step is to be recorded."""
        return step % self._stride == 0

    def save(self) -> tuple[list[dict[str, Any]], int]:
        """Return what `restore` needs to forget the records that follow."""
        return list(self.records), self._stride

    def restore(self, saved: tuple[list[dict[str, Any]], int]) -> None:
        """Forget all records since `save`."""
        records, self._stride = saved
        self.records = list(records)

    def add(self, event: str, step: int, t: float, seconds: float, **more: Any) -> None:
        """Add a record.

        ``event``: "start" (if quantities are recorded), "step", "resume", "adapt", "repeat", or the
          status at the end.
        ``step``: the step's number, counted from t0.
        ``t``: the time after the step.
        ``seconds``: wall-clock seconds since this run, or its continuation, began.
        ``**more``: further details, which can be written as JSON.
        """
        record = {"event": event, "step": step, "t": t, "seconds": round(seconds, 6), **more}
        self.records.append(record)
        if self._open and len(self.records) > 2 * self._limit:
            del self.records[::2]
            self._stride *= 2
