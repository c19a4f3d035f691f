"""What a run of random shapes says: each way of calling us next to the best peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu.report.report import Cell
from benchmarks.random_shapes import Draw
from benchmarks.standings import Standing, standing, summary, worst_tables

SHARE_AHEAD = 1.0  # of the shapes of d ≥ 2 and P < 64 that shall not be behind any peer
MEDIAN_RATIO = 4.0  # to the best peer, of all shapes
WAYS = {"in a graph": "microseconds", "eager": "eager_microseconds"}


def seconds_of(found: Mapping[str, Any], way: str) -> float | None:
    """A time of a measurement, if it has one."""
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
    """Calls of ours that have no time, and why."""
    return [
        f"{cell.name} {cell.dtype}: {call}: {found['reason']}"
        for cell in cells
        for call, found in (("operator", cell.ours), ("function", cell.more["function"]))
        if "reason" in found
    ]


def print_standings(standings: Sequence[Standing], wrong: Sequence[str]) -> None:
    """Print the worst ten of each way, and the shares."""
    print(f"\n## Next to the best peer\n\n{worst_tables(standings)}")
    print(f"\n## Summary\n\n{summary(standings, SHARE_AHEAD, MEDIAN_RATIO)}")
    print("\n## Ours without a time\n\n" + ("\n".join(f"- {text}" for text in wrong) or "none"))
