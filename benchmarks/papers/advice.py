"""Fits the table of `batchkron.kronecker_sparse.advise` to measured times.

Of a CPU the times of one thread are taken. Contenders that were stopped early count as slower, but
their times are not fitted. What the table says of a dtype is from the first file that has it.
"""

import json
import math
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

import batchkron.kronecker_sparse.costs as package
from batchkron.kronecker_sparse.costs import (
    OVERLAP,
    WAYS,
    CostTable,
    Rates,
    Way,
    predicted_seconds,
    work_of,
)
from batchkron.spec.kron_sparse import Pattern
from benchmarks.core.options import parser_of
from benchmarks.core.tables import groups

GPU_BATCH = 25_088  # vectors of the part "kronecker-sparse" of benchmarks.gpu
NAMES = {**{way: way for way in WAYS}, "permuted matmul": "bmm"}
SMALL = 1e-3  # a rate's least value, as the share of the time that it has where it has most
# Least and most seconds of a call without work: times of one number of vectors hardly tell them. On
# a device they are those of a launch (H100, in graphs and eager); bmm with copies has up to three.
STARTS = {
    "cpu": dict.fromkeys(WAYS, (1e-7, 1e-5)),
    "cuda": {"batchkron": (2e-6, 5e-6), "bmm": (2e-6, 1.5e-5), "dense": (2e-6, 5e-6)},
}
TIE = 1.03  # a way that takes at most this many times as long as the fastest is right, too
TOLERATED = 0.1  # logarithm of a ratio of times from which a cell counts less


class Measured(NamedTuple):
    """The times of one product, in seconds; in ``stopped`` of ways that were given up as slower."""

    pattern: Pattern
    batch: int
    dtype: str
    layout: str
    seconds: dict[Way, float]
    stopped: dict[Way, float] = {}  # noqa: RUF012

    @property
    def group(self):
        return f"{self.dtype} {self.layout}"


def cells_of(report, threads=1):
    """The times of a file of any of the three benchmarks."""
    for cell in report["cells"]:
        if cell.get("threads", threads) != threads:
            continue
        seconds = cell.get("seconds")
        if seconds is None:  # of benchmarks.gpu
            found = {"batchkron": cell["ours"], **cell["peers"]}
            seconds = {k: 1e-6 * v["microseconds"] for k, v in found.items() if "microseconds" in v}
        early = cell.get("stopped_early", ())
        known, stopped = {}, {}
        for name, value in seconds.items():
            if name in NAMES:
                (stopped if name in early else known)[NAMES[name]] = value
        if known:
            pattern, batch = Pattern(*cell["pattern"]), cell.get("batch", GPU_BATCH)
            yield Measured(pattern, batch, cell["dtype"], cell["layout"], known, stopped)


def first_of_each_dtype(reports):
    """The cells of files, of each dtype those of the first file that has it."""
    found = []
    for report in reports:
        known = {cell.dtype for cell in found}
        found += [cell for cell in cells_of(report) if cell.dtype not in known]
    return found


def _limits(parts, times, start):
    """The least, the largest and a middle value of each rate, 1 where a part is never used."""
    limits = np.ones((3, parts.shape[1]))
    for k, column in enumerate(parts.T):
        alone = times[column > 0] / column[column > 0]  # the rate if this part took all of the time
        if len(alone):
            limits[:, k] = SMALL * alone.min(), 10 * alone.max(), statistics.median(alone)
    limits[:, 0] = *start, math.sqrt(start[0] * start[1])
    return limits


