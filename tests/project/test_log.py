"""The loggers: silent as they are, and what they tell a program that configures them."""

import subprocess
import sys

import numpy as np

import batchkron as bk
from batchkron.problems import make
from batchkron.solvers import evolve, preconditioners


def test_nothing_is_printed_unless_the_program_wants_it():
    script = (
        "from batchkron.log import logger\n"
        "for name in ('tuning', 'cache', 'preconditioner'):\n"
        "    logger(name).warning('something')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_choice_of_a_preconditioner_is_logged(caplog):
    caplog.set_level("INFO", "batchkron.preconditioner")
    preconditioners.make("auto", bk.KroneckerSum([np.diag([1.0, 2.0])] * 2))
    assert caplog.messages == ["auto is CombinationPreconditioner for a KroneckerSum"]


def test_whether_a_run_takes_a_preconditioner_is_logged(caplog):
    caplog.set_level("INFO", "batchkron.preconditioner")
    problem = make("diffusion-2d", level=4, degree=1)
    evolve(problem, until=0.1, dt=0.05, method="backward-euler")
    assert any(text.startswith("auto is taken, since it helps") for text in caplog.messages)
