"""Time right-hand sides and steps on sparse grids: `python -m benchmarks.sparse_grid --help`."""

import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

import batchkron as bk
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, processors, save
from benchmarks.core.tables import machine_lines
from benchmarks.core.timing import Call, in_turn
from benchmarks.sparse_grid import memory, report
from benchmarks.sparse_grid.asgard import Asgard, asgards, disagreement, ours
from benchmarks.sparse_grid.cases import CASES, GROWTH, QUICK, Case

TURN = 0.02  # seconds that a turn should take


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
        report.draw_growth(record["growth"], options.plot)
    return int(any(found["wrong"] for found in record["cases"]))


def print_report(record: dict[str, Any]) -> None:
    machine = record["machine"]
    print(machine_lines(machine))
    print(f"load average {machine['load_average'][0]:.1f} before, {record['load_after'][0]:.1f}")
    print(f"after\n\n## Times\n\n{report.times_table(record['cases'])}")
    for found in record["cases"]:
        if found["wrong"]:
            print(f"**wrong**: {found['label']}: {found['wrong']}\n")
    if all("memory" in found for found in record["cases"]):
        print(f"## Memory\n\n{report.memory_table(record['cases'])}")
    if record["growth"]:
        print(f"## Growth\n\n{report.growth_table(record['growth'])}")


if __name__ == "__main__":
    sys.exit(main())
