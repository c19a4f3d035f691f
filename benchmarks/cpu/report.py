"""The tables that are printed, and the file that is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.core.tables import count_of, duration, table
from benchmarks.core.timing import OURS, Absent, Failure, Result
from benchmarks.cpu.ceilings import Ceilings
from benchmarks.cpu.cells import Cell
from benchmarks.cpu.regimes import MIN_SPEEDUP, Regime
from benchmarks.cpu.verdicts import Speedup, Target, Verdict

MARKS = {True: "yes", False: "NO", None: "not measured"}


def number(value: float | None, needed: float | None, pattern: str) -> str:
    """A number, and what it must be at least, if anything is asked for."""
    if value is None:
        return "–"
    return format(value, pattern) + (f" (≥ {format(needed, pattern)})" if needed else "")


def ceilings_table(ceilings: Mapping[int, Ceilings]) -> str:
    names = next(iter(ceilings.values()))
    header = ["ceiling", *map(count_of, ceilings)]
    rows = []
    for name in names:
        unit = "GFLOP/s" if " " in name else "GB/s"
        values = [f"{rates[name] / 1e9:.1f} {unit}" for rates in ceilings.values()]
        rows.append([name.replace("_", ", "), *values])
    return table(header, rows)


def asked_ratio(regime: Regime) -> str:
    asked = dict.fromkeys(
        ", ".join(f"{ratio:g} × {name}" for name, ratio in value.items() if ratio)
        if isinstance(value, Mapping)
        else f"{value:g} ×"
        for value in regime.ratio.values()
    )
    return " / ".join(asked) or "–"


def asked_share(regime: Regime) -> str:
    return " or ".join(bound.text for bound in regime.machine) or "–"


def regime_table(regime: Regime, verdicts: Sequence[Verdict]) -> str:
    names = dict.fromkeys(result.name for verdict in verdicts for result in verdict.cell.results)
    peers = [name for name in names if name != OURS]
    header = ["shape", "dtype", "threads", OURS, *peers]
    header += ["hardest peer", "ratio", "GFLOP/s", "ceiling", "of it", "met"]
    title = f"## {regime.name}: {regime.title}\n\nAsked for: {asked_ratio(regime)}; "
    title += f"{asked_share(regime)}."
    rows = [verdict_row(verdict, peers) for verdict in verdicts]
    notes = dict.fromkeys(note for verdict in verdicts for note in notes_of(verdict))
    return "\n".join([title, "", table(header, rows), *[f"- {note}" for note in notes]]) + "\n"


def verdict_row(verdict: Verdict, peers: Sequence[str]) -> list[str]:
    cell, threads = verdict.cell, verdict.threads
    medians = cell.medians(threads)
    ours = cell.ours(threads)
    rate = "–" if ours is None else f"{cell.flops / ours / 1e9:.3g}"
    needed = verdict.share.needed
    return [
        *(cell.label, cell.key.dtype, str(threads), duration(ours)),
        *[peer_time(cell, medians, name) for name in peers],
        verdict.ratio.against or "–",
        number(verdict.ratio.value, verdict.ratio.needed, ".2f"),
        rate,
        verdict.share.against or "–",
        number(verdict.share.value, needed, ".0%"),
        MARKS[verdict.met],
    ]


def peer_time(cell: Cell, medians: Mapping[str, float], name: str) -> str:
    """A peer's time; a dash where it offers nothing for the shape."""
    if name in medians:
        return duration(medians[name])
    offered = any(result.name == name for result in cell.results)
    return "not measured" if offered else "–"


def notes_of(verdict: Verdict) -> list[str]:
    """What a row does not say: variants that were left out or failed, and why."""
    cell = verdict.cell
    notes = [
        f"{cell.label}, {cell.key.dtype}: {result.name} {result.variant}: {result.reason}"
        for result in cell.results
        if isinstance(result, Failure) or (isinstance(result, Absent) and result.variant)
    ]
    if verdict.ratio.note:
        notes.append(f"{cell.label}, {cell.key.dtype}: {verdict.ratio.note}")
    return notes


