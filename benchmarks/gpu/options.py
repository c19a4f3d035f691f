"""The command's options, and the cells that they choose."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks.gpu.cases.cases import (
    ABLATION,
    BATCHES,
    DTYPES,
    EXPLICIT,
    KRON,
    PDE,
    PRECISION,
    PRECISIONS,
    SMALL_BATCHES,
    TUNED,
)
from benchmarks.gpu.cases.list_cases import LISTS
from benchmarks.gpu.cases.sparse_cases import SPARSE_DTYPES, sparse_cases
from benchmarks.gpu.cases.sweep_cases import SWEEPS
from benchmarks.random_shapes import draws, seed_of_today
from benchmarks.shapes import squares

PARTS = (
    "start",
    "latency",
    "kron",
    "precision",
    "pde",
    "batches",
    "atomic",
    "lists",
    "sweeps",
    "kronecker-sparse",
    "explicit",
    "ablation",
    "tune",
)
OPT_IN_PARTS = ("kronecker-sparse", "tune")  # parts that take long


@dataclass(frozen=True)
class Choice:
    """A cell to measure."""

    part: str
    name: str
    dtype: str
    case: Any


def all_choices() -> list[Choice]:
    """Every cell of a full run, in its order."""
    found = [Choice(part, part, "float64", None) for part in ("start", "latency")]
    named: list[tuple[str, str, Any, Sequence[str]]] = [
        *(("kron", case.name, case, DTYPES) for case in KRON),
        *(("precision", case.name, case, tuple(case.figures)) for case in PRECISION),
        *(("pde", case.name, case, DTYPES) for case in PDE),
        *(("batches", case.name, case, tuple(case.figures)) for case in BATCHES + SMALL_BATCHES),
        *(("atomic", case.name, case, tuple(case.figures)) for case in BATCHES),
        *(("lists", case.name, case, DTYPES) for case in LISTS),
        *(("sweeps", case.name, case, DTYPES) for case in SWEEPS),
        *(("kronecker-sparse", case.name, case, SPARSE_DTYPES) for case in sparse_cases()),
        *(("explicit", squares(*sizes).name, sizes, DTYPES) for sizes in EXPLICIT),
        *(("ablation", one[0].name, one, DTYPES) for one in ABLATION),
        *(("tune", case.name, case, DTYPES) for case in KRON + PDE if case.name in TUNED),
        *(
            ("tune", case.name, case, tuple(case.figures))
            for case in BATCHES + SMALL_BATCHES
            if case.name in TUNED
        ),
    ]
    found += [Choice(part, name, dtype, case) for part, name, case, own in named for dtype in own]
    return found


def random_choices(count: int, seed: int, limit: float) -> list[Choice]:
    """Cells of shapes drawn at random, with data of at most ``limit`` MiB."""
    chosen = draws(count, seed, int(limit * 2**20))
    return [Choice("random", one.shape.name, one.dtype, one) for one in chosen]


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description="Times of the CUDA backend next to its peers', to goals and to the chip.",
    )
    parser.add_argument(
        "--part",
        action="append",
        choices=PARTS,
        help="may be repeated; by default all but " + " and ".join(OPT_IN_PARTS),
    )
    parser.add_argument(
        "--case",
        action="append",
        metavar="NAME",
        help="as --list prints it, or a pattern such as '1024: 8^*'; may be repeated",
    )
    parser.add_argument("--dtype", choices=("float16", *DTYPES, *PRECISIONS), help="all by default")
    parser.add_argument(
        "--random", type=int, metavar="N", help="N shapes drawn at random, and no other cells"
    )
    parser.add_argument(
        "--seed", type=int, metavar="S", help="of random shapes; the day's by default"
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=512.0,
        metavar="MIB",
        help="data of a random shape (x, y, two buffers of a chain); 512 by default",
    )
    parser.add_argument("--list", action="store_true", help="print the cells and end")
    parser.add_argument(
        "--processes", type=int, metavar="N", help="compile ahead in N processes; 0: not ahead"
    )
    parser.add_argument(
        "--energy", action="store_true", help="also joules of a call, by NVML: 0.6 s for each time"
    )
    parser.add_argument(
        "--profile", action="store_true", help="let ncu say what limits the cells that miss"
    )
    parser.add_argument(
        "--profile-seconds",
        type=float,
        default=180.0,
        metavar="N",
        help="seconds after which no other cell is profiled; 180 by default",
    )
    parser.add_argument(
        "--profile-of",
        type=Path,
        metavar="PATH",
        help="measure nothing, but profile the missed cells of this file that have no profile",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=120.0,
        metavar="N",
        help="seconds that a search of the part tune may take; 120 by default",
    )
    parser.add_argument(
        "--ablate",
        action="append",
        metavar="FAMILY",
        help="time only ours, with and without a family of kernels such as kron.panels, in the"
        " cells whose plan has it; may be repeated, a pattern such as 'kron_sparse.*', all, or"
        " several that are switched off together, joined by +",
    )
    parser.add_argument("--commit", help="of the source, where it is no checkout")
    parser.add_argument("--json", type=Path, metavar="PATH", help="where all figures are written")
    options = parser.parse_args(arguments)
    if options.random is not None:
        others = ("part", "case", "dtype", "ablate", "profile", "profile_of")
        if any(getattr(options, name) for name in others):
            parser.error(
                "--random goes with --seed, --limit, --processes, --commit, --json, --list"
            )
        if options.random < 1:
            parser.error("--random takes a number of shapes, at least 1")
        options.seed = seed_of_today() if options.seed is None else options.seed
        options.choices = random_choices(options.random, options.seed, options.limit)
        return options
    options.choices = [
        choice
        for choice in all_choices()
        if choice.part in (options.part or set(PARTS) - set(OPT_IN_PARTS))
        and (options.dtype in (None, choice.dtype))
        and (options.case is None or any(fnmatchcase(choice.name, one) for one in options.case))
    ]
    if not options.choices and not options.ablate:  # an ablation has more cells
        parser.error("no cell has this part, case and dtype; --list prints them all")
    return options
