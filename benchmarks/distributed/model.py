"""A model of 1 to 1024 devices: ``python -m benchmarks.distributed.model [--svg PATH]``.

Inside of a host, products store their results to the owners' memory. The last multiply of each
group of factors takes the longer one of multiplying and storing the bytes that the plan counts,
plus a share of the shorter one; the other multiplies come before it, and a copy of the result at
the end.

Between hosts, and for ``rule="every"``, which is what other codes do, NCCL sends. Then a product
takes two times, less the share of the shorter that goes on beside the longer one:

- multiplying, by the time of one device for its share (measured), plus a pass over memory to pack
  and one to unpack each exchange, which turn rows into columns for "every";
- sending: of the bytes that the plan counts, those to devices of the same host at NVLink's rate,
  others at the network's; and for each exchange a latency.

Sweeps on a sparse grid take their launches, the busiest device's work, and one sending of what its
cells need of others; nothing of that overlaps. A device's own part of the work is by one device's
measured times of several grids.

The grid is the one of the least time; FastKron's grid is shown beside it. ``--measured PATH`` takes
rates, and how much is hidden, from a ``--json`` file of `benchmarks.distributed`, and prints its
times beside those of the model.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from batchkron.distributed.products.product_plan import Plan, make_plan
from benchmarks.distributed.sweep_traffic import traffic

COUNTS = [1 << k for k in range(11)]
CHUNKS = 8  # as in batchkron/distributed/products/kronecker_product.py
FASTKRON_AT_16 = 0.69  # of 16 V100s, FastKron's Figure 11


@dataclass(frozen=True)
class Machine:
    """Rates of a device and its links, in bytes or multiply-adds a second, and seconds.

    The defaults are an H200's: `benchmarks/results/h200-gpu.json` for multiplies (16: 64^4 in
    float32, 3158 µs), `benchmarks/results/h200-four-gpus.json` for NVLink.
    """

    multiply_adds: float = 16 * 64**4 * 64 * 4 / 3158e-6
    rates: tuple[tuple[int, float], ...] = ()  # multiply-adds a second by P, where known
    memory: float = 4.0e12  # reading and writing together, of long runs; assumed
    turning: tuple[tuple[int, float], ...] = ()  # the same where P × … is transposed, by P
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
class Product:
    """A product of N factors P × P in float32; ``rows`` of each device, or of all if ``total``."""

    P: int
    N: int
    rows: int
    total: bool = False

    @property
    def label(self) -> str:
        """The case as a text."""
        return f"{self.rows}{'' if self.total else ' G'}: {self.P}^{self.N}"

    def multiply_adds(self, devices: int) -> float:
        """Return those of each device."""
        rows = self.rows / devices if self.total else self.rows
        return rows * float(self.P) ** self.N * self.P * self.N


@dataclass(frozen=True)
class Sweeps:
    """Products with the operator of continuity-6d; ``rows`` of each device, or of all if ``total``.

    One row is the state of a run in time; several are those of several runs.
    """

    level: int
    rows: int
    total: bool = False

    @property
    def label(self) -> str:
        """The case as a text."""
        rows = self.rows if self.total else "G" if self.rows == 1 else f"{self.rows} G"
        return f"{rows}: continuity-6d, level {self.level}"


CASES = (Product(64, 4, 64), Product(128, 4, 4), Product(64, 5, 1, total=True))
SWEEPS = (Sweeps(8, 1, total=True), Sweeps(8, 1))
Case = Product | Sweeps


@dataclass(frozen=True)
class Estimate:
    """What a product takes on a grid, in seconds."""

    devices: int
    grid: tuple[int, int]
    multiplying: float
    sending: float
    seconds: float
    rounds: int
    alone: float

    @property
    def efficiency(self) -> float:
        """The time of one device's share without exchanges, over that with them."""
        return self.alone / self.seconds

    @property
    def binds(self) -> str:
        """What takes longer."""
        if self.sending == 0:
            return "multiplies"
        return "sending" if self.sending > self.multiplying else "multiplies"


@cache
def plan_of(P: int, N: int, parts: int, rule: str = "group") -> Plan:
    """Return the plan of a product on so many ranks that share vectors."""
    return make_plan([(P, P)] * N, parts, "every" if rule == "every" else "group", True)


def estimate(
    machine: Machine,
    case: Case,
    grid: tuple[int, int],
    rule: str = "group",
    transport: str = "auto",
) -> Estimate | None:
    """Return what a product takes on a grid, None where it has fewer rows than that.

    ``transport``: "stores", "nccl", or "auto" for stores in groups inside of a host.
    """
    devices, parts = grid[0] * grid[1], grid[1]
    rows = case.rows if case.total else case.rows * devices
    if rows < grid[0]:
        return None
    if isinstance(case, Sweeps):
        return _sweeps(machine, case, grid, rows)
    inside = parts <= machine.host and rule == "group"
    if transport == "stores" or (transport == "auto" and inside):
        return _stores(machine, case, grid, rows, rule)
    return _nccl(machine, case, grid, rows, rule)


