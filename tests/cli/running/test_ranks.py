"""`mpiexec -n 2 batchkron run …`: what one process prints and writes."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from mpi_launcher import MPIEXEC
from random_lists import random_problem

from batchkron.cli.running import ranks as module
from batchkron.errors import BackendUnavailableError
from batchkron.problems import save_problem
from batchkron.storage import load_checkpoint, load_result

needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or MPIEXEC is None,
    reason="mpi4py or mpiexec is not installed: pip install mpi4py mpich",
)
C2 = ("continuity-2d", "--level", "4", "--degree", "2", "--until", "0.05")


def start(*words, ranks=2):
    command = [MPIEXEC, "-n", str(ranks), sys.executable, "-m", "batchkron.cli", *map(str, words)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def run(*words, expect=0, ranks=2):
    process = start(*words, ranks=ranks)
    out, err = process.communicate(timeout=60)
    assert process.returncode == expect, out + err
    return out, err


@needs_mpi
def test_the_result_is_that_of_one_process(cli, folder):
    cli("run", *C2, "-o", "one.h5", "--quiet")
    out, err = run("run", *C2, "-o", "two.h5", "--json")
    (line,) = out.splitlines()
    report = json.loads(line)
    assert (report["ranks"], report["status"], report["unknowns"]) == (2, "completed", 432)
    assert err.count("on 2 ranks;") == 1
    one, two = load_result("one.h5"), load_result("two.h5")
    np.testing.assert_array_equal(two.u, one.u)
    assert two.l2_error == one.l2_error
    assert sorted(path.name for path in folder.iterdir()) == ["one.h5", "two.h5"]


@needs_mpi
def test_a_grid_follows_the_solution(cli):
    given = "run", *C2, "--stepper", "rk4", "--dt", "0.002", "--adapt-tol", "2e-4", "--quiet"
    cli(*given, "-o", "one.h5")
    run(*given, "-o", "two.h5", "--checkpoint", "kept.h5")
    one, two, kept = load_result("one.h5"), load_result("two.h5"), load_checkpoint("kept.h5")
    np.testing.assert_array_equal(two.u, one.u)
    assert two.u.size > 432
    assert kept.grid is not None
    run(*given[:-3], "--adapt-tol", "2e-4", "--resume", "kept.h5", "-o", "three.h5", ranks=3)
    np.testing.assert_array_equal(load_result("three.h5").u, one.u)


@needs_mpi
def test_an_implicit_run_with_a_checkpoint_goes_on_in_one_process():
    given = "run", "diffusion-2d", "--level", "3", "--degree", "1", "--quiet"
    kept = "--checkpoint", "half.h5", "--checkpoint-every", "10"
    run(*given, "--until", "0.05", *kept, "-o", "a.h5")
    assert load_checkpoint("half.h5").u.shape == load_result("a.h5").u.shape
    run(*given, "--until", "0.1", "--resume", "half.h5", "-o", "b.h5", ranks=1)
    run(*given, "--until", "0.1", "--resume", "half.h5", "-o", "c.h5", ranks=3)
    run(*given, "--until", "0.1", "-o", "d.h5", ranks=1)
    expected = load_result("d.h5").u
    for name in ("b.h5", "c.h5"):
        np.testing.assert_allclose(load_result(name).u, expected, rtol=0, atol=1e-4)


@needs_mpi
def test_preconditioners_are_dealt_out(cli):
    given = "run", "diffusion-2d", "--level", "3", "--degree", "1", "--until", "0.02", "--quiet"
    words = *given, "--preconditioner", "auto", "--adapt-tol", "1e-2", "--dt", "0.005"
    cli(*words, "-o", "one.h5")
    run(*words, "-o", "two.h5")
    one, two = load_result("one.h5"), load_result("two.h5")
    np.testing.assert_allclose(two.u, one.u, rtol=0, atol=1e-7 * np.abs(one.u).max())


@needs_mpi
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("nothere.h5",), "is neither a file nor a name of the gallery"),
        ((*C2, "--preconditioner", "auto"), "is explicit and solves no system"),
        ((*C2, "--operator", "dense"), "is a dense matrix"),
        ((*C2, "--dt", "0.05"), "is not stable with it"),
    ],
)
def test_what_is_refused_is_said_once(folder, words, text):
    out, err = run("run", *words, "--quiet", expect=2)
    assert out == ""
    errors = [line for line in err.splitlines() if line.startswith("batchkron: ")]
    assert len(errors) == 1
    assert text in errors[0]
    assert list(folder.iterdir()) == []


@needs_mpi
def test_a_signal_leaves_a_checkpoint_of_the_whole_state(cli):
    process = start("run", *C2[:5], "--until", "1000", "--checkpoint-every", "20", "--quiet")
    deadline = time.monotonic() + 40
    while not list(Path().glob("*.checkpoint.h5")):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode != 0
    (kept,) = Path().glob("*.checkpoint.h5")
    checkpoint = load_checkpoint(kept)
    assert checkpoint.u.shape == (432,)
    assert checkpoint.step >= 20


def test_without_mpi4py_a_launcher_is_refused(refused, monkeypatch):
    def missing():
        raise BackendUnavailableError("MPI cannot be used: no mpi4py. Install it by: pip install")

    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setattr(module, "world", missing)
    assert "MPI cannot be used" in refused("run", *C2)


@needs_mpi
def test_a_batch_list(cli, rng):
    save_problem("list.h5", random_problem(rng))
    cli("run", "list.h5", "-o", "one.h5", "--quiet")
    run("run", "list.h5", "-o", "two.h5", "--quiet", "--checkpoint", "c.h5")
    one, two = load_result("one.h5"), load_result("two.h5")
    np.testing.assert_allclose(two.u, one.u, rtol=0, atol=1e-12 * np.abs(one.u).max())
    assert (two.problem_hash, load_checkpoint("c.h5").step) == (one.problem_hash, 25)
