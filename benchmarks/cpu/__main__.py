"""Time all cells, compare with the targets, print tables: `python -m benchmarks.cpu --help`."""

import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import ThreadpoolController

import batchkron as bk
from benchmarks.core.options import parser_of
from benchmarks.core.records import available_memory, last_level_cache, machine, processors, save
from benchmarks.core.tables import count_of, machine_lines, words
from benchmarks.core.timing import OURS
from benchmarks.cpu import report, tables
from benchmarks.cpu.ceilings import best_of, compile_kernels, measure_ceilings
from benchmarks.cpu.contenders import Conditions, in_order, keys_of, measure_cell
from benchmarks.cpu.peers import NAMES, all_peers
from benchmarks.cpu.random_run import MOODS, measure_draw, print_tables
from benchmarks.cpu.regimes import REGIMES
from benchmarks.random_shapes import draws, seed_of_today

# rounds over all contenders, and the seconds of a contender's turn
FULL, QUICK = (5, 0.04), (3, 0.01)
RANDOM = 3, 0.008  # a second or two for each shape, all moods together
RANDOM_TUNING_SECONDS = 0.5  # of FastKron for a random shape
TUNING_SECONDS = {True: 10.0, False: 120.0}  # of FastKron for a shape, in a quick run or not
ARRAYS_AT_ONCE = 8  # arrays of a cell in memory: vectors, the peers' buffers, what they allocate
QUICK_ARRAY_BYTES = 512 << 20  # the largest array of a quick run


def read_options(arguments):
    names = ", ".join(regime.name for regime in REGIMES)
    text = "Times of batchkron, its peers and the machine; benchmarks/README.md says how."
    usual = "quick", "threads", "json", "rounds", "seed"
    parser = parser_of(text, *usual, threads=None, seed=None)
    parser.epilog = f"Regimes: {names}. Peers: {', '.join(NAMES)}."
    add = parser.add_argument
    known = [regime.name for regime in REGIMES]
    add("--random", type=int, metavar="N", help="N random shapes instead of regimes")
    add("--mood", nargs="+", choices=MOODS, help="of random shapes; all by default")
    add("--limit", type=float, metavar="MIB", help="data of a random shape; 2 x the last cache")
    add("--regime", nargs="+", choices=known, metavar="NAME", help="all by default")
    add("--shape", nargs="+", metavar="NAME", help='only these shapes, such as "64: 8^4"')
    add("--peers", nargs="*", choices=NAMES, metavar="NAME", help="all by default")
    add("--asgard", type=Path, metavar="PATH", help="the unpacked source of ASGarD")
    add("--tuning", type=float, metavar="SECONDS", help="limit for FastKron to tune a shape")
    add("--memory", type=float, metavar="GIB", help="memory to use; all that is free by default")
    add("--turn", type=float, metavar="MILLISECONDS", help="length of a contender's turn")
    options = parser.parse_args(arguments)
    if options.random is not None:
        if options.random < 1:
            parser.error("--random takes a number of shapes, at least 1")
        if options.quick or options.regime or options.shape:
            parser.error("--random draws its own shapes: not with --quick, --regime or --shape")
        options.seed = seed_of_today() if options.seed is None else options.seed
    elif options.mood or options.limit:
        parser.error("--mood and --limit are for --random")
    options.mood = options.mood or list(MOODS)
    mode = RANDOM if options.random else QUICK if options.quick else FULL
    turn = mode[1] if options.turn is None else 1e-3 * options.turn
    options.effort = options.rounds or mode[0], turn
    if options.tuning is None:
        full = TUNING_SECONDS[options.quick]
        options.tuning = RANDOM_TUNING_SECONDS if options.random else full
    few = [count for count in (1, 2) if count <= processors()]
    options.threads = tuple(sorted(set(few if options.threads is None else options.threads)))
    return options


def chosen_cells(options):
    chosen = []
    for regime in REGIMES:
        shapes = regime.quick if options.quick else regime.shapes
        if options.shape:
            shapes = tuple(shape for shape in regime.shapes if shape.name in options.shape)
        keys = keys_of(regime, shapes, options.threads)
        if keys and (not options.regime or regime.name in options.regime):
            chosen.append((regime, keys))
    if not chosen:
        raise SystemExit("no such shape in these regimes; benchmarks/cpu/regimes.py lists them")
    return chosen


def thread_setter():
    controller = ThreadpoolController()

    def set_threads(count):
        controller.limit(limits=count)
        bk.set_num_threads(count)

    libraries = [{**info, "filepath": Path(info["filepath"]).name} for info in controller.info()]
    return set_threads, libraries


