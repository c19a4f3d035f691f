"""What all ranks measure together, one after another, and how it goes on after a failure."""

import faulthandler
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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


def known_of(path: Path | None) -> dict[str, Any]:
    """What a file says of its run, which goes on behind the cell in whose middle it ended."""
    known = json.loads(path.read_text()) if path is not None and path.exists() else {}
    begun = {"right": True, "failed": {}, "done": [], "cases": []}
    kept = {name: known.get(name, value) for name, value in begun.items()}
    return {**kept, "finished": False, "under_way": None, "left_out": []}


def run_cells(
    ranks: Ranks,
    cells: Iterable[Cell],
    path: Path | None,
    only: Sequence[str] | None,
    described: dict[str, Any],
) -> bool:
    """Do all cells for which there is time; return whether all is right."""
    known = ranks.host.broadcast(known_of(path) if ranks.rank == 0 else None, 0)
    ranks.records[:] = known["cases"]
    ended = [*known["done"], *known["failed"]]

    def write(**changed: Any) -> None:
        known.update(changed)
        if ranks.rank == 0:
            right = known["right"] and not known["failed"]
            save(path, {**described, **known, "right": right, "cases": ranks.records})

    for cell in cells:
        if cell.label in ended or (only and cell.part not in only):
            continue
        if not ranks.has_time(cell.seconds):
            known["left_out"].append(cell.label)
            continue
        write(under_way=cell.label)
        ranks.say(f"{cell.label}  (after {ranks.elapsed():.0f} s)")
        known["right"] = _done(ranks, cell) and known["right"]
        known["done"].append(cell.label)
        write(under_way=None)
        ranks.free()
    write(finished=True)
    for label in known["left_out"]:
        ranks.say(f"{label}: left out, no time is left")
    return bool(known["right"] and not known["failed"])


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
