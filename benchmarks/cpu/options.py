"""The command line of the benchmark, and the settings that follow from it."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.core.options import parser_of
from benchmarks.core.records import processors
from benchmarks.core.timing import Effort
from benchmarks.cpu.cells import Key, keys_of
from benchmarks.cpu.peers import NAMES
from benchmarks.cpu.random_run import MOODS
from benchmarks.cpu.regimes import REGIMES, Regime
from benchmarks.random_shapes import seed_of_today

FULL = Effort(rounds=5, turn_seconds=0.04)
QUICK = Effort(rounds=3, turn_seconds=0.01)
RANDOM = Effort(rounds=3, turn_seconds=0.008)  # a second or two for each shape, all moods together
RANDOM_TUNING_SECONDS = 0.5  # of FastKron for a random shape
TUNING_SECONDS = {True: 10.0, False: 120.0}  # of FastKron for a shape, in a quick run or not


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
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
    turn = mode.turn_seconds if options.turn is None else 1e-3 * options.turn
    options.effort = Effort(options.rounds or mode.rounds, turn)
    if options.tuning is None:
        full = TUNING_SECONDS[options.quick]
        options.tuning = RANDOM_TUNING_SECONDS if options.random else full
    few = [count for count in (1, 2) if count <= processors()]
    options.threads = tuple(sorted(set(few if options.threads is None else options.threads)))
    return options


def chosen_cells(options: argparse.Namespace) -> list[tuple[Regime, list[Key]]]:
    chosen = []
    for regime in REGIMES:
        if options.regime and regime.name not in options.regime:
            continue
        shapes = regime.quick if options.quick else regime.shapes
        if options.shape:
            shapes = tuple(shape for shape in regime.shapes if shape.name in options.shape)
        if keys := keys_of(regime, shapes, options.threads):
            chosen.append((regime, keys))
    if not chosen:
        raise SystemExit("no such shape in these regimes; benchmarks/cpu/regimes.py lists them")
    return chosen
