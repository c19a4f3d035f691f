"""Files that earlier versions wrote are read, and mean what they meant."""

from pathlib import Path

import numpy as np
import pytest

from batchkron.problems import load_problem
from batchkron.solvers import evolve
from batchkron.storage import load_checkpoint, load_result

FOLDER = Path(__file__).parents[1] / "data" / "files_of_4988497"


@pytest.fixture
def problem():
    return load_problem(FOLDER / "problem.h5")


def test_a_result_is_what_its_problem_gives_today(problem):
    stored = load_result(FOLDER / "result.h5")
    assert (stored.method, stored.steps, stored.t) == ("esdirk3", 10, 0.5)
    again = evolve(problem, until=0.5, method="esdirk3", dt=0.05, preconditioner="none")  # as then
    np.testing.assert_allclose(stored.u, again.u, rtol=0, atol=1e-10 * np.linalg.norm(again.u))
    assert problem.l2_error(stored.u, 0.5) == pytest.approx(2.856e-4, rel=1e-3)


@pytest.mark.filterwarnings("ignore::batchkron.solvers.ResumeWarning")  # another instruction set
def test_a_checkpoint_is_gone_on_from(problem):
    path = FOLDER / "checkpoint.h5"
    before = load_checkpoint(path)
    assert (before.method, before.t) == ("bogacki-shampine", 0.02)
    gone_on = evolve(problem, until=0.03, resume=path, rtol=1e-4)
    whole = evolve(problem, until=0.03, method="bogacki-shampine", rtol=1e-4)
    assert gone_on.steps > before.step
    size = np.linalg.norm(whole.u)
    np.testing.assert_allclose(gone_on.u, whole.u, rtol=0, atol=1e-4 * size)


def test_a_problem_runs_with_a_method_that_splits_it(problem):
    result = evolve(problem, until=0.5, method="ark3", dt=0.025)
    # the file does not say which sources are explicit, so that all are implicit
    assert problem.l2_error(result.u, 0.5) < 5e-3
