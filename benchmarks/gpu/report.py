"""Verdicts, what is written and printed, and how we stand next to the best peers."""

from dataclasses import dataclass, field
from itertools import product
from statistics import median
from typing import Any

from benchmarks.core.tables import groups, words
from benchmarks.patterns import LAYOUTS
from benchmarks.random_shapes import standing

MAX_GAIN = 1.10  # largest time by the rule (the choice by estimates) over the time after tuning
SHARE_AHEAD = 1.0  # of the shapes of d ≥ 2 and P < 64 that shall not be behind any peer
MEDIAN_RATIO = 4.0  # to the best peer, of all shapes
WAYS = {"in a graph": "microseconds", "eager": "eager_microseconds"}
SPARSE = "kronecker-sparse"


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
    """A measured time; marked where it was not replayed from a graph."""
    if "microseconds" not in peer:
        return "not measured" if str(peer["reason"]).startswith("not measured") else "wrong"
    return shown(peer["microseconds"]) + ("" if peer.get("captured", True) else " eager")


def line(cell):
    """All times in µs, and joules where they were measured, with what else is known."""
    own = {"ours": cell.ours, **cell.peers}.items()
    times = {name: peer_time(one) for name, one in own}
    joules = {f"{name}_joules": one["joules"] for name, one in own if "joules" in one}
    known = {"ours_over_best_peer": cell.ratio, "recorded": cell.recorded, "goal": cell.goal}
    known |= {"floor": cell.floor, "over_floor": cell.over_floor, "note": cell.note}
    said = {name: one for name, one in (times | joules | known | cell.more).items() if one}
    return f"{cell.part} {cell.name} {cell.dtype}: {words(said)}: {cell.verdict()}"


def absences(cells):
    found = {}
    for cell in cells:
        for name, peer in cell.peers.items():
            if "reason" in peer:
                found.setdefault(f"{name}: {peer['reason']}", f"{cell.name} {cell.dtype}")
    return [f"{reason} (first at {where})" for reason, where in found.items()]


def missed(cells):
    return [line(cell) for cell in cells if cell.shortfalls()]


def standings_of(draws, cells):
    """Operator and function, in a graph and eager; the peers are called in the same way."""
    found = []
    for (way, key), call in product(WAYS.items(), ("operator", "function")):
        for draw, cell in zip(draws, cells, strict=True):
            ours = cell.ours if call == "operator" else cell.more["function"]
            all_times = {"": ours, **cell.peers}.items()
            times = {name: 1e-6 * one[key] for name, one in all_times if key in one}
            found += standing(draw, f"{call}, {way}", times.pop("", None), times)
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
        for layout in filter(layouts.__contains__, LAYOUTS):
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
