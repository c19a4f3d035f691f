"""A model of 1 to 1024 devices: ``python -m benchmarks.distributed.model [--svg PATH]``.

A product takes two times, less the share of the shorter that goes on beside the longer one:

- multiplying, by the time of one device for its share (measured), plus a pass over memory to pack
  and one to unpack each exchange;
- sending: of the bytes that the plan counts, those to devices of the same host at NVLink's rate,
  others at the network's; and for each exchange a latency.

Sweeps on a sparse grid take their launches, the busiest device's work, and one sending of what its
cells need of others; nothing of that overlaps. A device's own part of the work is by one device's
measured times of several grids.

Chunks are exchanged while the next one is multiplied. On two H100s that hides little, because
NCCL's kernels wait for multiprocessors that the multiplies have. The grid is the one of the least
time; FastKron's grid is shown beside it. ``--measured PATH`` takes rates, and how much is hidden,
from a ``--json`` file of `benchmarks.distributed`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
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
    float32, 3158 µs), the vendor's figures for links, reduced by what NCCL usually reaches.
    """

    multiply_adds: float = 16 * 64**4 * 64 * 4 / 3158e-6
    rates: tuple[tuple[int, float], ...] = ()  # multiply-adds a second by P, where known
    memory: float = 4.0e12  # reading and writing together
    inside: float = 360e9  # a device sends to others of its host: NVLink 4, 450e9 at most
    outside: float = 45e9  # to other hosts: one network card of 400 Gbit/s for each device
    hidden: float = 0.08  # share of the shorter time, of all chunks but one; two H100s, 2026-11
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
    machine: Machine, case: Case, grid: tuple[int, int], rule: str = "group"
) -> Estimate | None:
    """Return what a product takes on a grid, None where it has fewer rows than that."""
    devices, parts = grid[0] * grid[1], grid[1]
    rows = case.rows if case.total else case.rows * devices
    if rows < grid[0]:
        return None
    if isinstance(case, Sweeps):
        return _sweeps(machine, case, grid, rows)
    plan = plan_of(case.P, case.N, parts, rule)
    rate = dict(machine.rates).get(case.P, machine.multiply_adds)
    alone = case.multiply_adds(devices) / rate
    own_rows = math.ceil(rows / grid[0])
    size = float(case.P) ** case.N * 4 / parts * own_rows  # bytes of a block
    share = own_rows * grid[0] / rows  # more where rows do not divide
    rounds = plan.num_exchanges
    multiplying = share * alone + rounds * 4 * size / machine.memory
    sent = own_rows * 4.0 * max(plan.sent(rank) for rank in range(parts))
    near = min(parts, machine.host)
    far = (parts - near) / max(parts - 1, 1)  # of what is sent
    sending = max(sent * (1 - far) / machine.inside, sent * far / machine.outside)
    latency = rounds * (machine.latency if parts <= machine.host else machine.network_latency)
    chunks = max(1, min(CHUNKS, own_rows))
    # the first chunk is multiplied before anything is sent, the last one sent after all is done
    hidden = machine.hidden * (1 - 1 / chunks) * min(multiplying, sending)
    seconds = multiplying + sending - hidden + (latency * chunks if rounds else 0.0)
    return Estimate(devices, grid, multiplying, sending, seconds, rounds, alone)


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
    for one in content["cases"]:
        if one["case"] == "link" and one["transport"] == "nccl" and one["bytes_per_second"]:
            machine = replace(machine, inside=one["bytes_per_second"])
        for case in (each for each in CASES if not each.total):
            if one["case"] == f"{case.rows}: {case.P}^{case.N} float32" and one["alone_seconds"]:
                rate = case.multiply_adds(1) / one["alone_seconds"]
                others = tuple(pair for pair in machine.rates if pair[0] != case.P)
                machine = replace(machine, rates=(*others, (case.P, rate)))
    machine = _measured_sweeps(machine, content["cases"])
    ways = {
        one["transport"]: one
        for one in content["cases"]
        if one["case"] == "64: 64^4 float32"
        and (one["grid"][1], one["exchange"]) == (content["ranks"], "group")
        and one["sending_seconds"]
    }
    alone, chunked = ways.get("nccl, no overlap"), ways.get("nccl")
    if alone is None or chunked is None:
        return machine
    passes = alone["seconds"] - alone["alone_seconds"] - alone["sending_seconds"]
    bytes_passed = 2 * 4 * 64 * 64**4 * 4  # of two exchanges, a block of float32 read and written
    shorter = min(alone["seconds"] - alone["sending_seconds"], alone["sending_seconds"])
    hidden = (alone["seconds"] - chunked["seconds"]) / shorter / (1 - 1 / CHUNKS)
    return replace(machine, memory=bytes_passed / passes, hidden=min(max(hidden, 0.0), 1.0))


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


def draw(machine: Machine, path: Path, cases: Sequence[Case] = CASES) -> None:
    """Draw efficiency over the number of devices, a column for each case."""
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
        if not case.total or isinstance(case, Sweeps):
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
    if options.svg:
        draw(machine, options.svg, cases[: len(CASES) + 1])


if __name__ == "__main__":
    main()
