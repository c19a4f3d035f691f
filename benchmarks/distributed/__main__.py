"""Ranks of MPI on devices or processors: ``python -m benchmarks.distributed --launch G``.

``--launch`` compiles kernels before it starts the ranks, and starts them again behind a cell that
ends them, or hangs. ``--peer`` runs on one device, without MPI: stores to G buffers.
"""

import os
import sys
from functools import partial

from benchmarks.core.options import parser_of


def main():
    parser = parser_of(__doc__, "device", "json", "seconds", "quick", seconds=400.0)
    parser.add_argument("--launch", type=int, metavar="G", help="start G ranks by mpiexec")
    parser.add_argument("--only", nargs="*", help="names of parts")
    parser.add_argument("--processes", type=int, default=28, help="that compile; 0: none")
    parser.add_argument("--peer", action="store_true", help="stores to buffers of one device")
    options = parser.parse_args()
    if options.launch and options.json is None:
        parser.error("--launch needs --json")
    if options.device == "cpu":
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")
    if options.peer:
        from benchmarks.distributed import one_device

        return 0 if one_device.run(options.json) else 1
    if options.launch:
        from benchmarks.distributed.launch import launch

        words, work = ["--device", options.device], None
        words += ["--quick"] if options.quick else []
        words += ["--only", *options.only] if options.only else []
        if options.device == "cuda" and options.processes:
            from benchmarks.distributed.compiling import compile_kernels

            work = partial(compile_kernels, options.launch, options.quick, options.processes)
        return 0 if launch(options.launch, words, options.json, options.seconds, work) else 1
    from benchmarks.distributed.parts import cells_of, described, run_cells
    from benchmarks.distributed.ranks import Ranks

    ranks = Ranks(options.device, options.seconds, options.quick)
    right = run_cells(ranks, cells_of(ranks), options.json, options.only, described(ranks))
    ranks.say(f"{ranks.size} ranks, {ranks.elapsed():.0f} s, {'all right' if right else 'WRONG'}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
