"""Ranks of MPI on devices or processors: ``python -m benchmarks.distributed --launch G``.

With ``--device cuda`` each rank has a device: correctness of all operators, solvers and runs; the
rate of the links; FastKron's Figure 11 and long vectors on several grids, by NCCL and by stores to
the memory of other devices, with exchanges after groups of multiplies and after each one; sparse
grids; batches of systems. With ``--device cpu`` each rank is a process of one thread. The most
important comes first, and nothing is begun after ``--seconds``.

``--launch`` compiles kernels, by several processes, before it starts the ranks; a cell that ends
the ranks, or hangs, is left out when they are started again. Under ``mpiexec -n G``, without
``--launch``, it ends all.

``--peer`` runs on one device, without MPI: stores to G buffers.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path


def main() -> int:
    options = _options()
    if options.device == "cpu":
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")
    if options.peer:
        from benchmarks.distributed import one_device

        return 0 if one_device.run(options.json) else 1
    if options.launch:
        return 0 if _launch(options) else 1
    from benchmarks.distributed.cells import run_cells
    from benchmarks.distributed.parts import cells_of, described
    from benchmarks.distributed.ranks import Ranks

    ranks = Ranks(options.device, options.seconds, options.quick)
    right = run_cells(ranks, cells_of(ranks), options.json, options.only, described(ranks))
    ranks.say(f"{ranks.size} ranks, {ranks.elapsed():.0f} s, {'all right' if right else 'WRONG'}")
    return 0 if right else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distributed", description=__doc__)
    parser.add_argument("--launch", type=int, metavar="G", help="start G ranks by mpiexec")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="where all figures are written, cell after cell")
    parser.add_argument("--seconds", type=float, default=400, help="after which nothing is begun")
    parser.add_argument("--quick", action="store_true", help="small cases, to try the program")
    parser.add_argument("--only", nargs="*", help="names of parts")
    parser.add_argument("--processes", type=int, default=28, help="that compile; 0: none")
    parser.add_argument("--peer", action="store_true", help="stores to buffers of one device")
    options = parser.parse_args()
    if options.launch and options.json is None:
        parser.error("--launch needs --json")
    return options


def _launch(options: argparse.Namespace) -> bool:
    from benchmarks.distributed.launch import launch

    words = ["--device", options.device]
    words += ["--quick"] if options.quick else []
    words += ["--only", *options.only] if options.only else []
    work = None
    if options.device == "cuda" and options.processes:
        from benchmarks.distributed.compiling import compile_kernels

        work = partial(compile_kernels, options.launch, options.quick, options.processes)
    return launch(options.launch, words, options.json, options.seconds, work)


if __name__ == "__main__":
    sys.exit(main())
