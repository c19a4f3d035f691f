"""A model of 1 to 1024 devices: ``python -m benchmarks.distributed.model [--svg PATH]``.

Inside of a host products store their results to the owners' memory; between hosts, and for
``rule="every"``, which is what other codes do, NCCL sends. docs/results/many-gpus.md says what
takes how long. The grid is the one of the least time. ``--measured`` takes rates from a run's file.
"""

import json
import math
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from batchkron.distributed.products.product_plan import make_plan
from batchkron.distributed.sweeps.sweeps_plan import cell_bounds, plan_sweeps, work_of_cells
from batchkron.operators.sparse_grid.listing import list_sweeps
from batchkron.problems import make
from benchmarks.core.options import parser_of
from benchmarks.core.plots import figures
from benchmarks.core.tables import head, row
from benchmarks.distributed.products import FIGURE_11, LONG, fastkron_grid
from benchmarks.distributed.products import Case as Product

COUNTS = [1 << k for k in range(11)]
CHUNKS = 8  # as in batchkron/distributed/products/kronecker_product.py
FASTKRON_AT_16 = 0.69  # of 16 V100s, FastKron's Figure 11
TURNING = 3.2e12  # bytes a second of passes that transpose, where none were measured

Grid = tuple[int, int]


@dataclass(frozen=True)
class Machine:
    """Rates of a device and its links, in bytes or multiply-adds a second, and seconds.

    The defaults are an H200's: `benchmarks/results/h200-gpu.json` for multiplies (16: 64^4 in
    float32, 3158 µs), `benchmarks/results/h200-four-gpus.json` for NVLink.
    """

    multiply_adds: float = 16 * 64**4 * 64 * 4 / 3158e-6
    rates: dict = field(default_factory=dict)  # multiply-adds a second by P
    memory: float = 4.0e12  # reading and writing together, of long runs; assumed
    turning: dict = field(default_factory=dict)  # where P × … is transposed, by P
    inside: float = 328e9  # a device sends to others of its host by NCCL; four H200s, 2026-11
    stores: float = 395e9  # it stores to them from a multiply; fitted to four H200s, 2026-11
    stores_hidden: float = 0.45  # share of the shorter time, of multiplying and storing; fitted
    outside: float = 45e9  # to other hosts: one network card of 400 Gbit/s for each device
    hidden: float = 0.26  # NCCL: share of the shorter time, of all chunks but one; four H200s
    host: int = 8  # devices of a host
    latency: float = 20e-6  # of an exchange inside of a host
    network_latency: float = 40e-6  # of one between hosts
    sweep_launches: float = 14e-6  # of a product with sweeps of continuity-6d; H100, 2026-11
    sweep_unknown: float = 31e-12  # of each unknown of it


@dataclass(frozen=True)
class Sweeps:
    """Products with the operator of continuity-6d; ``rows`` of each device, or of all if ``total``.

    One row is the state of a run in time; several are those of several runs.
    """

    level: int
    rows: int
    total: bool = False

    @property
    def name(self):
        return f"sweeps, continuity-6d, level {self.level}, degree 1"


CASES = (*(case for case in FIGURE_11 if case.dtype == "float32"), *LONG)
SWEEPS = (Sweeps(8, 1, total=True), Sweeps(8, 1))


def label_of(case):
    if isinstance(case, Product):
        return f"{case.rows}{'' if case.total else ' G'}: {case.P}^{case.N}"
    rows = case.rows if case.total else "G" if case.rows == 1 else f"{case.rows} G"
    return f"{rows}: continuity-6d, level {case.level}"


class Estimate(NamedTuple):
    """What a product takes on a grid, in seconds; ``alone``: a device's share, nothing sent."""

    grid: Grid
    multiplying: float
    sending: float
    seconds: float
    rounds: int
    alone: float

    @property
    def efficiency(self):
        return self.alone / self.seconds


@cache
def plan_of(P, N, parts, rule="group"):
    """The plan of a product on so many ranks that share vectors."""
    return make_plan([(P, P)] * N, parts, "every" if rule == "every" else "group", True)


def estimate(machine, case, grid, rule="group", transport="auto"):
    """What a product takes on a grid, None where it has fewer rows than that.

    ``transport``: "stores", "nccl", or "auto" for stores in groups inside of a host.
    """
    rows = case.rows if case.total else case.rows * math.prod(grid)
    if rows < grid[0]:
        return None
    if isinstance(case, Sweeps):
        return _sweeps(machine, case, grid, rows)
    inside = grid[1] <= machine.host and rule == "group"
    if transport == "stores" or (transport == "auto" and inside):
        return _stores(machine, case, grid, rows, rule)
    return _nccl(machine, case, grid, rows, rule)


