"""The command's options, and the cells that they choose."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks.core.options import parser_of
from benchmarks.core.records import default_processes
from benchmarks.gpu.cases import cases as known
from benchmarks.gpu.cases.list_cases import LISTS, SWEEPS
from benchmarks.gpu.cases.sparse_cases import SPARSE_DTYPES, sparse_cases
from benchmarks.random_shapes import draws, seed_of_today
from benchmarks.shapes import squares

PARTS = {  # the module of each part, and the function that measures a cell of it
    "start": ("latency", "start_cells"),
    "latency": ("latency", "latency_cells"),
    "kron": ("kron", "kron_cells"),
    "precision": ("kron", "kron_cells"),
    "pde": ("kron", "kron_cells"),
    "batches": ("lists", "batch_cells"),
    "atomic": ("lists", "atomic_cells"),
    "lists": ("lists", "list_cells"),
    "sweeps": ("sweeps", "sweep_cells"),
    "kronecker-sparse": ("kron_sparse", "sparse_cells"),
    "explicit": ("explicit", "explicit_cells"),
    "ablation": ("kron", "ablation_cells"),
    "tune": ("tune", "tune_cells"),
}
RANDOM = "kron", "random_cells"
OPT_IN_PARTS = ("kronecker-sparse", "tune")  # parts that take long


@dataclass(frozen=True)
class Choice:
    """A cell to measure."""

    part: str
    name: str
    dtype: str
    case: Any


def all_choices():
    found = [Choice(part, part, "float64", None) for part in ("start", "latency")]
    both, lists = known.DTYPES, known.BATCHES + known.SMALL_BATCHES
    tuned = [one for one in known.KRON + known.PDE + lists if one.name in known.TUNED]
    named = [
        *(("kron", case.name, case, both) for case in known.KRON),
        *(("precision", case.name, case, tuple(case.figures)) for case in known.PRECISION),
        *(("pde", case.name, case, both) for case in known.PDE),
        *(("batches", case.name, case, tuple(case.figures)) for case in lists),
        *(("atomic", case.name, case, tuple(case.figures)) for case in known.BATCHES),
        *(("lists", case.name, case, both) for case in LISTS),
        *(("sweeps", case.name, case, both) for case in SWEEPS),
        *(("kronecker-sparse", case.name, case, SPARSE_DTYPES) for case in sparse_cases()),
        *(("explicit", squares(*sizes).name, sizes, both) for sizes in known.EXPLICIT),
        *(("ablation", one[0].name, one, both) for one in known.ABLATION),
        *(("tune", case.name, case, tuple(case.figures)) for case in tuned),
    ]
    found += [Choice(part, name, dtype, case) for part, name, case, own in named for dtype in own]
    return found


def read_options(arguments=None):
    text = "Times of the CUDA backend next to its peers', to goals and to the chip."
    parser = parser_of(text, "seconds", "seed", "json", seconds=120.0, seed=None)
    add = parser.add_argument
    default = "may be repeated; by default all but " + " and ".join(OPT_IN_PARTS)
    pattern = "as --list prints it, or a pattern such as '1024: 8^*'; may be repeated"
    add("--part", action="append", choices=PARTS, help=default)
    add("--case", action="append", metavar="NAME", help=pattern)
    add("--dtype", choices=("float16", *known.DTYPES, *known.PRECISIONS), help="all by default")
    add("--random", type=int, metavar="N", help="N shapes drawn at random, and no other cells")
    add("--limit", type=float, default=512.0, metavar="MIB", help="data of a random shape")
    add("--list", action="store_true", help="print the cells and end")
    add("--processes", type=int, metavar="N", help="compile ahead in N processes; 0: not ahead")
    add("--energy", action="store_true", help="also joules of a call, by NVML: 0.6 s for each time")
    add("--profile", action="store_true", help="let ncu say what limits the cells that miss")
    add("--profile-seconds", type=float, default=180.0, help="no cell is profiled after these")
    add("--profile-of", type=Path, help="only profile missed cells of this file without a profile")
    add(
        "--ablate",
        action="append",
        metavar="FAMILY",
        help="time only ours, with and without a family of kernels such as kron.panels, in the"
        " cells whose plan has it; may be repeated, a pattern such as 'kron_sparse.*', all, or"
        " several that are switched off together, joined by +",
    )
    add("--commit", help="of the source, where it is no checkout")
    options = parser.parse_args(arguments)
    if options.processes is None:
        options.processes = default_processes()
    if options.random is not None:
        others = ("part", "case", "dtype", "ablate", "profile", "profile_of")
        if any(getattr(options, name) for name in others):
            parser.error(
                "--random goes with --seed, --limit, --processes, --commit, --json, --list"
            )
        if options.random < 1:
            parser.error("--random takes a number of shapes, at least 1")
        options.seed = seed_of_today() if options.seed is None else options.seed
        chosen = draws(options.random, options.seed, int(options.limit * 2**20))
        options.choices = [Choice("random", one.shape.name, one.dtype, one) for one in chosen]
        return options
    options.choices = [
        choice
        for choice in all_choices()
        if choice.part in (options.part or {*PARTS} - {*OPT_IN_PARTS})
        and (options.dtype in (None, choice.dtype))
        and (options.case is None or any(fnmatchcase(choice.name, one) for one in options.case))
    ]
    if not options.choices and not options.ablate:  # an ablation has more cells
        parser.error("no cell has this part, case and dtype; --list prints them all")
    return options