def worst(targets: Sequence[tuple[Target, Cell]], pattern: str) -> str:
    """The number that is furthest from what is asked for, and where."""
    judged = [(t, cell) for t, cell in targets if t.value is not None and t.needed]
    if not judged:
        return "–"
    target, cell = min(judged, key=lambda pair: (pair[0].value or 0) / (pair[0].needed or 1))
    return f"{number(target.value, target.needed, pattern)} at {cell.label} {cell.key.dtype}"


def summary(
    judged: Mapping[str, Sequence[Verdict]], regimes: Sequence[Regime], gains: Sequence[Speedup]
) -> str:
    rows = [
        [
            regime.title,
            asked_ratio(regime),
            worst([(v.ratio, v.cell) for v in judged[regime.name]], ".2f"),
            asked_share(regime),
            worst([(v.share, v.cell) for v in judged[regime.name]], ".0%"),
            f"{sum(v.met is True for v in judged[regime.name])} of {len(judged[regime.name])}",
        ]
        for regime in regimes
    ]
    met = f"{sum(bool(gain.target.met) for gain in gains)} of {len(gains)}"
    furthest = worst([(gain.target, gain.cell) for gain in gains], ".2f")
    asked = f"{MIN_SPEEDUP:g} × that of the binding ceiling"
    last = ["one thread to more, above 100 µs", "–", "–", asked, furthest]
    rows.append([*last, met if gains else "not measured"])
    header = ["regime", "at least", "furthest from it", "of the machine", "furthest from it", "met"]
    return table(header, rows)


def missed(verdicts: Iterable[Verdict], gains: Iterable[Speedup]) -> str:
    lines = []
    for verdict in verdicts:
        if verdict.met:
            continue
        parts = []
        if verdict.met is None:
            parts.append("not measured")
        if verdict.ratio.met is False:
            ratio = number(verdict.ratio.value, verdict.ratio.needed, ".2f")
            parts.append(f"{ratio} × {verdict.ratio.against}")
        if verdict.share.met is False:
            share = number(verdict.share.value, verdict.share.needed, ".0%")
            parts.append(f"{share} of {verdict.share.against}")
        lines.append(
            f"- {verdict.regime}: {place(verdict.cell, verdict.threads)}: {'; '.join(parts)}"
        )
    for gain in gains:
        if not gain.target.met:
            ratio = number(gain.target.value, gain.target.needed, ".2f")
            lines.append(f"- threads: {place(gain.cell, gain.threads)}: {ratio} × one thread")
    return "\n".join(lines) or "none"


def place(cell: Cell, threads: int) -> str:
    return f"{cell.label} {cell.key.dtype}, {count_of(threads)}"


def result_records(results: Iterable[Result]) -> list[dict[str, Any]]:
    return [{"kind": type(result).__name__.lower(), **asdict(result)} for result in results]


def cell_record(cell: Cell) -> dict[str, Any]:
    record = {
        "shape": cell.key.shape.name,
        "dtype": cell.key.dtype,
        "cold": cell.key.cold,
        "threads": cell.key.threads,
        "results": result_records(cell.results),
    }
    if cell.measured is not None:
        record |= {
            "measured_shape": cell.measured.name,
            "flops": cell.measured.flops,
            "traffic_bytes": cell.traffic,
        }
    return record


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    return {
        "regime": verdict.regime,
        **_place(verdict.cell, verdict.threads),
        "ours": verdict.cell.ours(verdict.threads),
        "ratio": asdict(verdict.ratio),
        "share": asdict(verdict.share),
        "met": verdict.met,
    }


def speedup_record(gain: Speedup) -> dict[str, Any]:
    target = {"ratio": asdict(gain.target), "met": gain.target.met}
    return {"regime": "threads", **_place(gain.cell, gain.threads), **target}


def _place(cell: Cell, threads: int) -> dict[str, Any]:
    return {"shape": cell.key.shape.name, "dtype": cell.key.dtype, "threads": threads}
