"""Whether a cell reaches what its regime asks for: against the peers, and of the machine."""

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

    @property
    def reached(self) -> float:
        """The number over what is needed, or over 1."""
        return (self.value or 0) / (self.needed or 1)


NOTHING = Target(None, None, "")


@dataclass(frozen=True)
class Verdict:
    """One cell of a regime on one number of threads; without ``share`` one of a gain by threads."""

    regime: str
    cell: Cell
    threads: int
    ratio: Target
    share: Target = NOTHING

    @property
    def met(self) -> bool | None:
        """Whether all that is asked for is reached; None where a part of it was not measured."""
        parts = (self.ratio.met, self.share.met)
        if self.cell.ours(self.threads) is None or (False not in parts and None in parts):
            return None
        return False not in parts


def ceiling_seconds(cell: Cell, name: str, ceilings: Ceilings) -> float:
    """The time of a cell at a ceiling; "traffic" of an explicit product is only written."""
    if name in ("gemm", "fma"):
        return cell.flops / ceilings[f"{name} {cell.key.dtype}"]
    return cell.traffic / ceilings[name]


def binding_ceiling(cell: Cell, ceilings: Ceilings, flops: str = "gemm") -> tuple[float, str]:
    """The time at the ceiling that the cell meets first, and its name."""
    traffic = "write" if isinstance(cell.measured, Explicit) else "bandwidth"
    names = [flops, traffic] if cell.beyond_cache else [flops]
    return max((ceiling_seconds(cell, name, ceilings), name) for name in names)


def share_of_machine(regime: Regime, cell: Cell, threads: int, ceilings: Ceilings) -> Target:
    seconds = cell.ours(threads)
    if seconds is None or cell.measured is None:
        return NOTHING
    bounds = [one for one in regime.machine if one.threads in (None, threads)]
    if not bounds:
        least, name = binding_ceiling(cell, ceilings)
        return Target(least / seconds, None, name)

    def allowed(bound: Bound) -> float:
        if bound.ceiling:
            return ceiling_seconds(cell, bound.ceiling, ceilings) / bound.fraction
        return bound.seconds + cell.flops / bound.flops_per_second

    bound = max(bounds, key=allowed)
    against = bound.ceiling or f"{1e6 * allowed(bound):.2f} µs"
    return Target(bound.fraction * allowed(bound) / seconds, bound.fraction, against)


def ratio_to_peers(regime: Regime, cell: Cell, threads: int, ceilings: Ceilings) -> Target:
    """How many times as fast we are as the peer whose required ratio is hardest to reach."""
    seconds, asked = cell.ours(threads), regime.ratio.get(cell.key.dtype)
    if seconds is None or asked is None:
        return NOTHING
    named = asked if isinstance(asked, Mapping) else {}
    floor, _ = binding_ceiling(cell, ceilings, "fma")
    targets, peers = [], {k: v for k, v in cell.medians(threads).items() if k != OURS}
    for name, time in peers.items():
        needed = asked if not isinstance(asked, Mapping) else named.get(name, 1.0)
        if needed and time / needed >= floor:
            targets.append(Target(time / seconds, needed, name))
        elif needed:
            note = f"{needed:g} × is beyond the machine"
            targets.append(Target(time / seconds, 1.0, name, note))
    if not targets:
        return Target(None, 1.0, "", "no peer was measured")
    hardest = min(targets, key=lambda target: target.reached)
    absent = {name for name, ratio in named.items() if ratio} - set(peers)
    if absent and hardest.met:
        note = f"{', '.join(sorted(absent))} was not measured"
        return Target(None, hardest.needed, hardest.against, note)
    return hardest


def judge(regime: Regime, cells: Sequence[Cell], ceilings: Mapping[int, Ceilings]) -> list[Verdict]:
    return [
        Verdict(
            *(regime.name, cell, threads),
            ratio_to_peers(regime, cell, threads, ceilings[threads]),
            share_of_machine(regime, cell, threads, ceilings[threads]),
        )
        for cell in cells
        for threads in cell.key.threads
    ]


def speedups(cells: Sequence[Cell], ceilings: Mapping[int, Ceilings]) -> list[Verdict]:
    """The gain from one thread to more of all cells with enough work, beside the ceiling's."""
    found = []
    for cell in cells:
        alone = cell.ours(1)
        if alone is None or alone < MIN_SECONDS:
            continue
        one, name = binding_ceiling(cell, ceilings[1])
        for threads in cell.key.threads:
            together = cell.ours(threads)
            if threads > 1 and together is not None:
                needed = MIN_SPEEDUP * one / ceiling_seconds(cell, name, ceilings[threads])
                target = Target(alone / together, needed, name)
                found.append(Verdict("threads", cell, threads, target))
    return found
