"""Ranks that are processes of MPI, started by mpiexec on this machine."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mpi_launcher import MPIEXEC

from batchkron.distributed.communication.mpi import is_mpi

HERE = Path(__file__).parent

needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or MPIEXEC is None,
    reason="mpi4py or mpiexec is not installed: pip install mpi4py mpich",
)


def mpiexec(ranks, *command, expected=0, timeout=60):
    """What some ranks of a Python program print."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONSAFEPATH", None)  # with it, mpi4py takes the first folder off the path
    run = subprocess.run(
        [MPIEXEC, "-n", str(ranks), sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        cwd=HERE,
    )
    assert (run.returncode == 0) == (expected == 0), run.stdout + run.stderr
    return run.stdout + run.stderr


@needs_mpi
@pytest.mark.parametrize(
    "ranks", [2, 4, *(pytest.param(ranks, marks=pytest.mark.slow) for ranks in (3, 8))]
)
def test_products_on_ranks(ranks):
    assert f"{ranks} ranks agree" in mpiexec(ranks, HERE / "mpi_program.py", ranks)


_LOOP = (
    "import os, signal, numpy as np, batchkron as bk\n"
    "from batchkron.distributed import distribute, world\n"
    "comm = world()\n"
    "op = distribute(bk.KroneckerProduct([np.ones((4, 4))] * 3), comm, (1, 3))\n"
    "block = op.scatter(np.ones(64))\n"
    "for step in range(10**9):\n"
    "    if comm.rank == 1 and step == 5:\n"
    "        {}\n"
    "    op @ block\n"
)


@needs_mpi
def test_a_killed_rank_ends_all_with_an_error():
    mpiexec(3, "-c", _LOOP.format("os.kill(os.getpid(), signal.SIGKILL)"), expected=1)


@needs_mpi
def test_an_exception_on_one_rank_ends_all_under_mpi4py(tmp_path):
    """``python -m mpi4py script.py`` ends the others, too, which would wait for ever."""
    script = tmp_path / "script.py"
    script.write_text(_LOOP.format("raise ArithmeticError('on rank 1')"))
    assert "ArithmeticError: on rank 1" in mpiexec(3, "-m", "mpi4py", script, expected=1)


def test_other_objects_are_no_communicators():
    assert not is_mpi(None)
    assert not is_mpi(object())


def test_without_mpi4py_the_text_says_what_to_install():
    script = (
        "import sys\n"
        "sys.modules['mpi4py'] = None  # as if it were not installed\n"
        "import batchkron.distributed as d\n"
        "from batchkron.errors import BackendUnavailableError\n"
        "try:\n"
        "    d.world()\n"
        "except BackendUnavailableError as error:\n"
        "    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "pip install 'batchkron[mpi]'" in run.stdout, run.stderr
