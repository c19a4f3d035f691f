"""What the commands of all tables on Kronecker-sparse matrices have in common."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.papers.measuring import Bench, keys_of, line, measure_missing
from benchmarks.papers.patterns import BATCH, TABLE_SET, Pattern, part_of, spread
from benchmarks.papers.results import Results

QUICK = 3  # patterns of each ratio in the quick set, beside the twelve


def parse_part(text: str) -> tuple[int, int]:
    """Return (I, N) of "I/N".

    Raises
    ------
    argparse.ArgumentTypeError
        If it is no part.
    """
    number, _, count = text.partition("/")
    try:
        part = int(number), int(count)
    except ValueError:
        part = 0, 0
    if not 1 <= part[0] <= part[1]:
        raise argparse.ArgumentTypeError(f"{text!r} is no part; expected I/N, such as 2/5")
    return part


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a command; ``description`` is its module's docstring."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), help="measure what is missing there")
    parser.add_argument("--json", type=Path, help="the file of all cells, which is appended to")
    parser.add_argument("--part", type=parse_part, default=(1, 1), help="I/N of the patterns")
    parser.add_argument("--seconds", type=float, default=500.0, help="no cell begins after these")
    parser.add_argument("--retry", action="store_true", help="measure again what has failed")
    parser.add_argument("--quick", action="store_true", help="60 patterns instead of all")
    parser.add_argument("--batch", type=int, default=BATCH, help="vectors")
    parser.add_argument("--dtype", nargs="+", choices=("float16", "float32", "float64"))
    return parser


def bench_of(device: str, energy: bool) -> Bench:
    """Return where contenders run."""
    if device == "cuda":
        from benchmarks.papers.cuda_bench import CudaBench

        return CudaBench(energy)
    from benchmarks.papers.cpu_bench import CpuBench

    return CpuBench()


def quick_set(patterns: Sequence[Pattern]) -> list[Pattern]:
    """Twelve that are often quoted, and three of each ratio."""
    return list(dict.fromkeys([*TABLE_SET, *spread(patterns, QUICK)]))


def measured_results(
    options: Any, patterns: Sequence[Pattern], names: Sequence[str], energy: bool = False
) -> Results:
    """Return the cells of the file after measuring, on a device if one is given, what it lacks."""
    chosen = quick_set(patterns) if options.quick else list(patterns)
    if options.device is None:
        return Results(options.json)
    bench = bench_of(options.device, energy)
    results = Results(options.json, bench.machine)
    keys = keys_of(part_of(chosen, options.part), options.batch, options.dtype)
    if options.retry:
        for key in keys:
            results.cell(key).failed.clear()
    for cell in measure_missing(bench, results, keys, names, energy, options.seconds):
        print(line(cell), flush=True)
    left = [key for key in keys if results.cell(key).lacks(names, energy)]
    print(f"\n{len(keys) - len(left)} of {len(keys)} cells of this part are there\n")
    return results