@dataclass(frozen=True)
class _Share:
    """What a device has of a product."""

    plan: Plan
    own_rows: int
    alone: float  # seconds of its multiplies, where rows divide
    multiplying: float
    block: float  # bytes of its part of the vectors

    @staticmethod
    def of(machine: Machine, case: Product, grid: tuple[int, int], rows: int, rule: str) -> _Share:
        rate = dict(machine.rates).get(case.P, machine.multiply_adds)
        alone = case.multiply_adds(grid[0] * grid[1]) / rate
        own_rows = math.ceil(rows / grid[0])
        share = own_rows * grid[0] / rows  # more where rows do not divide
        block = float(case.P) ** case.N * 4 / grid[1] * own_rows
        plan = plan_of(case.P, case.N, grid[1], rule)
        return _Share(plan, own_rows, alone, share * alone, block)


def _stores(
    machine: Machine, case: Product, grid: tuple[int, int], rows: int, rule: str
) -> Estimate:
    """Return what a product takes whose last multiplies store to the owners' memory."""
    own = _Share.of(machine, case, grid, rows, rule)
    rounds = own.plan.num_exchanges
    if not rounds:
        return Estimate(math.prod(grid), grid, own.multiplying, 0.0, own.multiplying, 0, own.alone)
    one, seconds, sending = own.multiplying / case.N, 0.0, 0.0
    for each in own.plan.rounds:
        factors = sum(local.last - local.first + 1 for local in each.products)
        storing = 4.0 * own.own_rows * max(each.exchange.sent) / machine.stores
        last = one * bool(factors)
        beside = (1 - machine.stores_hidden) * min(last, storing)
        seconds += factors * one - last + max(last, storing) + beside + machine.latency
        sending += storing
    multiplying = own.multiplying + 2 * own.block / machine.memory
    seconds += 2 * own.block / machine.memory
    return Estimate(math.prod(grid), grid, multiplying, sending, seconds, rounds, own.alone)


def _nccl(machine: Machine, case: Product, grid: tuple[int, int], rows: int, rule: str) -> Estimate:
    """Return what a product takes whose exchanges are packed, sent by NCCL and unpacked."""
    own, parts = _Share.of(machine, case, grid, rows, rule), grid[1]
    rounds = own.plan.num_exchanges
    memory = machine.memory if rule == "group" else dict(machine.turning).get(case.P, 3.2e12)
    multiplying = own.multiplying + rounds * 4 * own.block / memory
    sent = own.own_rows * 4.0 * max(own.plan.sent(rank) for rank in range(parts))
    near = min(parts, machine.host)
    far = (parts - near) / max(parts - 1, 1)  # of what is sent
    sending = max(sent * (1 - far) / machine.inside, sent * far / machine.outside)
    latency = rounds * (machine.latency if parts <= machine.host else machine.network_latency)
    chunks = max(1, min(CHUNKS, own.own_rows))
    # the first chunk is multiplied before anything is sent, the last one sent after all is done
    hidden = machine.hidden * (1 - 1 / chunks) * min(multiplying, sending)
    seconds = multiplying + sending - hidden + (latency * chunks if rounds else 0.0)
    return Estimate(math.prod(grid), grid, multiplying, sending, seconds, rounds, own.alone)


def _sweeps(machine: Machine, case: Sweeps, grid: tuple[int, int], rows: int) -> Estimate:
    """Return what a product with sweeps takes: launches, work and sending, one after another."""
    devices, parts = grid[0] * grid[1], grid[1]
    plan, own_rows = traffic(case.level, parts, machine.host), math.ceil(rows / grid[0])
    work = plan.unknowns * machine.sweep_unknown
    multiplying = machine.sweep_launches + own_rows * plan.share * work
    size = own_rows * 8.0  # bytes of an element of float64 in all rows
    sending = max(plan.near * size / machine.inside, plan.far * size / machine.outside)
    latency = machine.latency if parts <= machine.host else machine.network_latency
    seconds = multiplying + sending + plan.exchanges * latency
    shared = min(rows, devices)  # a device that has a row for itself launches as often as one alone
    alone = (machine.sweep_launches * shared + rows * work) / devices
    return Estimate(devices, grid, multiplying, sending, seconds, plan.exchanges, alone)


