"""The command with files of batch lists."""

import json

import numpy as np
import pytest
from random_lists import random_problem

from batchkron.problems import load_problem, save_problem
from batchkron.solvers import evolve
from batchkron.storage import load_checkpoint, load_result


def agree(u, expected):
    """Whether states of 25 steps differ by rounding alone; the command's sums are in parts."""
    return np.abs(u - expected).max() <= 1e3 * np.finfo(expected.dtype).eps * np.abs(expected).max()


@pytest.fixture
def problem(rng, folder):
    """A problem with all parts, and the file list.h5."""
    problem = random_problem(rng)
    save_problem("list.h5", problem)
    return problem


@pytest.fixture
def bare(rng, folder):
    """A problem without defaults, and the file bare.h5."""
    problem = random_problem(rng, stepper=None, exact=None, source=None, quantities={})
    save_problem("bare.h5", problem)
    return problem


def test_a_run(cli, problem):
    result = evolve(problem, until=0.5)
    printed = cli("run", "list.h5", "--record", "mass,norm").stdout
    written = load_result("list.result.h5")
    assert agree(written.u, result.u)
    assert (written.problem_hash, written.problem_name) == (problem.content_hash, problem.name)
    assert written.l2_error == problem.l2_error(written.u, result.t)
    assert "24 unknowns in 4 blocks, 12 products of a batch list" in printed
    assert "mass" in printed


def test_a_report_as_json(cli, problem):
    printed = cli("run", "list.h5", "--json", "--stepper", "backward-euler").stdout
    report = json.loads(printed)
    assert (report["blocks"], report["products"], report["unknowns"]) == (4, 12, 24)
    assert (report["stepper"], report["status"]) == ("backward-euler", "completed")
    assert report["kernel_products"] > 0
    assert "grid" not in report


def test_checkpoints_resume(cli, problem):
    given = ("run", "list.h5", "--quiet", "--checkpoint", "c.h5")
    cli(*given, "--checkpoint-every", "10", "-o", "whole.h5")
    assert load_checkpoint("c.h5.previous").step == 20
    cli(*given[:3], "--resume", "c.h5.previous", "-o", "resumed.h5")
    assert load_result("resumed.h5").u.tobytes() == load_result("whole.h5").u.tobytes()


def test_single_precision(cli, rng):
    problem = random_problem(rng, "float32")
    save_problem("single.h5", problem)
    cli("run", "single.h5", "--quiet", "--checkpoint", "c.h5")
    assert agree(load_result("single.result.h5").u, evolve(problem, until=0.5).u)
    assert load_checkpoint("c.h5").dtype == "float32"


def test_a_picture_along_an_index(cli, refused, problem):
    pytest.importorskip("matplotlib")
    cli("run", "list.h5", "--plot", "a.png", "--slice", "i1=2", "--quiet")
    for text, options in [
        ("'x' is no index; expected one of block, i1", ("--slice", "x=1")),
        ("slice has i1 = 9; expected 0 to 2", ("--slice", "i1=9")),
        ("--marginal is for functions on a grid", ("--marginal", "i1")),
    ]:
        given = ("run", "list.h5", "--force", "--plot", "b.png", *options, "-o", "b.h5")
        assert text in refused(*given)
    assert "--movie is for functions on a grid" in refused(
        "run", "list.h5", "--movie", "a.gif", "-o", "b.h5"
    )


def test_info_check_and_validate(cli, problem, bare):
    printed = cli("info", "list.h5").stdout
    for part in ("12 products of 3×3 ⊗ 2×2", problem.content_hash, "mass, Ä", "batchkron"):
        assert part in printed
    assert "source        none" in cli("info", "bare.h5").stdout
    assert cli("check", "list.h5").stdout == "sound: list.h5 is a problem file\n"
    printed = cli("validate", "list.h5", "--samples", "2").stdout
    assert "verdict           ok" in printed


def test_check_names_the_first_wrong_entry(cli, folder, rng, problem):
    import h5py

    with h5py.File("list.h5", "r+", libver=("v110", "v110")) as file:
        file["list/inputs"][7] = 99
        del file.attrs["content_hash"]
    printed = cli("check", "list.h5", expect=1).stdout
    assert "not sound: list.h5: dataset 'list/inputs' holds 99 at [7]; expected 0 … 3" in printed


def test_what_does_not_say_how_to_step_it(cli, refused, bare):
    for text, options in [
        ("does not say when its runs end; give --until", ()),
        ("does not say how it is stepped in time; give --stepper", ("--until", "1")),
        ("does not suggest a step; give --dt", ("--until", "1", "--stepper", "rk4")),
        ("is a batch list, which has one form", ("--operator", "batch")),
        ("without a grid that could follow", ("--adapt-tol", "1e-3", "--until", "1")),
        (
            "'error' is no quantity",
            ("--record", "error", "--until", "1", "--stepper", "rk4", "--dt", "0.1"),
        ),
    ]:
        assert text in refused("run", "bare.h5", *options)
    given = ("--until", "0.5", "--stepper", "rk4", "--dt", "0.01", "--quiet")
    cli("run", "bare.h5", *given)
    expected = evolve(load_problem("bare.h5"), until=0.5, method="rk4", dt=0.01)
    assert agree(load_result("bare.result.h5").u, expected.u)


def test_complex_states_have_no_result_files(refused, rng):
    save_problem("complex.h5", random_problem(rng, "complex128"))
    assert "has complex states" in refused("run", "complex.h5")
