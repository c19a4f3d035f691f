"""Whether cells reach what their regimes ask for; what is printed of them, and written."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.core.tables import count_of, duration, table
from benchmarks.core.timing import OURS, Absent, Failure, Result
from benchmarks.cpu.ceilings import Ceilings
from benchmarks.cpu.cells import Cell
from benchmarks.cpu.regimes import MIN_SECONDS, MIN_SPEEDUP, Bound, Regime
from benchmarks.shapes import Explicit

MARKS = {True: "yes", False: "NO", None: "not measured"}


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


def number(target: Target, pattern: str) -> str:
    """A number, and what it must be at least, if anything is asked for."""
    if target.value is None:
        return "–"
    needed = f" (≥ {format(target.needed, pattern)})" if target.needed else ""
    return format(target.value, pattern) + needed


def ceilings_table(ceilings: Mapping[int, Ceilings]) -> str:
    rows = []
    for name in next(iter(ceilings.values())):
        unit = "GFLOP/s" if " " in name else "GB/s"
        values = [f"{rates[name] / 1e9:.1f} {unit}" for rates in ceilings.values()]
        rows.append([name.replace("_", ", "), *values])
    return table(["ceiling", *map(count_of, ceilings)], rows)


def asked(regime: Regime) -> tuple[str, str]:
    ratios = dict.fromkeys(
        ", ".join(f"{ratio:g} × {name}" for name, ratio in value.items() if ratio)
        if isinstance(value, Mapping)
        else f"{value:g} ×"
        for value in regime.ratio.values()
    )
    return " / ".join(ratios) or "–", " or ".join(one.text for one in regime.machine) or "–"


def regime_table(regime: Regime, verdicts: Sequence[Verdict]) -> str:
    names = dict.fromkeys(result.name for verdict in verdicts for result in verdict.cell.results)
    peers = [name for name in names if name != OURS]
    header = ["shape", "dtype", "threads", OURS, *peers]
    header += ["hardest peer", "ratio", "GFLOP/s", "ceiling", "of it", "met"]
    title = f"## {regime.name}: {regime.title}\n\nAsked for: {'; '.join(asked(regime))}."
    rows = [verdict_row(verdict, peers) for verdict in verdicts]
    notes = dict.fromkeys(note for verdict in verdicts for note in notes_of(verdict))
    return "\n".join([title, "", table(header, rows), *[f"- {note}" for note in notes]]) + "\n"


def verdict_row(verdict: Verdict, peers: Sequence[str]) -> list[str]:
    cell, ratio, share = verdict.cell, verdict.ratio, verdict.share
    medians = cell.medians(verdict.threads)
    ours = medians.get(OURS)
    rate = "–" if ours is None else f"{cell.flops / ours / 1e9:.3g}"
    offered = {result.name for result in cell.results}
    absent = [None if name in medians or name not in offered else "not measured" for name in peers]
    return [
        *(cell.label, cell.key.dtype, str(verdict.threads), duration(ours)),
        *[why or duration(medians.get(name)) for name, why in zip(peers, absent, strict=True)],
        *(ratio.against or "–", number(ratio, ".2f"), rate),
        *(share.against or "–", number(share, ".0%"), MARKS[verdict.met]),
    ]


def notes_of(verdict: Verdict) -> list[str]:
    """What a row does not say: variants that were left out or failed, and why."""
    cell = verdict.cell
    notes = [
        f"{result.name} {result.variant}: {result.reason}"
        for result in cell.results
        if isinstance(result, Failure) or (isinstance(result, Absent) and result.variant)
    ]
    notes += [verdict.ratio.note] if verdict.ratio.note else []
    return [f"{cell.label}, {cell.key.dtype}: {note}" for note in notes]


def result_records(results: Iterable[Result]) -> list[dict[str, Any]]:
    return [{"kind": type(result).__name__.lower(), **asdict(result)} for result in results]


def cell_record(cell: Cell) -> dict[str, Any]:
    key = cell.key
    record: dict[str, Any] = {"shape": key.shape.name, "dtype": key.dtype, "cold": key.cold}
    record |= {"threads": key.threads, "results": result_records(cell.results)}
    if cell.measured is not None:
        record |= {"measured_shape": cell.measured.name, "flops": cell.flops}
        record["traffic_bytes"] = cell.traffic
    return record


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    key = verdict.cell.key
    record = {"regime": verdict.regime, "shape": key.shape.name, "dtype": key.dtype}
    record |= {"threads": verdict.threads, "ratio": asdict(verdict.ratio), "met": verdict.met}
    if verdict.regime != "threads":
        ours = verdict.cell.ours(verdict.threads)
        record |= {"ours": ours, "share": asdict(verdict.share)}
    return record
