"""The tables and the plot of a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.core.plots import figures
from benchmarks.core.tables import duration, table

GOAL = 6.0  # times ASGarD's speed


def mebibytes(value: float | None) -> str:
    return "–" if value is None else f"{value / 2**20:.1f}"


def times_table(records: Sequence[Mapping[str, Any]]) -> str:
    heads = ["case", "unknowns", "threads", "work", "batchkron", "ASGarD", "ratio", "goal met"]
    rows = []
    for record in records:
        for entry in record["times"]:
            ratio, other = entry["ratio"], entry["ASGarD"]
            verdict = "not measured" if ratio is None else "yes" if ratio >= GOAL else "**no**"
            texts = [record["label"], record["unknowns"], entry["threads"], entry["work"]]
            times = [
                duration(one["median"] if one else None) for one in (entry["batchkron"], other)
            ]
            rows.append([*texts, *times, "–" if ratio is None else f"{ratio:.2f}", verdict])
    return table(heads, rows) + "\n"


def memory_table(records: Sequence[Mapping[str, Any]]) -> str:
    heads = ["case", "one vector, MiB", "batchkron, MiB", "ASGarD, MiB", "not more"]
    rows = []
    for record in records:
        own, other = record["memory"]["batchkron"], record["memory"]["ASGarD"]
        verdict = "not measured" if other is None else "yes" if own <= other else "**no**"
        sizes = [mebibytes(one) for one in (8 * record["unknowns"], own, other)]
        rows.append([record["label"], *sizes, verdict])
    return table(heads, rows) + "\n"


def growth_table(records: Sequence[Mapping[str, Any]]) -> str:
    threads = [one["threads"] for one in records[0]["products"]]
    heads = ["problem", "level", "unknowns", "multiply-adds per unknown", "setup"]
    for count in threads:
        heads += [f"{count} threads: product", "ns per unknown", "ps per multiply-add"]
    rows = []
    for record in records:
        unknowns, multiply_adds = record["unknowns"], record["multiply_adds"]
        row = [record["name"], str(record["level"]), str(unknowns)]
        row += [f"{multiply_adds / unknowns:.1f}", duration(record["setup"])]
        for one in record["products"]:
            time = one["seconds"]
            row += [duration(time), f"{1e9 * time / unknowns:.2f}"]
            row.append(f"{1e12 * time / multiply_adds:.0f}")
        rows.append(row)
    return table(heads, rows) + "\n"


def draw_growth(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    pyplot = figures()
    figure, (above, below) = pyplot.subplots(
        2, 1, figsize=(6.4, 6.4), sharex=True, layout="constrained"
    )
    for name in dict.fromkeys(record["name"] for record in records):
        own = [record for record in records if record["name"] == name]
        unknowns = [record["unknowns"] for record in own]
        taken = ([one["seconds"] for one in record["products"]] for record in own)
        first, *others = zip(*taken, strict=True)
        (line,) = above.loglog(unknowns, first, "o-", label=name)
        linear = [first[-1] * count / unknowns[-1] for count in unknowns]
        above.loglog(unknowns, linear, "--", color=line.get_color(), linewidth=0.8)
        for style, times in zip(("o-", *["o:"] * len(others)), (first, *others), strict=True):
            each = [1e9 * t / count for t, count in zip(times, unknowns, strict=True)]
            below.semilogx(unknowns, each, style, color=line.get_color())
    above.set_ylabel("seconds of one product")
    above.legend(title="one thread; dashed: linear")
    below.set_ylabel("nanoseconds per unknown; dotted: all threads")
    below.set_xlabel("unknowns")
    below.set_ylim(bottom=0)
    for axis in (above, below):
        axis.grid(True, alpha=0.3)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
