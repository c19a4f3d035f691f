"""Whether a cell reaches what its regime asks for: against the peers, and of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.core.timing import OURS
from benchmarks.cpu.ceilings import Ceilings
from benchmarks.cpu.cells import Cell
from benchmarks.cpu.regimes import MIN_SECONDS, MIN_SPEEDUP, Bound, Regime
from benchmarks.shapes import Explicit


@dataclass(frozen=True)
class Target:
    """One number and what it must be at least, if anything is asked for.

    ``against`` names the peer or the ceiling; ``note`` says what is special about the number.
    """

    value: float | None
    needed: float | None
    against: str
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the number suffices; None where it should have been measured and was not."""
        if self.needed is None:
            return True
        return None if self.value is None else self.value >= self.needed


@dataclass(frozen=True)
class Verdict:
    """A row of the report: one cell of a regime on one number of threads."""

    regime: str
    cell: Cell
    threads: int
    ratio: Target
    share: Target

    @property
    def met(self) -> bool | None:
        """Whether all that is asked for is reached; None where a part of it was not measured."""
        parts = (self.ratio.met, self.share.met)
        if self.cell.ours(self.threads) is None or (False not in parts and None in parts):
            return None
        return False not in parts


def ceiling_seconds(cell: Cell, name: str, ceilings: Ceilings) -> float:
    if name in ("gemm", "fma"):
        return cell.flops / ceilings[f"{name} {cell.key.dtype}"]
    return cell.traffic / ceilings[name]


def traffic_ceiling(cell: Cell) -> str:
    """The ceiling of a cell's traffic: an explicit product is only written."""
    return "write" if isinstance(cell.measured, Explicit) else "bandwidth"


def floor_seconds(cell: Cell, ceilings: Ceilings) -> float:
    floor = ceiling_seconds(cell, "fma", ceilings)
    if cell.beyond_cache:
        floor = max(floor, ceiling_seconds(cell, traffic_ceiling(cell), ceilings))
    return floor


def binding_ceiling(cell: Cell, ceilings: Ceilings) -> str:
    names = ["gemm", traffic_ceiling(cell)] if cell.beyond_cache else ["gemm"]
    return max(names, key=lambda name: ceiling_seconds(cell, name, ceilings))


def share_of_machine(regime: Regime, cell: Cell, threads: int, ceilings: Ceilings) -> Target:
    seconds = cell.ours(threads)
    if seconds is None or cell.measured is None:
        return Target(None, None, "")
    bounds = [one for one in regime.machine if one.threads in (None, threads)]
    if not bounds:
        name = binding_ceiling(cell, ceilings)
        return Target(ceiling_seconds(cell, name, ceilings) / seconds, None, name)

    def allowed(bound: Bound) -> float:
        if bound.ceiling:
            return ceiling_seconds(cell, bound.ceiling, ceilings) / bound.fraction
        return bound.seconds + cell.flops / bound.flops_per_second

    bound = max(bounds, key=allowed)
    against = bound.ceiling or f"{1e6 * allowed(bound):.2f} µs"
    return Target(bound.fraction * allowed(bound) / seconds, bound.fraction, against)


def ratio_to_peers(regime: Regime, cell: Cell, threads: int, ceilings: Ceilings) -> Target:
    """How many times as fast we are as the peer whose required ratio is hardest to reach."""
    medians = cell.medians(threads)
    seconds = cell.ours(threads)
    asked = regime.ratio.get(cell.key.dtype)
    if seconds is None or asked is None:
        return Target(None, None, "")
    peers = {name: median for name, median in medians.items() if name != OURS}
    absent = compared(asked) - set(peers)
    targets = [
        peer_target(name, peers[name], seconds, asked, floor_seconds(cell, ceilings))
        for name in peers
        if not isinstance(asked, Mapping) or asked.get(name) != 0
    ]
    hardest = min(
        targets, key=lambda target: (target.value or 0) / (target.needed or 1), default=None
    )
    if hardest is None:
        return Target(None, 1.0, "", "no peer was measured")
    if absent and hardest.met:
        note = f"{', '.join(sorted(absent))} was not measured"
        return Target(None, hardest.needed, hardest.against, note)
    return hardest


def compared(asked: float | Mapping[str, float]) -> set[str]:
    """The peers that a regime names to be compared with."""
    if not isinstance(asked, Mapping):
        return set()
    return {name for name, ratio in asked.items() if ratio}


def peer_target(
    name: str,
    peer_seconds: float,
    seconds: float,
    asked: float | Mapping[str, float],
    floor: float,
) -> Target:
    """The ratio to one peer; 1 is enough where the machine does not allow what is asked for."""
    needed = asked.get(name, 1.0) if isinstance(asked, Mapping) else asked
    if peer_seconds / needed >= floor:
        return Target(peer_seconds / seconds, needed, name)
    note = f"{needed:g} × is beyond the machine"
    return Target(peer_seconds / seconds, 1.0, name, note)


def judge(regime: Regime, cells: Sequence[Cell], ceilings: Mapping[int, Ceilings]) -> list[Verdict]:
    return [
        Verdict(
            regime.name,
            cell,
            threads,
            ratio_to_peers(regime, cell, threads, ceilings[threads]),
            share_of_machine(regime, cell, threads, ceilings[threads]),
        )
        for cell in cells
        for threads in cell.key.threads
    ]


@dataclass(frozen=True)
class Speedup:
    """The speedup from one thread to ``threads``, next to that of the binding ceiling."""

    cell: Cell
    threads: int
    target: Target


def speedups(cells: Sequence[Cell], ceilings: Mapping[int, Ceilings]) -> list[Speedup]:
    """The gain by threads of all cells with enough work."""
    found = []
    for cell in cells:
        alone = cell.ours(1)
        if alone is None or alone < MIN_SECONDS:
            continue
        name = binding_ceiling(cell, ceilings[1])
        for threads in cell.key.threads:
            together = cell.ours(threads)
            if threads == 1 or together is None:
                continue
            one, more = (ceiling_seconds(cell, name, ceilings[count]) for count in (1, threads))
            target = Target(alone / together, MIN_SPEEDUP * one / more, name)
            found.append(Speedup(cell, threads, target))
    return found
