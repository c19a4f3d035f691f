"""Show that two checkouts compute the same bits: fixed calls, a SHA-256 of each result.

    python .ci/same_bits --output before.json     # in the one
    python .ci/same_bits --compare before.json    # in the other: exit 1 and the names that differ

The calls take all functions, operators, solvers, preconditioners, steppers and gallery problems
by their public names, in all dtypes, so that they run on any layout of private modules. They are
run in a process for each instruction set of the processor (``--isa``), each call with one thread
and with two, which have to give the same bits. ``--device cuda`` takes the calls that a device can
do with the same bits in each run, each twice. A call that fails is recorded with its error, and the
exit status is 1.

Hashes depend on the processor, the compiler, NumPy and SciPy (their BLAS, LAPACK and elementary
functions), so that they are compared on one machine, in one environment, and are not committed.
Both checkouts have to be compiled with the same compiler and options.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

INSTRUCTION_SETS = ("baseline", "avx2", "avx512")
_BEST = "best"  # the one that batchkron chooses by itself
_UNSUPPORTED = "not supported by this processor"
_THREADS = (1, 2)
# one thread of NumPy's and SciPy's BLAS: how it splits sums is not what is compared
_BLAS_THREADS = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def main() -> int:
    """Run the command; return its exit status."""
    given = _arguments()
    if given.child:
        json.dump(_record(given.device, given.only), sys.stdout)
        return 0
    found: dict[str, str] = {}
    for name in _chosen(given.isa):
        found.update(_run_child(name, given))
    if not found:
        print("no call was run", file=sys.stderr)
        return 1
    recording = {"surroundings": _surroundings(), "hashes": found}
    if given.output:
        given.output.write_text(json.dumps(recording, indent=0) + "\n")
    if given.compare:
        return _compare(json.loads(given.compare.read_text()), recording, given)
    if not given.output:
        print(json.dumps(recording, indent=0))
    return _report("failed", [name for name, value in found.items() if _is_failure(value)], found)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ("all", _BEST, *INSTRUCTION_SETS)
    text = "instruction set; all of the processor's, for a device its best one, by default"
    parser.add_argument("--isa", choices=names, help=text)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default="", metavar="TEXT", help="calls whose names contain it")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the hashes there")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="with these hashes")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.isa = given.isa or ("all" if given.device == "cpu" else _BEST)
    return given


def _chosen(isa: str) -> tuple[str, ...]:
    return INSTRUCTION_SETS if isa == "all" else (isa,)


def _run_child(name: str, given: argparse.Namespace) -> dict[str, str]:
    """Return the hashes with one instruction set, by "set, device: call"; none if unsupported."""
    command = [sys.executable, *(["-P"] if sys.flags.safe_path else []), Path(__file__).parent]
    options = ["--child", "--device", given.device, "--only", given.only]
    environment = {**os.environ, **_BLAS_THREADS, "BATCHKRON_ISA": name}
    if name == _BEST:
        del environment["BATCHKRON_ISA"]
    run = subprocess.run([*command, *options], env=environment, capture_output=True, text=True)
    if run.returncode and _UNSUPPORTED in run.stderr:
        print(f"{name} is {_UNSUPPORTED} and left out", file=sys.stderr)
        return {}
    sys.stderr.write(run.stderr)
    run.check_returncode()
    return {
        f"{_group(name, given.device)}{key}": value for key, value in json.loads(run.stdout).items()
    }


def _group(isa: str, device: str) -> str:
    return f"{isa}, {device}: "


def _surroundings() -> dict[str, str]:
    """Return what hashes depend on beside the checkout."""
    import numpy as np
    import scipy

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def _record(device: str, only: str) -> dict[str, str]:
    """Return the hash of each call, or "failed" and why there is none."""
    import batchkron as bk

    bk.instruction_set()  # refuses one that the processor does not have
    warnings.simplefilter("ignore")
    hashes: dict[str, str] = {}
    for call in _calls():
        if only in call.name and (device == "cpu" or call.anywhere):
            assert call.name not in hashes, call.name
            hashes[call.name] = _hash_of(call, device)
    return hashes


def _calls() -> Iterator[Any]:
    import function_calls
    import krylov_calls
    import operator_calls
    import problem_calls
    import stepping_calls

    for module in (function_calls, operator_calls, krylov_calls, stepping_calls, problem_calls):
        yield from module.calls()


def _hash_of(call: Any, device: str) -> str:
    from digest import digest
    from inputs import Inputs

    import batchkron as bk

    found = set()
    for threads in _THREADS:
        bk.set_num_threads(threads)
        try:
            found.add(digest(call.run(Inputs(call.name, device))))
        except Exception as error:  # a call that fails is a result, and the others are run
            return f"failed with {type(error).__name__}: {error}"
    return found.pop() if len(found) == 1 else "failed: other bits in a second run, of two threads"


def _is_failure(value: str) -> bool:
    return value.startswith("failed")


def _compare(before: dict[str, Any], now: dict[str, Any], given: argparse.Namespace) -> int:
    """Say which hashes differ; return the exit status."""
    for key, value in before["surroundings"].items():
        if now["surroundings"].get(key) != value:
            other = now["surroundings"].get(key)
            print(f"recorded with {key} {value}, compared with {other}", file=sys.stderr)
    found = now["hashes"]
    groups = tuple(_group(isa, given.device) for isa in _chosen(given.isa))
    recorded = {
        name: value
        for name, value in before["hashes"].items()
        if name.startswith(groups) and given.only in name.partition(": ")[2]
    }
    for name in found:
        if name not in recorded:
            print(f"not recorded: {name}")
    wrong = [k for k, value in recorded.items() if found.get(k) != value or _is_failure(value)]
    return _report("differ", wrong, found) if recorded else 1


def _report(word: str, names: list[str], found: dict[str, str]) -> int:
    """Print the calls that are wrong and how many; return the exit status."""
    for name in names:
        value = found.get(name, "failed: missing")
        print(f"{name}: {value}" if _is_failure(value) else name)
    print(f"{len(names)} of {len(found)} calls {word}", file=sys.stderr)
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
