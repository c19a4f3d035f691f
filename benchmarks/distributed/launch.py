"""Start ranks, and start them again behind a cell that has ended them."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.core.records import save

GRACE_SECONDS = 15.0  # that ranks may take beyond their time
MIN_SECONDS = 20.0  # for which ranks are started again
CARRIED = 30  # lines of the output that belong to a failure


def mpiexec():
    """Return the launcher of MPI: of the environment, of a folder of packages, of the system."""
    folders = [Path(sys.executable).parent, *(Path(entry) / "bin" for entry in sys.path)]
    folders += [Path(entry) for entry in os.get_exec_path()]
    found = shutil.which("mpiexec", path=os.pathsep.join(map(str, folders)))
    if found is None:
        raise SystemExit("there is no mpiexec: pip install mpi4py mpich")
    return found


def launch(ranks, words, path, seconds, compile_kernels=None):
    """Run ``mpiexec … benchmarks.distributed words`` until its file is complete; is all right?"""
    begin = time.perf_counter()
    path.unlink(missing_ok=True)
    if compile_kernels is not None:
        compile_kernels()
        print(f"kernels compiled  ({time.perf_counter() - begin:.0f} s)", flush=True)
    without_progress = 0
    while without_progress < 2:
        left = seconds - (time.perf_counter() - begin)
        if left < MIN_SECONDS and path.exists():
            break
        command = [mpiexec(), "-n", str(ranks), sys.executable, "-m", "benchmarks.distributed"]
        command += [*words, "--json", str(path), "--seconds", str(left)]
        text = _run(command, left + GRACE_SECONDS)
        known = json.loads(path.read_text()) if path.exists() else None
        if known is not None and known["finished"]:
            return bool(known["right"])
        without_progress += 1
        if known is not None and known["under_way"] is not None:
            print(f"{known['under_way']}: FAILED", flush=True)
            known["failed"][known["under_way"]] = text
            save(path, {**known, "under_way": None, "right": False})
            without_progress = 0
    return False


def _run(command, seconds):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        environment.setdefault(name, "1")
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = ["timeout", "-k", "5", str(seconds), *command]
    process = subprocess.Popen(command, env=environment, **how)
    lines = []
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        lines = [*lines[1 - CARRIED :], line]
    process.wait()
    return "".join(lines)
