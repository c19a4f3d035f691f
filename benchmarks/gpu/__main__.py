"""Compile, measure, judge, print: `python -m benchmarks.gpu --help`."""

import importlib
import importlib.util
import json
import sys
import time
from functools import partial

from benchmarks.core.records import machine, save
from benchmarks.core.tables import groups, words
from benchmarks.gpu import compiling
from benchmarks.gpu import report as reports
from benchmarks.gpu.cases.list_cases import HUGE
from benchmarks.gpu.options import PARTS, RANDOM, read_options
from benchmarks.gpu.profiling import profile_missed, profile_table
from benchmarks.random_shapes import summary, worst_standings


def need_cupy():
    if importlib.util.find_spec("cupy") is None:
        sys.exit("the benchmark needs CuPy: pip install '.[cuda13]' (or '.[cuda12]')")


def jobs(choices):
    parts = groups(choices, lambda one: one.part)

    def of(*names):
        return [one for name in names for one in parts.get(name, ())]

    def largest_first(cells):
        return sorted(cells, key=lambda one: -one.case.products)

    kron = [(c.case.shape, c.dtype) for c in of("kron", "pde", "random")]
    precise = of("precision")
    kron += [(c.case.shape, "float32", how) for c in precise for how in (None, c.dtype)]
    ablation = [(c.case[0], c.dtype) for c in of("ablation")]
    lists = [(c.case, c.dtype, how) for c in of("atomic") for how in ("owner", "atomic")]
    others = largest_first(one for one in of("lists") if one.case.unknowns < HUGE)
    lists += [(c.case, c.dtype, "owner") for c in (*others, *largest_first(of("batches")))]
    sparse = groups(of("kronecker-sparse"), lambda one: (one.dtype, one.case.layout))
    work = [
        *((compiling.compile_batch, one) for one in lists),
        *((compiling.compile_kron, one) for one in dict.fromkeys(kron + ablation)),
        *((compiling.compile_functions, one) for one in ablation),
        *((compiling.compile_function, (c.case.shape, c.dtype)) for c in of("random")),
        *((compiling.compile_sparse, ([c.case for c in own], k[0])) for k, own in sparse.items()),
    ]
    return [partial(do, *given) for do, given in work]


def cells_of(choice, seconds):
    from benchmarks.gpu.data import free_memory

    module, name = PARTS.get(choice.part, RANDOM)
    measure = getattr(importlib.import_module(f"benchmarks.gpu.parts.{module}"), name)
    yield from measure(choice, seconds) if choice.part == "tune" else measure(choice)
    free_memory()


def show_profiles(report, seconds):
    report["failures_to_profile"] = profile_missed(report["cells"], seconds)
    print("\n## What limits those that miss, by the profiler\n")
    print("\n".join([*profile_table(report["cells"]), *report["failures_to_profile"]]))


def ablate(options):
    from benchmarks.gpu import ablate as ablation

    families = ablation.asked_families(options.ablate)
    if unknown := sorted({one for name in families for one in name.split("+")} - {*ablation.NAMES}):
        known = ", ".join(ablation.NAMES)
        sys.exit(f"no family of kernels is called {', '.join(unknown)}; there are {known}")
    need_cupy()
    cells = [one for one in options.choices if one.part in ablation.PARTS]
    if options.part is None and options.case is None:
        cells = ablation.cells_without_choice(cells, families, options.dtype)
    others = [one for one in cells if one.part != "kronecker-sparse"]
    began = time.perf_counter()
    alternately = partial(partial, ablation.compile_with_and_without, families=tuple(families))
    found_jobs = [*ablation.sparse_jobs(cells, families), *map(alternately, jobs(others))]
    compiling.compile_all(found_jobs, options.processes)
    report = {"machine": machine("cuda", options.commit), "gains": []}
    report["seconds_to_compile"] = time.perf_counter() - began
    found = report["gains"]
    for gain in ablation.gains(cells, families):
        found.append(gain)
        save(options.json, report)
    report["mean_gains"] = {
        name: ablation.mean_gain(own) for name, own in ablation.by_family(found).items()
    }
    report["seconds"] = time.perf_counter() - began
    save(options.json, report)
    print(f"# {report['machine']['device']}, {report['seconds']:.0f} s\n")
    print(*ablation.lines(found, families), sep="\n")
    wrong = [one for one in found if one["reason"].startswith(ablation.WrongError.__name__)]
    print(*wrong, sep="\n")
    return int(bool(wrong))


