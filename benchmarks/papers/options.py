"""What the commands of all tables on Kronecker-sparse matrices have in common."""

import argparse
import sys
import time
from contextlib import suppress

from benchmarks.core import options
from benchmarks.core.records import default_processes
from benchmarks.core.tables import words
from benchmarks.papers import results
from benchmarks.patterns import BATCH, energy_patterns, fair_order, time_patterns

DEVICE_LOST = 3  # the exit status: another process may go on


def parse_part(text):
    """(I, N) of "I/N"."""
    number, _, count = text.partition("/")
    with suppress(ValueError):
        if 1 <= int(number) <= int(count):
            return int(number), int(count)
    raise argparse.ArgumentTypeError(f"{text!r} is no part; expected I/N, such as 2/5")


def parser_of(text):
    parser = options.parser_of(text, "device", "json", "seconds", device=None, seconds=500.0)
    add = parser.add_argument
    add("--part", type=parse_part, default=(1, 1), help="I/N of the patterns")
    add("--retry", action="store_true", help="measure again what has failed")
    add("--processes", type=int, default=default_processes(), help="compile ahead; 0: not ahead")
    add("--commit", help="of the source, where it is no checkout")
    add("--batch", type=int, default=BATCH, help="vectors")
    add("--dtype", nargs="+", choices=("float16", "float32", "float64"))
    return parser


def run(text, arguments, lines, names=results.NAMES, draw=None, energy=False):
    """Measure what the file lacks, print the lines of a table, draw a picture; return the cells.

    ``text`` is the docstring of the command's module; of energies there are other patterns, in
    float32 where no dtype is given.
    """
    parser = parser_of(text)
    if draw is not None:
        parser.add_argument("--plot", **options.USUAL["plot"])
    given = parser.parse_args(arguments)
    given.dtype = given.dtype or list(results.DTYPES[: 1 if energy else 2])
    patterns = energy_patterns() if energy else time_patterns()
    found = measured_results(given, patterns, names, energy)
    cells = [cell for cell in found.cells.values() if cell.batch == given.batch]
    print("\n".join(lines(cells)))
    if draw is not None and given.plot:
        draw(cells, given.plot)
    return cells


def measured_results(given, patterns, names, energy=False):
    begun = time.perf_counter()
    if given.device is None:
        return results.Results(given.json)
    bench = results.Bench()
    if given.device == "cuda":
        from benchmarks.papers.cuda_bench import CudaBench

        bench = CudaBench(energy, given.commit, given.processes)
    found = results.Results(given.json, bench.machine)
    keys = results.keys_of(fair_order(patterns, given.part), given.batch, given.dtype)
    if given.retry:
        for key in keys:
            found.cell(key).failed.clear()
    seconds = given.seconds - (time.perf_counter() - begun)
    try:
        for cell in results.measure_missing(bench, found, keys, names, energy, seconds):
            print(words(vars(cell)), flush=True)
    except results.DeviceLostError as error:
        print(f"the device works no more: {error}", flush=True)
        sys.exit(DEVICE_LOST)
    left = [key for key in keys if found.cell(key).lacks(names, energy)]
    taken = time.perf_counter() - begun
    print(f"\n{taken:.0f} s; {len(keys) - len(left)} of {len(keys)} cells are there")
    return found
