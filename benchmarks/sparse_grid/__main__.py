"""Time right-hand sides and steps on sparse grids: `python -m benchmarks.sparse_grid --help`."""

import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import batchkron as bk
from benchmarks.core.options import parser_of
from benchmarks.core.plots import figures
from benchmarks.core.records import machine, processors, save
from benchmarks.core.tables import duration, machine_lines, table
from benchmarks.core.timing import Call, in_turn
from benchmarks.sparse_grid import memory
from benchmarks.sparse_grid.asgard import Asgard, asgards, disagreement, ours
from benchmarks.sparse_grid.cases import CASES, GROWTH, QUICK, Case

GOAL = 6.0  # times ASGarD's speed
TURN = 0.02  # seconds that a turn should take


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


def measure_case(
    case: Case, asgard: Asgard | None, threads: Sequence[int], rounds: int
) -> dict[str, Any]:
    problem = case.problem
    theirs = None if asgard is None else asgard.problem(case, problem.stepper.dt)
    record = {**asdict(case), "label": case.label, "unknowns": problem.unknowns}
    record["wrong"] = None if theirs is None else disagreement(case, theirs)
    record["times"] = []
    for count in threads:
        bk.set_num_threads(count)
        if asgard is not None:
            asgard.library.set_threads(count)
        own, others = ours(problem), {} if theirs is None else asgards(theirs)
        for work, call in own.items():
            record["times"].append(compared(work, call, others.get(work), count, rounds))
    if theirs is not None:
        theirs.close()
    return record


def compared(work: str, own: Call, other: Call | None, threads: int, rounds: int) -> dict[str, Any]:
    calls = {"batchkron": own} if other is None else {"batchkron": own, "ASGarD": other}
    found: dict[str, Any] = {"threads": threads, "work": work, "ASGarD": None, "ratio": None}
    for name, own_times in in_turn(calls, rounds, TURN).items():
        least, median = min(own_times), statistics.median(own_times)
        found[name] = {"least": least, "median": median, "turns": len(own_times)}
    if found["ASGarD"]:
        found["ratio"] = found["ASGarD"]["median"] / found["batchkron"]["median"]
    return found


def measure_growth(
    cases: Sequence[Case], threads: Sequence[int], rounds: int
) -> list[dict[str, Any]]:
    found = []
    for case in cases:
        bk.set_num_threads(1)
        problem = case.discretized()
        terms = [term.modes for term in problem.terms]
        start = time.perf_counter()
        operator = bk.SparseGridOperator(problem.grid, terms, case.degree + 1)
        setup = time.perf_counter() - start
        x = np.random.default_rng(0).standard_normal((problem.grid.num_cells, problem.block_size))
        y = np.empty_like(x)
        product = {"product": partial(operator.apply, x, y)}
        products = []
        for count in threads:
            bk.set_num_threads(count)
            seconds = min(in_turn(product, rounds, TURN)["product"])
            products.append({"threads": count, "seconds": seconds})
        counted = {"unknowns": problem.unknowns, "multiply_adds": operator.multiply_adds}
        found.append({**asdict(case), **counted, "products": products, "setup": setup})
        print(f"measured a product of {case.label}", file=sys.stderr)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    usual = "asgard", "quick", "threads", "rounds", "json", "plot"
    parser = parser_of(__doc__, *usual, threads=sorted({1, processors()}))
    parser.add_argument("--skip", choices=["memory", "growth"], action="append", default=[])
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (3 if options.quick else 15)
    asgard, peers = Asgard(options.asgard).found()
    threads, rounds = options.threads, options.rounds
    cases = QUICK if options.quick else CASES
    record: dict[str, Any] = {"machine": machine(**peers), "rounds": rounds, "cases": []}
    for case in cases:
        found = measure_case(case, asgard, threads, rounds)
        if "memory" not in options.skip:
            builds = {"batchkron": None} | ({"ASGarD": asgard.build} if asgard else {})
            peaks = {name: memory.measure(case, build) for name, build in builds.items()}
            own = {name: peak - loaded for name, (loaded, peak) in peaks.items()}
            found["memory"] = {"ASGarD": None, **own}
        record["cases"].append(found)
        print(f"measured {case.label}", file=sys.stderr)
        save(options.json, record)
    grown = [case for case in GROWTH if not options.quick or case.level <= 4]
    record["growth"] = [] if "growth" in options.skip else measure_growth(grown, threads, rounds)
    record["load_after"] = os.getloadavg()
    save(options.json, record)
    print_report(record)
    if options.plot is not None and record["growth"]:
        draw_growth(record["growth"], options.plot)
    return int(any(found["wrong"] for found in record["cases"]))


def print_report(record: dict[str, Any]) -> None:
    machine = record["machine"]
    print(machine_lines(machine))
    print(f"load average {machine['load_average'][0]:.1f} before, {record['load_after'][0]:.1f}")
    print(f"after\n\n## Times\n\n{times_table(record['cases'])}")
    for found in record["cases"]:
        if found["wrong"]:
            print(f"**wrong**: {found['label']}: {found['wrong']}\n")
    if all("memory" in found for found in record["cases"]):
        print(f"## Memory\n\n{memory_table(record['cases'])}")
    if record["growth"]:
        print(f"## Growth\n\n{growth_table(record['growth'])}")


if __name__ == "__main__":
    sys.exit(main())
