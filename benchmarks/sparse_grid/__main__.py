"""Time right-hand sides and steps on sparse grids: `python -m benchmarks.sparse_grid --help`."""

import os
import statistics
import sys
import time
from dataclasses import asdict
from functools import partial

import numpy as np

import batchkron as bk
from benchmarks.core.options import parser_of
from benchmarks.core.plots import figures, save_figure
from benchmarks.core.records import machine, processors, recorded, save
from benchmarks.core.tables import machine_lines
from benchmarks.core.timing import in_turn
from benchmarks.sparse_grid import memory
from benchmarks.sparse_grid.asgard import Asgard, asgards, disagreement, ours
from benchmarks.sparse_grid.cases import CASES, GROWTH, QUICK

GOAL = 6.0  # times ASGarD's speed
TURN = 0.02  # seconds that a turn should take


def draw_growth(records, path):
    pyplot = figures()
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(6.4, 6.4), sharex=True)
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
    save_figure(figure, path)


def measure_case(case, asgard, threads, rounds):
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
            found = {"threads": count, "work": work}
            record["times"].append(found | compared(call, others.get(work), rounds))
    if theirs is not None:
        theirs.close()
    return record


def compared(own, other, rounds):
    calls = {"batchkron": own} if other is None else {"batchkron": own, "ASGarD": other}
    found = {"ASGarD": None, "ratio": None}
    for name, times in in_turn(calls, rounds, TURN).items():
        middle = statistics.median(times)
        found[name] = {"least": min(times), "median": middle, "turns": len(times)}
    if found["ASGarD"]:
        found["ratio"] = found["ASGarD"]["median"] / found["batchkron"]["median"]
    return found


def measure_growth(cases, threads, rounds):
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
        yield {**asdict(case), **counted, "products": products, "setup": setup}


def main(arguments=None):
    usual = "asgard", "quick", "threads", "rounds", "json", "plot"
    parser = parser_of(__doc__, *usual, threads=sorted({1, processors()}))
    parser.add_argument("--skip", choices=["memory", "growth"], action="append", default=[])
    options = parser.parse_args(arguments)
    asgard, peers = Asgard(options.asgard).found()
    threads, rounds = options.threads, options.rounds or (3 if options.quick else 15)
    record = {"machine": machine(**peers), "rounds": rounds, "growth": []}
    print(machine_lines(record["machine"]))

    def cases():
        for case in QUICK if options.quick else CASES:
            found = measure_case(case, asgard, threads, rounds)
            if "memory" not in options.skip:
                builds = {"batchkron": None} | ({"ASGarD": asgard.build} if asgard else {})
                peaks = {name: memory.measure(case, build) for name, build in builds.items()}
                own = {name: peak - loaded for name, (loaded, peak) in peaks.items()}
                found["memory"] = {"ASGarD": None, **own}
            yield found

    record["cases"] = recorded(cases(), options.json, record, "cases")
    if "growth" not in options.skip:
        grown = [case for case in GROWTH if not options.quick or case.level <= 4]
        record["growth"] = recorded(measure_growth(grown, threads, rounds))
    record["load_after"] = os.getloadavg()
    save(options.json, record)
    print(f"load average {record['load_after'][0]:.1f} after")
    every = [entry for found in record["cases"] for entry in found["times"]]
    ratios = [entry["ratio"] for entry in every if entry["ratio"] is not None]
    met = sum(ratio >= GOAL for ratio in ratios)
    lacking = len(every) - len(ratios)
    print(f"{GOAL:g} times as fast as ASGarD in {met} of {len(ratios)}; {lacking} not measured")
    if options.plot is not None and record["growth"]:
        draw_growth(record["growth"], options.plot)
    return int(any(found["wrong"] for found in record["cases"]))


if __name__ == "__main__":
    sys.exit(main())
