"""Ranks of MPI on devices or processors: ``mpiexec -n G python -m benchmarks.distributed``.

With ``--device cuda`` each rank has a device: correctness of all operators, solvers and runs; the
rate of the links; FastKron's Figure 11 and long vectors on several grids, by NCCL and by stores to
the memory of other devices, with exchanges after groups of multiplies and after each one; sparse
grids; batches of systems. With ``--device cpu`` each rank is a process of one thread. The most
important comes first, and nothing is begun after ``--seconds``.

``--peer`` runs on one device, without MPI: stores to G buffers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any


def main() -> int:
    """Run; the exit status is 1 if something is wrong."""
    options = _options()
    if options.device == "cpu":
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")
    if options.peer:
        from benchmarks.distributed import one_device

        return 0 if one_device.run(options.json) else 1
    from benchmarks.distributed.ranks import Ranks

    ranks = Ranks(options.device, options.seconds, options.quick)
    right = True
    try:
        for name, part in _parts(options.device):
            if options.only and name not in options.only:
                continue
            if not ranks.has_time():
                ranks.say(f"{name}: left out, no time is left")
                continue
            ranks.say(f"{name}  (after {ranks.elapsed():.0f} s)")
            right = part(ranks) is not False and right
            _write(ranks, options.json, right)
    except Exception:  # the other ranks would wait for ever
        traceback.print_exc()
        sys.stderr.flush()
        _write(ranks, options.json, False)
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(1)
    ranks.say(f"{ranks.size} ranks, {ranks.elapsed():.0f} s, {'all right' if right else 'WRONG'}")
    return 0 if right else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distributed", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="where all figures are written, part after part")
    parser.add_argument("--seconds", type=float, default=400, help="after which nothing is begun")
    parser.add_argument("--quick", action="store_true", help="small cases, to try the program")
    parser.add_argument("--only", nargs="*", help="names of parts")
    parser.add_argument("--peer", action="store_true", help="stores to buffers of one device")
    return parser.parse_args()


def _parts(device: str) -> list[tuple[str, Any]]:
    from benchmarks.distributed import parts

    return parts.ON_DEVICES if device == "cuda" else parts.ON_CPU


def _write(ranks: Any, path: Path | None, right: bool) -> None:
    if path is None or ranks.rank != 0:
        return
    from benchmarks.distributed.parts import described

    path.write_text(
        json.dumps({**described(ranks), "right": right, "cases": ranks.records}, indent=1)
    )


if __name__ == "__main__":
    sys.exit(main())
