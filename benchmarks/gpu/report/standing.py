"""How we stand next to the best peer: on random shapes, and on Kronecker-sparse matrices."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.core.tables import groups
from benchmarks.gpu.report.report import Cell
from benchmarks.patterns import LAYOUTS
from benchmarks.random_shapes import Draw
from benchmarks.standings import Standing, standing, summary, worst_tables

SHARE_AHEAD = 1.0  # of the shapes of d ≥ 2 and P < 64 that shall not be behind any peer
MEDIAN_RATIO = 4.0  # to the best peer, of all shapes
WAYS = {"in a graph": "microseconds", "eager": "eager_microseconds"}
SPARSE = "kronecker-sparse"


def seconds_of(found: Mapping[str, Any], way: str) -> float | None:
    return 1e-6 * found[WAYS[way]] if WAYS[way] in found else None


def standings_of(draws: Sequence[Draw], cells: Sequence[Cell]) -> list[Standing]:
    """Operator and function, in a graph and eager; the peers are called in the same way."""
    found = []
    for way in WAYS:
        for call in ("operator", "function"):
            for draw, cell in zip(draws, cells, strict=True):
                ours = cell.ours if call == "operator" else cell.more["function"]
                times = {name: seconds_of(peer, way) for name, peer in cell.peers.items()}
                peers = {name: time for name, time in times.items() if time is not None}
                found.append(standing(draw, f"{call}, {way}", seconds_of(ours, way), peers))
    return [one for one in found if one is not None]


def wrong_results(cells: Sequence[Cell]) -> list[str]:
    return [
        f"{cell.name} {cell.dtype}: {call}: {found['reason']}"
        for cell in cells
        for call, found in (("operator", cell.ours), ("function", cell.more["function"]))
        if "reason" in found
    ]


def print_standings(standings: Sequence[Standing], wrong: Sequence[str]) -> None:
    print(f"\n## Next to the best peer\n\n{worst_tables(standings)}")
    print(f"\n## Summary\n\n{summary(standings, SHARE_AHEAD, MEDIAN_RATIO)}")
    print("\n## Ours without a time\n\n" + ("\n".join(f"- {text}" for text in wrong) or "none"))


def sparse_standing(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    own = [one for one in cells if one.part == SPARSE and one.microseconds]
    found: list[dict[str, Any]] = []
    for dtype, of_dtype in groups(own, lambda one: one.dtype).items():
        layouts = groups(of_dtype, lambda one: one.more["layout"])
        for layout in LAYOUTS:
            if layout in layouts:
                found.append({"dtype": dtype, "layout": layout} | _figures(layouts[layout]))
        first, last = (
            {cell.more["pattern"]: cell.microseconds or 0.0 for cell in layouts.get(layout, ())}
            for layout in LAYOUTS
        )
        ratios = [time / last[pattern] for pattern, time in first.items() if pattern in last]
        if ratios:
            compared = {"dtype": dtype, "layout": "first over last", "cells": len(ratios)}
            found.append(compared | {"median_ratio": median(ratios), "largest_ratio": max(ratios)})
    return found


def _figures(cells: Sequence[Cell]) -> dict[str, Any]:
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
