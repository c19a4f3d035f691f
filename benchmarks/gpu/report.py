"""Verdicts, what is written and printed, and how we stand next to the best peers."""

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.core.tables import groups
from benchmarks.patterns import LAYOUTS
from benchmarks.random_shapes import standing

MAX_GAIN = 1.10  # largest time by the rule (the choice by estimates) over the time after tuning
SHARE_AHEAD = 1.0  # of the shapes of d ≥ 2 and P < 64 that shall not be behind any peer
MEDIAN_RATIO = 4.0  # to the best peer, of all shapes
WAYS = {"in a graph": "microseconds", "eager": "eager_microseconds"}
SPARSE = "kronecker-sparse"
RECORDED = "recorded, not in this run"
NOTES = {
    "kron": f"FastKron, cuTENSOR: {RECORDED}.",
    "precision": "float32 on matrix units; full: by the same operator in full precision.",
    "batch": f"ASGarD: {RECORDED}. Peers: gathers, batched multiplies, sums.",
    "small batch": f"ASGarD: {RECORDED}.",
    "atomic": f"ASGarD: {RECORDED}. Lists in random order; function: batched_kron.",
    "list": "32M: the floor has random gathers from memory as measured in this run.",
    "tune": "ours: the best that was found; rule: without a search.",
    "kronecker-sparse": "25088 vectors; peers are torch's, float32 in full precision.",
    "sweeps": "The floor: x, y and all pairs of cells through memory once, or the arithmetic.",
    "random": "JAX, and what is marked so: as eager calls.",
    "ablation": "factor: one factor a kernel over all at once; by functions: over gekmm, fused.",
}


@dataclass
class Cell:
    """One case in one dtype.

    ``ours`` and each of ``peers`` hold "microseconds" or the "reason" for there being none.
    """

    part: str
    name: str
    dtype: str
    ours: dict
    peers: dict[str, dict] = field(default_factory=dict)
    goal: float | None = None
    recorded: dict = field(default_factory=dict)
    floor: float | None = None
    note: str = ""
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def microseconds(self):
        return self.ours.get("microseconds")

    @property
    def measured_peers(self):
        times = {name: peer.get("microseconds") for name, peer in self.peers.items()}
        return {name: time for name, time in times.items() if time is not None}

    @property
    def ratio(self):
        return self._over(min(self.measured_peers.values(), default=None))

    @property
    def over_floor(self):
        return self._over(self.floor)

    def add_rates(self, **amounts):
        """Keep what is done in a second, in units of 1e12, where there is a time."""
        if self.microseconds:
            for name, amount in amounts.items():
                self.more[name] = amount / self.microseconds / 1e6

    def _over(self, time):
        return self.microseconds / time if self.microseconds is not None and time else None

    def shortfalls(self):
        """What is missed, empty where all is reached."""
        ours, goal = self.microseconds, self.goal
        if ours is None:
            return [str(self.ours["reason"])]
        found = []
        if goal is not None and ours > goal:
            found.append(f"missed goal ({ours / goal:.2f} ×)")
        if self.part == "tune" and self.more["gain"] > MAX_GAIN:
            found.append(f"the rule is not within {MAX_GAIN - 1:.0%} ({self.more['gain']:.2f} ×)")
        slower = [name for name, time in self.measured_peers.items() if ours > time]
        if self.part != "ablation" and slower:
            found.append(f"slower than {' and '.join(slower)}")
        recorded = [name for name, time in self.recorded.items() if ours > least(time)]
        if recorded:
            found.append(f"slower than {' and '.join(recorded)} as recorded")
        return found

    def verdict(self):
        if short := self.shortfalls():
            return ", ".join(short)
        if self.part == "tune":
            return f"the rule is within {MAX_GAIN - 1:.0%}"
        if self.goal is None:
            return "fastest" if self.measured_peers and self.part != "ablation" else "–"
        return "met"

    def record(self):
        return {
            **{"part": self.part, "case": self.name, "dtype": self.dtype, "ours": dict(self.ours)},
            "peers": {name: dict(peer) for name, peer in self.peers.items()},
            "recorded": dict(self.recorded),
            **{"goal": self.goal, "floor": self.floor},
            **{"ours_over_best_peer": self.ratio, "ours_over_floor": self.over_floor},
            **{"note": self.note, "verdict": self.verdict(), "shortfalls": self.shortfalls()},
            **self.more,
        }


def least(time):
    return time[0] if isinstance(time, tuple) else time


def shown(time):
    if time is None:
        return "–"
    if isinstance(time, tuple):
        return f"{time[0]:g}-{time[1]:g}"
    return f"{time:.2f}" if time < 10 else f"{time:.1f}" if time < 100 else f"{time:.0f}"


def ratio(value):
    return "–" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def peer_time(peer):
    """A measured peer's time; marked where it was not replayed from a graph."""
    if peer is None:
        return "–"
    if "microseconds" not in peer:
        return "not measured" if str(peer["reason"]).startswith("not measured") else "wrong"
    return shown(peer["microseconds"]) + ("" if peer.get("captured", True) else " eager")