def add_profiles(options):
    path = options.profile_of
    report, here = json.loads(path.read_text()), machine("cuda", options.commit)
    for what in ("device", "commit"):
        if report["machine"][what] != here[what]:
            sys.exit(f"{path} is of the {what} {report['machine'][what]}, this is {here[what]}")
    show_profiles(report, options.profile_seconds)
    save(options.json or path, report)
    return 0


def main(arguments=None):
    began = time.perf_counter()
    options = read_options(arguments)
    if options.list:
        for choice in options.choices:
            print(f"{choice.part:9} {choice.name:24} {choice.dtype}")
        return 0
    if options.ablate:
        return ablate(options)
    need_cupy()
    if options.profile_of:
        return add_profiles(options)
    if options.energy:
        from benchmarks.core.device_timing import count_energy
        from benchmarks.core.energy import EnergyError

        try:
            count_energy()
        except EnergyError as error:
            sys.exit(f"--energy: {error}")
    failures = compiling.compile_all(jobs(options.choices), options.processes)
    report = {"machine": machine("cuda", options.commit), "cells": []}
    report["seconds_to_compile"] = time.perf_counter() - began
    report["failures_to_compile"] = failures
    print(f"# {report['machine']['device']}\n\n{json.dumps(report['machine'])}")
    print(f"\ncompiled in {report['seconds_to_compile']:.0f} s", *failures, sep="\n")
    cells = []
    for choice in options.choices:
        for cell in cells_of(choice, options.seconds):
            print(reports.line(cell), flush=True)
            cells.append(cell)
            report["cells"].append(cell.record() | {"choice": choice.part})
            save(options.json, report)
    if options.random:
        return finish_random(options, report, cells, began)
    report["missed"] = reports.missed(cells)
    report["sparse_standing"] = reports.sparse_standing(cells)
    if options.profile:
        show_profiles(report, options.profile_seconds)
    report["seconds"] = time.perf_counter() - began
    save(options.json, report)
    print_list(f"Missed: {len(report['missed'])} of {len(cells)}", report["missed"])
    print_list("Peers without a time", reports.absences(cells))
    if report["sparse_standing"]:
        print("\n## Kronecker-sparse matrices\n")
        print(*map(words, report["sparse_standing"]), sep="\n")
    print(f"\n{report['seconds']:.0f} s in all")
    return int(any(cell.microseconds is None for cell in cells))


def finish_random(options, report, cells, began):
    standings = reports.standings_of([choice.case for choice in options.choices], cells)
    wrong = reports.wrong_results(cells)
    report |= {"shapes": options.random, "seed": options.seed, "limit_mib": options.limit}
    report |= {"standings": standings, "wrong": wrong, "seconds": time.perf_counter() - began}
    save(options.json, report)
    print_list("Peers without a time", reports.absences(cells))
    said = summary(standings, reports.SHARE_AHEAD, reports.MEDIAN_RATIO)
    print("\n## Next to the best peer", *worst_standings(standings), sep="\n")
    print("\n## Summary\n", *said, sep="\n")
    print_list("Ours without a time", wrong)
    print(f"\n{options.random} shapes of seed {options.seed}, {report['seconds']:.0f} s in all")
    return int(bool(wrong))


def print_list(title, texts):
    print(f"\n## {title}\n", *(f"- {text}" for text in texts or ["none"]), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
