"""Time right-hand sides and steps on sparse grids: `python -m benchmarks.sparse_grid --help`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import batchkron as bk
from benchmarks.cpu.machine import describe_machine, processors
from benchmarks.sparse_grid import memory, report, timing
from benchmarks.sparse_grid.asgard import Asgard, AsgardProblem
from benchmarks.sparse_grid.cases import CASES, GROWTH, QUICK, Case
from benchmarks.sparse_grid.contenders import Contender, asgards, disagreement, ours


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the command's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sparse_grid", description=__doc__)
    parser.add_argument("--asgard", type=Path, metavar="BUILD", help="a build of ASGarD 0.9.0")
    parser.add_argument("--quick", action="store_true", help="small grids, few rounds")
    parser.add_argument("--threads", default=None, help="such as 1,2; by default 1 and all")
    parser.add_argument("--rounds", type=int, default=None, help="turns of each contender")
    parser.add_argument("--skip", choices=["memory", "growth"], action="append", default=[])
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all figures here")
    parser.add_argument("--plot", type=Path, metavar="PATH", help="draw growth (needs Matplotlib)")
    return parser.parse_args(arguments)


def chosen_threads(options: argparse.Namespace) -> list[int]:
    """Return the numbers of threads."""
    if options.threads is None:
        return sorted({1, processors()})
    return [int(word) for word in options.threads.split(",")]


def measure_case(
    case: Case, asgard: Asgard | None, threads: Sequence[int], rounds: int
) -> dict[str, Any]:
    """Measure right-hand side and step on each number of threads."""
    problem = case.problem
    theirs = None if asgard is None else asgard.problem(case, problem.stepper.dt)
    record = {**asdict(case), "label": case.label, "unknowns": problem.unknowns}
    record["wrong"] = None if theirs is None else disagreement(case, theirs)
    record["times"] = []
    for count in threads:
        bk.set_num_threads(count)
        if asgard is not None:
            asgard.library.set_threads(count)
        record["times"] += compared(
            ours(problem), [] if theirs is None else asgards(theirs), count, rounds
        )
    if isinstance(theirs, AsgardProblem):
        theirs.close()
    return record


def compared(
    own: Sequence[Contender], others: Sequence[Contender], threads: int, rounds: int
) -> list[dict[str, Any]]:
    """Time two contenders of each work in turn."""
    found = []
    for contender in own:
        pair = [contender, *[other for other in others if other.work == contender.work]]
        times = timing.measure(pair, rounds)
        other = asdict(times[1]) if len(times) > 1 else None
        found.append(
            {
                "threads": threads,
                "work": contender.work,
                "batchkron": asdict(times[0]),
                "ASGarD": other,
                "ratio": times[1].median / times[0].median if other else None,
            }
        )
    return found


def measure_memory(case: Case, asgard: Asgard | None) -> dict[str, int | None]:
    """Return what a case adds to a process's peak, ours and ASGarD's."""
    loaded, peak = memory.measure(case, None)
    found: dict[str, int | None] = {"batchkron": peak - loaded, "ASGarD": None}
    if asgard is not None:
        loaded, peak = memory.measure(case, asgard.build)
        found["ASGarD"] = peak - loaded
    return found


def measure_growth(
    cases: Sequence[Case], threads: Sequence[int], rounds: int
) -> list[dict[str, Any]]:
    """Time products, and the operator's construction on one thread, level by level."""
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
        product = Contender("batchkron", "product", lambda op=operator, x=x, y=y: op.apply(x, y))
        products = []
        for count in threads:
            bk.set_num_threads(count)
            (times,) = timing.measure([product], rounds)
            products.append({"threads": count, "seconds": times.least})
        found.append(
            {
                **asdict(case),
                "unknowns": problem.unknowns,
                "multiply_adds": operator.multiply_adds,
                "products": products,
                "setup": setup,
            }
        )
        print(f"measured a product of {case.label}", file=sys.stderr)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the status is 1 if a result was wrong."""
    options = read_options(arguments)
    asgard: Asgard | None = Asgard(options.asgard)
    missing = asgard.missing() if asgard else None
    if missing:
        print(f"ASGarD was not measured: {missing}\n")
        asgard = None
    threads = chosen_threads(options)
    rounds = options.rounds or (3 if options.quick else 15)
    cases = QUICK if options.quick else CASES
    machine = describe_machine([], {} if missing is None else {"ASGarD": missing}, [])
    machine["peers"] = {} if asgard is None else {"ASGarD": asgard.version}
    record: dict[str, Any] = {"machine": machine, "rounds": rounds, "cases": []}
    for case in cases:
        found = measure_case(case, asgard, threads, rounds)
        if "memory" not in options.skip:
            found["memory"] = measure_memory(case, asgard)
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


def save(path: Path | None, record: dict[str, Any]) -> None:
    """Write the record as JSON, if a file is asked for."""
    if path is not None:
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def print_report(record: dict[str, Any]) -> None:
    """Print all tables."""
    machine = record["machine"]
    print(f"# {machine['processor']}, {machine['processors']} processors, {machine['date']}\n")
    print(f"batchkron {machine['commit'][:12]}, {machine['instruction_set']} kernels; ", end="")
    print(
        "; ".join(f"{name} {version}" for name, version in machine["peers"].items()) or "no peers"
    )
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