def fitted_rates(way, cells, device):
    """The rates of a way that miss the logarithms of measured times least, None without any."""
    own = [cell for cell in cells if way in cell.seconds]
    if not own:
        return None
    works = [work_of(way, cell.pattern, cell.batch, np.dtype(cell.dtype).itemsize) for cell in own]
    times = np.array([cell.seconds[way] for cell in own])
    parts = np.array([(1.0, *work) for work in works])
    limits = _limits(parts, times, STARTS[device][way])
    is_used = parts.any(axis=0)

    def rates(logarithms):
        found = np.zeros(parts.shape[1])
        found[is_used] = np.exp(logarithms)
        return found

    def missed(logarithms):
        start, byte, flop, interleaved = rates(logarithms)
        moved = byte * parts[:, 1] + interleaved * parts[:, 3]
        whole = start + np.power(moved**OVERLAP + (flop * parts[:, 2]) ** OVERLAP, 1 / OVERLAP)
        return np.log(whole / times)

    bounds = np.log(limits[:, is_used])
    best = None
    for first in (0.1, 0.5):
        begin = np.clip(bounds[2] + math.log(first), bounds[0] + SMALL, bounds[1] - SMALL)
        found = least_squares(missed, begin, bounds=bounds[:2], loss="soft_l1", f_scale=TOLERATED)
        if best is None or found.cost < best.cost:
            best = found
    return Rates(*(float(f"{value:.3g}") for value in rates(best.x)))


def fitted(cells, machine, device):
    table = {}
    for group, own in groups(cells, lambda cell: cell.group).items():
        rates = {way: fitted_rates(way, own, device) for way in WAYS}
        if None not in rates.values():
            table[group] = rates
    return CostTable(machine, table)


def predicted(table, cell, device):
    rates, size = table.rates.get(cell.group), np.dtype(cell.dtype).itemsize
    if rates is None:
        return {}
    return predicted_seconds(rates, cell.pattern, cell.batch, size, cell.layout, device)


def named(pairs, ways):
    """Return in how many cells the fastest of some ways is named, and how many have all of them."""
    right = count = 0
    for cell, times in pairs:
        measured = {**cell.stopped, **cell.seconds}
        if all(way in measured and way in times for way in ways):
            count += 1
            choice = min(ways, key=times.__getitem__)
            right += measured[choice] <= TIE * min(measured[way] for way in ways)
    return right, count


def held_out(cells, device):
    """Each cell, and its times by a table to which no cell of its pattern contributed."""
    for pattern, own in groups(cells, lambda cell: cell.pattern).items():
        table = fitted([cell for cell in cells if cell.pattern != pattern], "", device)
        yield from ((cell, predicted(table, cell, device)) for cell in own)


def summary(cells, table, device):
    own = [(cell, predicted(table, cell, device)) for cell in cells]
    for pairs, what in ((own, "fitted"), (list(held_out(cells, device)), "pattern held out")):
        for ways in (("batchkron", "dense"), WAYS):
            right, count = named(pairs, ways)
            share = f"{right / count:.1%}" if count else "none"
            yield f"{what}: the faster one of {', '.join(ways)} in {right} of {count}, {share}"
        for way in WAYS:
            missed = [
                math.log(times[way] / cell.seconds[way]) ** 2
                for cell, times in pairs
                if way in cell.seconds and way in times
            ]
            if missed:
                factor = math.exp(math.sqrt(statistics.fmean(missed)))
                yield f"{what}: {way} within a factor of {factor:.2f}, root mean square"


def written(table):
    rates = {
        group: {way: one._asdict() for way, one in ways.items()}
        for group, ways in table.rates.items()
    }
    return json.dumps({"machine": table.machine, "rates": rates}, indent=1) + "\n"


def main(arguments=None):
    parser = parser_of(__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="results of one machine")
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--write", action="store_true", help="replace the package's table")
    options = parser.parse_args(arguments)
    reports = [json.loads(path.read_text()) for path in options.files]
    described = (report["machine"] for report in reports)
    machines = {str(m.get("device") or f"{m['processor']}, 1 thread") for m in described}
    if len(machines) > 1:
        sys.exit(f"times of several machines: {', '.join(sorted(machines))}")
    cells = first_of_each_dtype(reports)
    table = fitted(cells, machines.pop(), options.device)
    print("\n".join(summary(cells, table, options.device)))
    if options.write:
        Path(package.__file__).with_name(f"{options.device}.json").write_text(written(table))


if __name__ == "__main__":
    main()
