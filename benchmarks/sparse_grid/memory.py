"""Peak memory of one case in a process of its own: `python -m benchmarks.sparse_grid.memory`.

Arguments: "batchkron" or "asgard", name, level, degree, and for ASGarD its build. Prints the bytes
before, with everything loaded and a tiny case run, and the peak after the case.
"""

import json
import subprocess
import sys
from pathlib import Path

import batchkron as bk
from benchmarks.core.records import bytes_in
from benchmarks.sparse_grid.asgard import Asgard, asgards, ours
from benchmarks.sparse_grid.cases import Case

STEPS = 3


def peak():
    """Bytes that the process had at most so far; getrusage would count what its parent had."""
    return bytes_in("/proc/self/status", "VmHWM")


def run(case, build):
    made = ours(case.problem) if build is None else asgards(Asgard(build).problem(case, 1e-6))
    for call in made.values():
        for _ in range(STEPS):
            call()


def measure(case, build):
    words = ["asgard" if build else "batchkron", case.name, str(case.level), str(case.degree)]
    command = [sys.executable, "-m", "benchmarks.sparse_grid.memory", *words]
    command += [str(build)] if build else []
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    loaded, maximum = json.loads(done.stdout)
    return loaded, maximum


def main():
    _, name, level, degree, *build = sys.argv[1:]
    bk.set_num_threads(1)
    folder = Path(build[0]) if build else None
    run(Case(name, 2, int(degree)), folder)
    loaded = peak()
    run(Case(name, int(level), int(degree)), folder)
    print(json.dumps([loaded, peak()]))


if __name__ == "__main__":
    main()