def best(machine: Machine, case: Case, devices: int, rule: str = "group") -> Estimate:
    """Return the estimate of the fastest grid."""
    found = [
        one
        for parts in COUNTS
        if devices % parts == 0
        and (one := estimate(machine, case, (devices // parts, parts), rule)) is not None
    ]
    return min(found, key=lambda one: one.seconds)


def fastkron_grid(devices: int) -> tuple[int, int]:
    """Return the grid of FastKron's section 5."""
    half = math.log2(devices) / 2
    return 2 ** math.ceil(half), 2 ** math.floor(half)


def measured(machine: Machine, path: Path) -> Machine:
    """Return the machine with the rates of a run."""
    content = json.loads(path.read_text())
    cases = content["cases"]
    for one in cases:
        if one["case"] == "link" and one["transport"] == "nccl" and one["bytes_per_second"]:
            machine = replace(machine, inside=one["bytes_per_second"])
        for case in (each for each in CASES if not each.total):
            if one["case"] == f"{case.rows}: {case.P}^{case.N} float32" and one["alone_seconds"]:
                rate = case.multiply_adds(1) / one["alone_seconds"]
                others = tuple(pair for pair in machine.rates if pair[0] != case.P)
                machine = replace(machine, rates=(*others, (case.P, rate)))
    machine = _measured_sweeps(machine, cases)
    runs = list(_runs(cases))
    machine = _measured_overlap(machine, runs, content["ranks"])
    machine = _measured_turning(machine, runs)
    return _measured_stores(machine, runs)


def _runs(cases: Sequence[dict[str, Any]]) -> Iterator[tuple[Product, dict[str, Any]]]:
    """Yield the measured products with exchanges, in float32, and their cases."""
    for one in cases:
        for case in CASES:
            known = one["case"] == f"{case.rows}: {case.P}^{case.N} float32"
            if known and one["grid"][1] > 1 and not one["transpose"]:
                yield case, one


def _measured_overlap(machine: Machine, runs: Sequence[Any], ranks: int) -> Machine:
    """Return the machine with the share that chunks hide of NCCL's exchanges, of 64^4."""
    ways = {
        one["transport"]: one
        for case, one in runs
        if case == CASES[0] and (one["grid"], one["exchange"]) == ([1, ranks], "group")
    }
    alone, chunked = ways.get("nccl, no overlap"), ways.get("nccl")
    if alone is None or chunked is None or not alone["sending_seconds"]:
        return machine
    shorter = min(alone["seconds"] - alone["sending_seconds"], alone["sending_seconds"])
    hidden = (alone["seconds"] - chunked["seconds"]) / shorter / (1 - 1 / CHUNKS)
    return replace(machine, hidden=min(max(hidden, 0.0), 1.0))


def _measured_turning(machine: Machine, runs: Sequence[Any]) -> Machine:
    """Return the machine with the rates of passes that transpose, from "every", by P.

    They are what is left of a product's time. One vector, which is one chunk, is not among them.
    """
    found: dict[int, list[float]] = {}
    for case, one in runs:
        if case.total or (one["transport"], one["exchange"]) != ("nccl", "every"):
            continue
        rows = case.rows * math.prod(one["grid"])
        own = _Share.of(machine, case, (one["grid"][0], one["grid"][1]), rows, "every")
        hidden = machine.hidden * (1 - 1 / CHUNKS) * one["sending_seconds"]
        passes = one["seconds"] - one["alone_seconds"] - one["sending_seconds"] + hidden
        moved = own.plan.num_exchanges * 4 * own.block
        found.setdefault(case.P, []).append(passes / moved)
    turning = tuple((P, len(times) / sum(times)) for P, times in found.items())
    return replace(machine, turning=turning) if turning else machine


def _measured_stores(machine: Machine, runs: Sequence[Any]) -> Machine:
    """Return the machine with the rate of stores, and their overlap, of the least errors."""
    stored = [(case, one) for case, one in runs if one["transport"] == "peer"]
    if not stored:
        return machine

    def errors(tried: Machine) -> float:
        total = 0.0
        for case, one in stored:
            found = estimate(tried, case, tuple(one["grid"]), one["exchange"], "stores")
            assert found is not None
            total += math.log(found.seconds / one["seconds"]) ** 2
        return total

    return min(
        (
            replace(machine, stores=1e9 * rate, stores_hidden=share / 20)
            for rate in range(150, 451, 5)  # at most what NVLink has
            for share in range(21)
        ),
        key=errors,
    )


def comparison(machine: Machine, path: Path) -> list[str]:
    """Return the lines of a table of a run's products with exchanges, beside the model."""
    lines = [
        "| case | grid | transport | exchange | model ms | measured ms | error |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case, one in _runs(json.loads(path.read_text())["cases"]):
        if one["transport"] not in ("nccl", "peer"):
            continue
        transport = "stores" if one["transport"] == "peer" else "nccl"
        found = estimate(machine, case, tuple(one["grid"]), one["exchange"], transport)
        assert found is not None
        lines.append(
            f"| {case.rows}: {case.P}^{case.N} | {tuple(one['grid'])} | {transport} |"
            f" {one['exchange']} | {1e3 * found.seconds:.3g} | {1e3 * one['seconds']:.3g} |"
            f" {found.seconds / one['seconds'] - 1:+.0%} |"
        )
    return lines


def _measured_sweeps(machine: Machine, cases: Sequence[dict[str, Any]]) -> Machine:
    """Return the machine with the line through one device's times of several grids."""
    known = [one for one in cases if one["case"].startswith("sweeps, continuity-6d")]
    known = [one for one in known if one["transport"] == "nccl" and one["alone_seconds"]]
    if len(known) < 2:
        return machine
    unknowns = [one["unknowns"] for one in known]
    slope, launches = np.polyfit(unknowns, [one["alone_seconds"] for one in known], 1)
    return replace(machine, sweep_launches=float(launches), sweep_unknown=float(slope))


def table(machine: Machine, cases: Sequence[Case] = CASES) -> list[str]:
    """Return the lines of a table of cases and numbers of devices."""
    lines = [
        "| case | GPUs | grid | rounds | ms | of one | longer | FastKron's grid | of one |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case in cases:
        for devices in COUNTS:
            one = best(machine, case, devices)
            other = estimate(machine, case, fastkron_grid(devices))
            theirs = "– | –" if other is None else f"{other.grid} | {_percent(other.efficiency)}"
            lines.append(
                f"| {case.label} | {devices} | {one.grid} | {one.rounds} |"
                f" {1e3 * one.seconds:.3g} | {_percent(one.efficiency)} | {one.binds} | {theirs} |"
            )
    return lines


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}"


def measured_efficiencies(path: Path, case: Case) -> list[tuple[int, float]]:
    """Return the devices and efficiencies of a run: without exchanges, or by stores."""
    content = json.loads(path.read_text())
    if isinstance(case, Sweeps):
        name = f"sweeps, continuity-6d, level {case.level}, degree 1"
    else:
        name = f"{case.rows}: {case.P}^{case.N} float32"
    known = [one for one in content["cases"] if one["case"] == name]
    grids = fastkron_grid(content["ranks"]), (content["ranks"], 1), (1, content["ranks"])
    return [
        (content["ranks"], one["efficiency"])
        for one in known
        if (isinstance(case, Sweeps) and case.total)
        or ("grid" in one and _is_drawn(one, grids[: 3 if case.total else 2]))
    ]


def _is_drawn(one: dict[str, Any], grids: Sequence[tuple[int, int]]) -> bool:
    """Whether a measured product is one of the picture's: the model's transport and grids."""
    transport = "nccl" if one["grid"][1] == 1 else "peer"
    ours = one["transport"] == transport and one["exchange"] == "group"
    return ours and tuple(one["grid"]) in grids


def draw(
    machine: Machine, path: Path, cases: Sequence[Case] = CASES, run: Path | None = None
) -> None:
    """Draw efficiency over the number of devices, a column for each case, and a run's."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "model"
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.5 * len(cases), 4.0), layout="constrained")
    for axes, case in zip(figure.subplots(1, len(cases), sharey=True), cases, strict=True):
        ways: Sequence[tuple[str, Any, str]] = (
            ("best grid", lambda g, c=case: best(machine, c, g), "o-"),
            ("FastKron's grid", lambda g, c=case: estimate(machine, c, fastkron_grid(g)), "s--"),
            (
                "the same, exchange after each multiply",
                lambda g, c=case: estimate(machine, c, fastkron_grid(g), "every"),
                "^:",
            ),
        )[: 2 if isinstance(case, Sweeps) else 3]
        for label, of, style in ways:
            found = [one for devices in COUNTS if (one := of(devices)) is not None]
            if len(found) > 1:
                places = [one.devices for one in found]
                values = [100 * one.efficiency for one in found]
                axes.plot(places, values, style, label=label, markersize=4)
        known = measured_efficiencies(run, case) if run else []
        if known:
            places, values = [one for one, _ in known], [100 * share for _, share in known]
            axes.plot(places, values, "kx", markersize=7, label="measured")
        if not case.total:
            axes.plot(16, 100 * FASTKRON_AT_16, "k*", markersize=10, label="FastKron, 16 V100s")
        axes.set_xscale("log", base=2)
        axes.set_xlabel("GPUs")
        axes.set_title(case.label, fontsize="medium")
        axes.set_ylim(0, 108)
        axes.grid(color="0.9", linewidth=0.6)
        axes.axvline(machine.host, color="0.8", linewidth=1)
    figure.axes[0].set_ylabel("% of one GPU without exchanges")
    curves = figure.axes[0].get_legend_handles_labels()
    figure.axes[len(CASES) - 1].legend(*curves, fontsize="small", loc="upper right", frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print the table, and draw the picture where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distributed.model")
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
