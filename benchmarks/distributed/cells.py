"""What all ranks measure together, one after another, and how it goes on after a failure."""

import faulthandler
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.core.records import save
from benchmarks.distributed.ranks import Ranks

LIMIT_SECONDS = 45.0  # after which a cell hangs, beside three times what it is expected to take


@dataclass(frozen=True)
class Cell:
    """One measurement: about how long it takes, and ``work(ranks)``, False if it is wrong."""

    part: str
    name: str
    seconds: float
    work: Callable[[Ranks], object]

    @property
    def label(self) -> str:
        return f"{self.part}: {self.name}"


@dataclass
class Progress:
    """What a file of results says of the run, written anew before and after each cell.

    A run that ended in the middle of a cell is continued behind it.
    """

    path: Path | None = None
    right: bool = True
    finished: bool = False
    done: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    under_way: str | None = None

    def read(self) -> list[dict[str, Any]]:
        if self.path is None or not self.path.exists():
            return []
        known = json.loads(self.path.read_text())
        self.right, self.done, self.failed = known["right"], known["done"], known["failed"]
        return list(known["cases"])

    def write(self, described: dict[str, Any], records: Sequence[dict[str, Any]]) -> None:
        known = {"right": self.right and not self.failed, "finished": self.finished}
        known |= {"under_way": self.under_way, "failed": self.failed, "left_out": self.left_out}
        save(self.path, {**described, **known, "done": self.done, "cases": list(records)})


def run_cells(
    ranks: Ranks,
    cells: Iterable[Cell],
    path: Path | None,
    only: Sequence[str] | None,
    described: dict[str, Any],
) -> bool:
    """Do all cells for which there is time; return whether all is right.

    An exception on any rank ends all of them, because the others may wait for it in an exchange;
    so does a cell that hangs. What has been measured is in the file by then.
    """
    progress = Progress(path)
    ranks.records[:] = ranks.host.broadcast(progress.read() if ranks.rank == 0 else None, 0) or []
    ended = ranks.host.broadcast([*progress.done, *progress.failed], 0)

    def write(under_way: str | None) -> None:
        progress.under_way = under_way
        if ranks.rank == 0:
            progress.write(described, ranks.records)

    for cell in cells:
        if cell.label in ended or (only and cell.part not in only):
            continue
        if not ranks.has_time(cell.seconds):
            progress.left_out.append(cell.label)
            continue
        write(cell.label)
        ranks.say(f"{cell.label}  (after {ranks.elapsed():.0f} s)")
        progress.right = _done(ranks, cell) and progress.right
        progress.done.append(cell.label)
        write(None)
        ranks.free()
    progress.finished = True
    write(None)
    for label in progress.left_out:
        ranks.say(f"{label}: left out, no time is left")
    return progress.right and not progress.failed


def _done(ranks: Ranks, cell: Cell) -> bool:
    limit = LIMIT_SECONDS + 3 * cell.seconds
    faulthandler.dump_traceback_later(limit, exit=True, file=sys.__stderr__)
    try:
        return cell.work(ranks) is not False
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        ranks.end_all()
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()