def _multiplying(machine, case, grid, rows):
    """Seconds of a device's multiplies, where rows divide, and of the busiest device's."""
    alone = case.multiply_adds(math.prod(grid)) / machine.rates.get(case.P, machine.multiply_adds)
    return alone, alone * math.ceil(rows / grid[0]) * grid[0] / rows


def _block(case, grid, rows):
    return float(case.P) ** case.N * 4 / grid[1] * math.ceil(rows / grid[0])


def _stores(machine, case, grid, rows, rule):
    """What a product takes whose last multiplies store to the owners' memory."""
    plan = plan_of(case.P, case.N, grid[1], rule)
    alone, multiplying = _multiplying(machine, case, grid, rows)
    if not plan.num_exchanges:
        return Estimate(grid, multiplying, 0.0, multiplying, 0, alone)
    copied = 2 * _block(case, grid, rows) / machine.memory
    one, seconds, sending = multiplying / case.N, copied, 0.0
    for each in plan.rounds:
        factors = sum(local.last - local.first + 1 for local in each.products)
        storing = 4.0 * math.ceil(rows / grid[0]) * max(each.exchange.sent) / machine.stores
        last = one * bool(factors)
        beside = (1 - machine.stores_hidden) * min(last, storing)
        seconds += factors * one - last + max(last, storing) + beside + machine.latency
        sending += storing
    return Estimate(grid, multiplying + copied, sending, seconds, plan.num_exchanges, alone)


def _nccl(machine, case, grid, rows, rule):
    """What a product takes whose exchanges are packed, sent by NCCL and unpacked."""
    plan, parts = plan_of(case.P, case.N, grid[1], rule), grid[1]
    own_rows = math.ceil(rows / grid[0])
    alone, multiplying = _multiplying(machine, case, grid, rows)
    rounds = plan.num_exchanges
    memory = machine.memory if rule == "group" else machine.turning.get(case.P, TURNING)
    multiplying += rounds * 4 * _block(case, grid, rows) / memory
    sent = own_rows * 4.0 * max(plan.sent(rank) for rank in range(parts))
    far = (parts - min(parts, machine.host)) / max(parts - 1, 1)  # of what is sent
    sending = max(sent * (1 - far) / machine.inside, sent * far / machine.outside)
    latency = rounds * (machine.latency if parts <= machine.host else machine.network_latency)
    chunks = max(1, min(CHUNKS, own_rows))
    # the first chunk is multiplied before anything is sent, the last one sent after all is done
    hidden = machine.hidden * (1 - 1 / chunks) * min(multiplying, sending)
    seconds = multiplying + sending - hidden + (latency * chunks if rounds else 0.0)
    return Estimate(grid, multiplying, sending, seconds, rounds, alone)


def _sweeps(machine, case, grid, rows):
    """What a product with sweeps takes: launches, work and sending, one after another."""
    devices, own_rows = math.prod(grid), math.ceil(rows / grid[0])
    unknowns, share, near, far, exchanges = traffic(case.level, grid[1], machine.host)
    work = unknowns * machine.sweep_unknown
    multiplying = machine.sweep_launches + own_rows * share * work
    size = own_rows * 8.0  # bytes of an element of float64 in all rows
    sending = max(near * size / machine.inside, far * size / machine.outside)
    latency = machine.latency if grid[1] <= machine.host else machine.network_latency
    seconds = multiplying + sending + exchanges * latency
    shared = min(rows, devices)  # a device that has a row for itself launches as often as one alone
    alone = (machine.sweep_launches * shared + rows * work) / devices
    return Estimate(grid, multiplying, sending, seconds, exchanges, alone)


@cache
def _listed(level):
    """The unknowns, the list of sweeps and the cells of continuity-6d of degree 1."""
    problem = make("continuity-6d", level=level, degree=1)
    return problem.unknowns, *list_sweeps(problem.operator._spec)


