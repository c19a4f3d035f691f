"""The cells of a run, the most important first, and how it goes on after a failure."""

import faulthandler
import json
import sys
import traceback
from functools import partial
from itertools import product
from typing import NamedTuple

from benchmarks.core.records import machine, save
from benchmarks.distributed import products
from benchmarks.distributed.correctness import check_operators, check_run, check_solvers

LIMIT_SECONDS = 45.0  # after which a cell hangs, beside three times what it is expected to take
SWEEP_LEVELS, SYSTEMS = (6, 7, 8), (4096, 65536)
QUICK_LEVELS, QUICK_SYSTEMS = (3,), (64,)


class Cell(NamedTuple):
    """One measurement: about how long it takes, and ``work(ranks)``, False if it is wrong."""

    part: str
    name: str
    seconds: float
    work: object

    @property
    def label(self):
        return f"{self.part}: {self.name}"


def known_of(path):
    """What a file says of its run, which goes on behind the cell in whose middle it ended."""
    known = json.loads(path.read_text()) if path is not None and path.exists() else {}
    begun = {"right": True, "failed": {}, "done": [], "cases": []}
    kept = {name: known.get(name, value) for name, value in begun.items()}
    return {**kept, "finished": False, "under_way": None, "left_out": []}


def run_cells(ranks, cells, path, only, described):
    """Do all cells for which there is time; return whether all is right."""
    known = ranks.host.broadcast(known_of(path) if ranks.rank == 0 else None, 0)
    ranks.records[:] = known["cases"]
    ended = [*known["done"], *known["failed"]]

    def write(**changed):
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


def _done(ranks, cell):
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


def cells_of(ranks):
    yield from _on_devices(ranks) if ranks.device == "cuda" else _on_processors(ranks)


def _on_devices(ranks):
    yield from _checks(ranks, "nccl")
    yield _link(ranks, "nccl", 256 << 20)
    if ranks.size > 1:
        yield _link(ranks, "peer", 256 << 20)
        if ranks.has("peer"):
            yield Cell("correctness", "peer", 4, partial(check_operators, transport="peer"))
    cases = products.QUICK if ranks.quick else products.FIGURE_11
    singles = [case for case in cases if case.dtype == "float32"]
    yield from _products(ranks, "figure-11", singles, products.grids(ranks.size), products.WAYS)
    yield from _sweeps_and_systems(ranks, "nccl")
    doubles = [case for case in cases if case.dtype == "float64"]
    yield from _products(ranks, "figure-11", doubles, products.grids(ranks.size), products.WAYS)
    long = products.QUICK[1:] if ranks.quick else products.LONG
    yield from _products(ranks, "long", long, [(1, ranks.size)], products.WAYS)


def _on_processors(ranks):
    yield from _checks(ranks, "mpi")
    yield _link(ranks, "mpi", 16 << 20)
    yield from _sweeps_and_systems(ranks, "mpi")
    ways = (("mpi", "group", False), ("mpi", "every", False))
    cases = products.QUICK[1:] if ranks.quick else products.ON_CPU
    yield from _products(ranks, "products", cases, [(ranks.size, 1), (1, ranks.size)], ways)


def _checks(ranks, transport):
    yield Cell("correctness", transport, 6, partial(check_operators, transport=transport))
    yield Cell("correctness", "solvers", 4, partial(check_solvers, transport=transport))
    yield Cell("correctness", "runs", 6, partial(check_run, transport=transport))


def _link(ranks, transport, size):
    size = 16 << 20 if ranks.quick else size
    work = partial(products.measure_link, transport=transport, bytes_each=size)
    return Cell("links", transport, 2, work)


def _sweeps_and_systems(ranks, transport):
    on_devices = ranks.device == "cuda"
    levels, counts = (QUICK_LEVELS, QUICK_SYSTEMS) if ranks.quick else (SWEEP_LEVELS, SYSTEMS)
    for count in counts if on_devices else counts[:1]:
        work = partial(products.run_systems, systems=count)
        yield Cell("systems", f"{count} systems", 4, work)
    for level in levels if on_devices else levels[:1]:
        work = partial(products.run_sweeps, level=level, degree=1, transport=transport)
        yield Cell("sweeps", f"level {level}", 3 if level < 8 else 12, work)


def _products(ranks, part, cases, given, ways):
    seconds = 3.0 if ranks.device == "cuda" else 8.0
    for case, grid, way in product(cases, given, ways):
        transport, exchange, transpose = way
        if ranks.has(transport) and (grid[1] > 1 or way == ways[0]):
            text = f"{case.name} {grid} {transport}, {exchange}"
            work = partial(products.run_product, case=case, grid=grid, way=way)
            yield Cell(part, f"{text}{', transposed' if transpose else ''}", seconds, work)


def described(ranks):
    found = {"ranks": ranks.size, "device": ranks.device, "machine": machine(ranks.device)}
    if ranks.device == "cuda":
        found["nccl"] = ranks.module.cuda.nccl.get_version()
    return found
