"""What the commands of all tables on Kronecker-sparse matrices have in common."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.compiling import default_processes
from benchmarks.papers.measuring import (
    Bench,
    DeviceLostError,
    keys_of,
    line,
    measure_missing,
    phase_texts,
)
from benchmarks.papers.results import Results
from benchmarks.patterns import BATCH, Pattern, fair_order

DEVICE_LOST = 3  # the exit status: another process may go on


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
    parser.add_argument(
        "--processes", type=int, default=default_processes(), help="compile ahead; 0: not ahead"
    )
    parser.add_argument("--commit", help="of the source, where it is no checkout")
    parser.add_argument("--batch", type=int, default=BATCH, help="vectors")
    parser.add_argument("--dtype", nargs="+", choices=("float16", "float32", "float64"))
    return parser


def bench_of(options: argparse.Namespace, energy: bool) -> Bench:
    """Return where contenders run."""
    if options.device == "cuda":
        from benchmarks.papers.cuda_bench import CudaBench

        return CudaBench(energy, options.commit, options.processes)
    from benchmarks.papers.cpu_bench import CpuBench

    return CpuBench()


def measured_results(
    options: Any, patterns: Sequence[Pattern], names: Sequence[str], energy: bool = False
) -> Results:
    """Return the cells of the file after measuring, on a device if one is given, what it lacks.

    It ends the process where the device works no more.
    """
    begun = time.perf_counter()
    if options.device is None:
        return Results(options.json)
    bench = bench_of(options, energy)
    results = Results(options.json, bench.machine)
    keys = keys_of(fair_order(patterns, options.part), options.batch, options.dtype)
    if options.retry:
        for key in keys:
            results.cell(key).failed.clear()
    cells, seconds = [], options.seconds - (time.perf_counter() - begun)
    try:
        for cell in measure_missing(bench, results, keys, names, energy, seconds):
            print(line(cell), flush=True)
            cells.append(cell)
    except DeviceLostError as error:
        print(f"the device works no more: {error}", flush=True)
        sys.exit(DEVICE_LOST)
    left = [key for key in keys if results.cell(key).lacks(names, energy)]
    taken = time.perf_counter() - begun
    print(
        f"\n{len(cells)} cells in {taken:.0f} s; {len(keys) - len(left)} of {len(keys)} are there"
    )
    if cells:
        print(f"a cell takes {phase_texts(cells)}\n")
    return results