@cache
def traffic(level, parts, host):
    """What `distribute` plans for a product with one vector, on ``parts`` devices.

    The unknowns; the busiest device's share of the work; the largest number of elements that a
    device sends to or gets from the ``host`` devices of its machine, and others; and exchanges.
    """
    unknowns, listing, cells = _listed(level)
    bounds = cell_bounds(work_of_cells(listing, cells), cells, parts)
    plan = plan_sweeps(listing, cells, bounds)
    counts = sum((halo.counts for halo in plan.halos), np.zeros((parts, parts), np.int64))
    hosts = np.arange(parts) // host
    inside = hosts[:, None] == hosts
    near, far = (
        listing.sweeps.block_size * int(max(chosen.sum(axis=0).max(), chosen.sum(axis=1).max()))
        for chosen in (counts * inside, counts * ~inside)
    )
    share = plan.multiply_adds / float(plan.work.sum())
    return unknowns, share, near, far, plan.num_exchanges


def best(machine, case, devices, rule="group"):
    grids = [(devices // parts, parts) for parts in COUNTS if devices % parts == 0]
    found = (estimate(machine, case, grid, rule) for grid in grids)
    return min((one for one in found if one is not None), key=lambda one: one.seconds)


def measured(machine, path):
    content = json.loads(path.read_text())
    cases = content["cases"]
    links = [one for one in cases if one["case"] == "link" and one["transport"] == "nccl"]
    rates = {
        case.P: case.multiply_adds(1) / one["alone_seconds"]
        for case in CASES
        for one in cases
        if one["case"] == case.name and not case.total and one["alone_seconds"]
    }
    inside = links[0]["bytes_per_second"] or machine.inside
    machine = replace(machine, rates={**machine.rates, **rates}, inside=inside)
    known = [
        (one["unknowns"], one["alone_seconds"])
        for one in cases
        if one["case"].startswith("sweeps, continuity-6d")
        and (one["transport"] == "nccl" and one["alone_seconds"])
    ]
    if len(known) > 1:  # the line through one device's times of several grids
        slope, launches = np.polyfit(*zip(*known, strict=True), 1)
        machine = replace(machine, sweep_launches=float(launches), sweep_unknown=float(slope))
    runs = _runs(cases)
    machine = replace(machine, hidden=_overlap(runs, content["ranks"]) or machine.hidden)
    machine = replace(machine, turning=_turning(machine, runs) or machine.turning)
    return _fitted_stores(machine, [run for run in runs if run[1]["transport"] == "peer"])


def _runs(cases):
    return [
        (case, one)
        for one in cases
        for case in CASES
        if one["case"] == case.name and one["grid"][1] > 1 and not one["transpose"]
    ]


def _overlap(runs, ranks):
    """The share that chunks hide of NCCL's exchanges, of 64^4."""
    ways = {
        one["transport"]: one
        for case, one in runs
        if case == CASES[0] and (one["grid"], one["exchange"]) == ([1, ranks], "group")
    }
    alone, chunked = ways.get("nccl, no overlap"), ways.get("nccl")
    if alone is None or chunked is None or not alone["sending_seconds"]:
        return None
    shorter = min(alone["seconds"] - alone["sending_seconds"], alone["sending_seconds"])
    hidden = (alone["seconds"] - chunked["seconds"]) / shorter / (1 - 1 / CHUNKS)
    return float(min(max(hidden, 0.0), 1.0))


def _turning(machine, runs):
    """The rates of passes that transpose, from "every", by P: what is left of a product's time."""
    found = {}
    for case, one in runs:
        if case.total or (one["transport"], one["exchange"]) != ("nccl", "every"):
            continue
        grid = one["grid"][0], one["grid"][1]
        hidden = machine.hidden * (1 - 1 / CHUNKS) * one["sending_seconds"]
        passes = one["seconds"] - one["alone_seconds"] - one["sending_seconds"] + hidden
        rounds = plan_of(case.P, case.N, grid[1], "every").num_exchanges
        moved = rounds * 4 * _block(case, grid, case.rows * math.prod(grid))
        found.setdefault(case.P, []).append(passes / moved)
    return {P: len(times) / sum(times) for P, times in found.items()}


def _fitted_stores(machine, stored):
    """The machine with the rate of stores, and their overlap, of the least errors."""

    def errors(tried):
        return sum(
            math.log(_modelled(tried, case, one) / one["seconds"]) ** 2 for case, one in stored
        )

    tried = (
        replace(machine, stores=1e9 * rate, stores_hidden=share / 20)
        for rate in range(150, 451, 5)  # at most what NVLink has
        for share in range(21)
    )
    return min(tried, key=errors) if stored else machine


def _modelled(machine, case, one):
    transport = "stores" if one["transport"] == "peer" else "nccl"
    found = estimate(machine, case, tuple(one["grid"]), one["exchange"], transport)
    return found.seconds


def comparison(machine, path):
    names = ["case", "grid", "transport", "exchange", "model ms", "measured ms", "error"]
    lines = head(names).splitlines()
    for case, one in _runs(json.loads(path.read_text())["cases"]):
        transport = {"nccl": "nccl", "peer": "stores"}.get(one["transport"])
        if transport:
            seconds, known = _modelled(machine, case, one), one["seconds"]
            what = [case.name.removesuffix(" float32"), tuple(one["grid"]), transport]
            times = [f"{1e3 * seconds:.3g}", f"{1e3 * known:.3g}", f"{seconds / known - 1:+.0%}"]
            lines.append(row([*what, one["exchange"], *times]))
    return lines


def table(machine, cases=CASES):
    names = ["case", "GPUs", "grid", "rounds", "ms", "of one", "longer", "FastKron's grid"]
    lines = head([*names, "of one"]).splitlines()
    for case, devices in product(cases, COUNTS):
        one = best(machine, case, devices)
        other = estimate(machine, case, fastkron_grid(devices))
        theirs = ["–", "–"] if other is None else [other.grid, _percent(other.efficiency)]
        texts = [label_of(case), devices, one.grid, one.rounds, f"{1e3 * one.seconds:.3g}"]
        longer = "sending" if one.sending > one.multiplying else "multiplies"
        lines.append(row([*texts, _percent(one.efficiency), longer, *theirs]))
    return lines


def _percent(share):
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}"


def measured_efficiencies(path, case):
    content = json.loads(path.read_text())
    ranks, known = content["ranks"], [c for c in content["cases"] if c["case"] == case.name]
    own = [fastkron_grid(ranks), (ranks, 1), (1, ranks)][: 3 if case.total else 2]
    how = {grid: ("nccl" if grid[1] == 1 else "peer", "group") for grid in own}
    return [
        (ranks, one["efficiency"])
        for one in known
        if ("grid" not in one and isinstance(case, Sweeps) and case.total)
        or ("grid" in one and how.get(tuple(one["grid"])) == (one["transport"], one["exchange"]))
    ]


def draw(machine, path, cases=CASES, run=None):
    pyplot = figures()
    figure, columns = pyplot.subplots(
        1, len(cases), figsize=(3.5 * len(cases), 4.0), layout="constrained", sharey=True
    )
    for axes, case in zip(columns, cases, strict=True):
        theirs = [estimate(machine, case, fastkron_grid(devices)) for devices in COUNTS]
        ways = [
            ("best grid", [best(machine, case, devices) for devices in COUNTS], "o-"),
            ("FastKron's grid", theirs, "s--"),
        ]
        if not isinstance(case, Sweeps):
            every = [estimate(machine, case, fastkron_grid(g), "every") for g in COUNTS]
            ways.append(("the same, exchange after each multiply", every, "^:"))
        for label, estimates, style in ways:
            found = [one for one in estimates if one is not None]
            if len(found) > 1:
                values = [100 * one.efficiency for one in found]
                counts = [math.prod(one.grid) for one in found]
                axes.plot(counts, values, style, label=label, markersize=4)
        for count, share in measured_efficiencies(run, case) if run else []:
            axes.plot(count, 100 * share, "kx", markersize=7, label="measured")
        if not case.total:
            axes.plot(16, 100 * FASTKRON_AT_16, "k*", markersize=10, label="FastKron, 16 V100s")
        axes.set_xscale("log", base=2)
        axes.set(xlabel="GPUs", ylim=(0, 108))
        axes.set_title(label_of(case), fontsize="medium")
        axes.grid(color="0.9", linewidth=0.6)
        axes.axvline(machine.host, color="0.8", linewidth=1)
    columns[0].set_ylabel("% of one GPU without exchanges")
    handles, labels = columns[0].get_legend_handles_labels()
    shown = dict(zip(labels, handles, strict=True))
    style = {"fontsize": "small", "loc": "upper right", "frameon": False}
    columns[len(CASES) - 1].legend(shown.values(), shown.keys(), **style)
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--measured", type=Path, help="a file of benchmarks.distributed --json")
    parser.add_argument("--svg", type=Path, help="where the picture is drawn")
    options = parser.parse_args()
    machine = Machine()
    if options.measured:
        machine = measured(machine, options.measured)
    cases = (*CASES, *SWEEPS)
    print("\n".join(table(machine, cases)))
    if options.measured:
        print(machine, *comparison(machine, options.measured), sep="\n")
    if options.svg:
        draw(machine, options.svg, cases[: len(CASES) + 1], options.measured)


if __name__ == "__main__":
    main()