def more_times(cell):
    more, found = cell.more, []
    if cell.part == "ablation":
        keys = ("factor", "factor_of_functions", "published_factor")
        found += [f"{key.replace('_', ' ')} {ratio(more.get(key))}" for key in keys]
    found += [f"{key} {peer_time(more[key])}" for key in ("owner", "function") if key in more]
    for key, one in (("operator", cell.ours), ("function", more.get("function", {}))):
        if "eager_microseconds" in one:
            found.append(f"{key}, eager {shown(one['eager_microseconds'])}")
    if cell.part == "tune":
        counts = ("tried", "pruned", "failed", "seconds")
        found += [f"{key} {more[key]:.0f}" for key in counts if key in more]
    if "joules" in cell.ours:
        best = min(
            (peer["joules"] for peer in cell.peers.values() if "joules" in peer), default=None
        )
        ours, theirs = (
            "–" if one is None else f"{1e3 * one:.3g}" for one in (cell.ours["joules"], best)
        )
        found += [f"{cell.ours['watts']:.0f} W, {ours} mJ", f"best peer {theirs} mJ"]
    return found


def line(cell):
    parts = [f"{cell.name} {cell.dtype}: {peer_time(cell.ours)}"]
    parts += [f"{name} {peer_time(peer)}" for name, peer in cell.peers.items()]
    if cell.ratio is not None:
        parts.append(f"ours/best peer {ratio(cell.ratio)}")
    if cell.recorded:
        known = (f"{name} {shown(time)}" for name, time in cell.recorded.items())
        parts.append(f"recorded: {', '.join(known)}")
    parts.append(f"goal {shown(cell.goal)}")
    parts.append(f"floor {shown(cell.floor)} ({ratio(cell.over_floor)} ×)")
    note = f" ({cell.note})" if cell.note else ""
    return "; ".join([*parts, *more_times(cell), cell.verdict() + note])


def show(cell, before):
    """Print a cell, after the title of its part where the cell before is of another one."""
    if before is None or cell.part != before.part:
        print(f"\n## {cell.part}, µs\n\n{NOTES.get(cell.part, '')}".rstrip() + "\n")
    print(f"- {line(cell)}", flush=True)


def absences(cells):
    found = {}
    for cell in cells:
        for name, peer in cell.peers.items():
            if "reason" in peer:
                found.setdefault(f"{name}: {peer['reason']}", f"{cell.name} {cell.dtype}")
    return [f"{reason} (first at {where})" for reason, where in found.items()]


def missed(cells):
    lines = []
    for cell in cells:
        if short := cell.shortfalls():
            numbers = f"{shown(cell.microseconds)} µs, goal {shown(cell.goal)}"
            numbers += f", floor {shown(cell.floor)} ({ratio(cell.over_floor)} ×)"
            lines.append(f"{cell.part} {cell.name} {cell.dtype}: {numbers}: {', '.join(short)}")
    return lines


def seconds_of(found, way):
    return 1e-6 * found[WAYS[way]] if WAYS[way] in found else None


def standings_of(draws, cells):
    """Operator and function, in a graph and eager; the peers are called in the same way."""
    found = []
    for way in WAYS:
        for call in ("operator", "function"):
            for draw, cell in zip(draws, cells, strict=True):
                ours = cell.ours if call == "operator" else cell.more["function"]
                times = {name: seconds_of(peer, way) for name, peer in cell.peers.items()}
                peers = {name: time for name, time in times.items() if time is not None}
                found += standing(draw, f"{call}, {way}", seconds_of(ours, way), peers)
    return found


def wrong_results(cells):
    return [
        f"{cell.name} {cell.dtype}: {call}: {found['reason']}"
        for cell in cells
        for call, found in (("operator", cell.ours), ("function", cell.more["function"]))
        if "reason" in found
    ]


def sparse_standing(cells):
    own = [one for one in cells if one.part == SPARSE and one.microseconds]
    found = []
    for dtype, of_dtype in groups(own, lambda one: one.dtype).items():
        layouts = groups(of_dtype, lambda one: one.more["layout"])
        for layout in LAYOUTS:
            if layout in layouts:
                found.append({"dtype": dtype, "layout": layout} | _figures(layouts[layout]))
        first, last = (
            {cell.more["pattern"]: cell.microseconds for cell in layouts.get(layout, ())}
            for layout in LAYOUTS
        )
        ratios = [time / last[pattern] for pattern, time in first.items() if pattern in last]
        if ratios:
            compared = {"dtype": dtype, "layout": "first over last", "cells": len(ratios)}
            found.append(compared | {"median_ratio": median(ratios), "largest_ratio": max(ratios)})
    return found


def _figures(cells):
    gains = [1 / cell.ratio for cell in cells if cell.ratio]
    floors = [cell.over_floor for cell in cells if cell.over_floor]
    return {
        "cells": len(cells),
        "fastest": sum(gain >= 1 for gain in gains),
        "compared": len(gains),
        "median_gain": median(gains) if gains else None,
        "least_gain": min(gains, default=None),
        "median_over_floor": median(floors),
        "largest_over_floor": max(floors),
    }