def print_report(regimes, cells, ceilings):
    for count, rates in ceilings.items():
        print(f"ceilings a second, {count_of(count)}: {words(rates)}")
    verdicts = []
    for regime, keys in regimes:
        judged = report.judge(regime, [cells[key] for key in keys], ceilings)
        print(f"\n## {regime.name}: {regime.title}\n", *report.lines(judged), sep="\n")
        verdicts += [own for _, own in judged]
    verdicts += report.speedups(list(cells.values()), ceilings)
    print("\n## Summary\n", *tables.summary(verdicts), sep="\n")
    print("\n## Missed\n", *tables.missed(verdicts), sep="\n")
    return verdicts


def prepare(options, array_bytes, cache):
    """Return the conditions of the run, and what the file says of them.

    Peers are loaded before `thread_setter`, which finds the libraries that are loaded.
    """
    peers, missing = all_peers(options.asgard, options.tuning), {}
    for peer in peers:
        left_out = options.peers is not None and peer.name not in options.peers
        if why := "left out by --peers" if left_out else peer.missing():
            missing[peer.name] = why
    seed = np.random.SeedSequence().entropy if options.seed is None else options.seed
    set_threads, libraries = thread_setter()
    array_bytes = min(array_bytes, QUICK_ARRAY_BYTES) if options.quick else array_bytes
    how = options.effort, array_bytes, cache, np.random.default_rng(seed)
    rounds, turn_seconds = options.effort
    settings = {"quick": options.quick, "seed": str(seed), "rounds": rounds}
    settings |= {"turn_seconds": turn_seconds, "largest_array_bytes": array_bytes}
    settings["tuning_seconds"] = options.tuning
    versions = {peer.name: peer.version() for peer in peers if peer.name not in missing}
    described = machine(peers=versions, missing_peers=missing, libraries=libraries)
    record = {"machine": described, "settings": settings}
    return Conditions(peers, missing, set_threads, *how), record


def random_main(options, started):
    threads, cache = options.threads, last_level_cache()
    limit = 2 * cache if options.limit is None else int(options.limit * 2**20)
    chosen = draws(options.random, options.seed, limit)
    conditions, record = prepare(options, limit, cache)
    settings = {"shapes": options.random, "limit_bytes": limit, "moods": options.mood}
    record["settings"] |= settings
    measured = record["shapes"] = []
    how = {"conditions": conditions, "threads": threads, "moods": options.mood}
    for one in in_order(partial(measure_draw, **how), chosen):
        measured.append(one)
        save(options.json, record)
    print(machine_lines(record["machine"]))
    print(f"{options.random} shapes of seed {options.seed}, data up to {limit >> 20} MiB")
    record |= print_tables(chosen, measured, threads)
    save(options.json, {**record, "seconds": time.perf_counter() - started})
    return int(bool(record["wrong"]))


def main(arguments=None):
    started = time.perf_counter()
    options = read_options(arguments)
    if options.random:
        return random_main(options, started)
    threads, regimes = options.threads, chosen_cells(options)
    free, cache = available_memory(), last_level_cache()
    allowed = free if options.memory is None else int(options.memory * 2**30)
    conditions, record = prepare(options, allowed // ARRAYS_AT_ONCE, cache)
    kernels, traffic_bytes = compile_kernels(), min(4 * cache, free // ARRAYS_AT_ONCE)

    def all_ceilings():
        for count in threads:
            conditions.set_threads(count)
            yield count, measure_ceilings(kernels, count, traffic_bytes, options.quick)

    before = dict(all_ceilings())
    cells = {}
    record |= {"ceilings_before": before, "cells": []}
    keys = list(dict.fromkeys(key for _, own in regimes for key in own))
    for cell in in_order(partial(measure_cell, conditions=conditions), keys):
        cells[cell.key] = cell
        record["cells"].append(report.cell_record(cell))
        save(options.json, record)
    after = dict(all_ceilings())
    ceilings = {count: best_of(before[count], after[count]) for count in threads}
    print(machine_lines(record["machine"]))
    verdicts = print_report(regimes, cells, ceilings)
    seconds = time.perf_counter() - started
    record |= {"ceilings_after": after, "ceilings": ceilings, "verdicts": verdicts}
    save(options.json, {**record, "seconds": seconds})
    results = [one for cell in cells.values() for one in cell.results]
    return int(any(one["kind"] == "failure" and one["name"] == OURS for one in results))


if __name__ == "__main__":
    sys.exit(main())
