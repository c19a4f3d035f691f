"""The tables that are printed, and the file that is written."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.core.tables import count_of, duration, table
from benchmarks.core.timing import OURS, Absent, Failure, Result
from benchmarks.cpu.ceilings import Ceilings
from benchmarks.cpu.cells import Cell
from benchmarks.cpu.regimes import Regime
from benchmarks.cpu.verdicts import Target, Verdict

MARKS = {True: "yes", False: "NO", None: "not measured"}


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
