"""`batchkron run --adapt-tol`: grids that follow the solution, from the command line."""

import json

import numpy as np
import pytest

from batchkron.problems import AdaptSettings, load_problem, make
from batchkron.solvers import Adapt, evolve
from batchkron.storage import load_checkpoint, load_result

ARGUMENTS = ["run", "continuity-2d", "--level", "3", "--degree", "2", "--dt", "1e-3",
             "--stepper", "rk4", "--adapt-tol", "1e-3", "--adapt-every", "4",
             "--max-level", "5,5", "--quiet"]  # fmt: skip


def expected_at(until):
    problem = make("continuity-2d", 3, 2, method="rk4")
    rule = Adapt(1e-3, every=4, max_level=(5, 5))
    return evolve(problem, until=until, method="rk4", dt=1e-3, adapt=rule)


def test_the_result_has_its_grid(cli, folder):
    result = folder / "run.result.h5"
    done = cli(*ARGUMENTS, "--until", "0.02", "-o", result, "--json")
    report = json.loads(done.stdout)
    expected = expected_at(0.02)
    stored = load_result(result)
    np.testing.assert_array_equal(stored.u, expected.u)
    np.testing.assert_array_equal(stored.grid.cells, expected.problem.grid.cells)
    assert report["unknowns"] == expected.u.size
    problem = make("continuity-2d", 3, 2, method="rk4")
    assert stored.problem_hash == problem.content_hash
    again = problem.on_stored_grid(stored.grid)
    assert again.l2_error(stored.u, stored.t) == pytest.approx(report["l2_error"], rel=1e-12)
    shown = " ".join(cli("info", result).stdout.split())
    levels = ", ".join(map(str, stored.grid.levels.tolist()))
    assert f"{len(stored.grid.cells)} cells that followed the solution, levels {levels}" in shown


def test_a_run_is_resumed_as_in_python(cli, folder):
    first, second = folder / "first.result.h5", folder / "second.result.h5"
    cli(*ARGUMENTS, "--until", "0.012", "-o", first)
    checkpoint = folder / "first.checkpoint.h5"
    assert load_checkpoint(checkpoint).step == 12
    problem, rule = make("continuity-2d", 3, 2, method="rk4"), Adapt(1e-3, every=4, max_level=5)
    expected = evolve(problem, until=0.024, resume=checkpoint, adapt=rule)
    cli(*ARGUMENTS, "--until", "0.024", "-o", second, "--resume", checkpoint)
    np.testing.assert_array_equal(load_result(second).u, expected.u)


def test_a_relative_tolerance(cli, folder):
    result = folder / "run.result.h5"
    cli(*ARGUMENTS, "--adapt-tol", "0.05", "--adapt-relative", "--until", "0.02", "-o", result)
    problem = make("continuity-2d", 3, 2, method="rk4")
    rules = [Adapt(0.05, every=4, max_level=(5, 5), relative=chosen) for chosen in (True, False)]
    relative, absolute = (
        evolve(problem, until=0.02, method="rk4", dt=1e-3, adapt=rule) for rule in rules
    )
    np.testing.assert_array_equal(load_result(result).u, relative.u)
    assert relative.u.size != absolute.u.size


def test_a_weight(cli, folder):
    result = folder / "run.result.h5"
    cli(*ARGUMENTS, "--adapt-weight", "x^2*y", "--until", "0.02", "-o", result)
    problem = make("continuity-2d", 3, 2, method="rk4")
    rule = Adapt(1e-3, every=4, max_level=5, weight=lambda x, y: x**2 * y)
    expected = evolve(problem, until=0.02, method="rk4", dt=1e-3, adapt=rule)
    np.testing.assert_array_equal(load_result(result).u, expected.u)
    assert expected.u.size != expected_at(0.02).u.size


@pytest.fixture
def file(cli, folder):
    """continuity-2d from level 3 to 5, with a rule."""
    path = folder / "c2.h5"
    cli("make", "continuity-2d", "--level", "3", "--degree", "2", "--adapt", "1e-3",
        "--max-level", "5", "--adapt-every", "4", "--adapt-keep", "x", "-o", path)  # fmt: skip
    return path


def test_a_file_keeps_its_rule(cli, folder, file):
    problem = load_problem(file)
    expected = AdaptSettings(
        tol=1e-3, every=4, horizon=None, max_level=(5, 5), keep=("x",), steps=problem.adapt.steps
    )
    assert problem.adapt == expected
    shown = " ".join(cli("info", file).stdout.split())
    assert "tolerance 0.001; every 4 steps; finest levels 5, 5; keeps x" in shown
    run = "run", file, "--dt", "1e-3", "--stepper", "rk4", "--until", "0.02", "--quiet", "--force"
    taken = {"until": 0.02, "dt": 1e-3, "method": "rk4"}
    fixed = problem.with_adapt(None)
    rule = {"every": 4, "max_level": 5, "keep": "x"}
    cases = [
        ([], Adapt(1e-3, **rule)),
        (["--adapt-tol", "1e-4"], Adapt(1e-4, **rule)),
        (["--adapt-every", "9"], Adapt(1e-3, **rule | {"every": 9})),
        (["--adapt-weight", "y"], Adapt(1e-3, **rule, weight=lambda x, y: y)),
    ]
    sizes = set()
    for options, adapt in cases:
        cli(*run, *options, "-o", "run.h5")
        result = evolve(fixed, **taken, adapt=adapt)
        stored = load_result(folder / "run.h5")
        np.testing.assert_array_equal(stored.u, result.u)
        np.testing.assert_array_equal(stored.grid.cells, result.problem.grid.cells)
        sizes.add(stored.u.size)
    assert len(sizes) > 1
    cli(*run, "--no-adapt", "-o", "run.h5")
    stored = load_result(folder / "run.h5")
    assert stored.grid is None
    np.testing.assert_array_equal(stored.u, evolve(fixed, **taken).u)


def test_a_file_with_a_rule_is_resumed(cli, folder, file):
    run = "run", file, "--dt", "1e-3", "--stepper", "rk4", "--quiet"
    cli(*run, "--until", "0.012", "-o", "first.h5")
    cli(*run, "--until", "0.024", "-o", "second.h5", "--resume", "first.checkpoint.h5")
    cli(*run, "--until", "0.024", "-o", "whole.h5")
    found, expected = load_result(folder / "second.h5"), load_result(folder / "whole.h5")
    np.testing.assert_array_equal(found.u, expected.u)


def test_a_rule_is_not_given_and_refused_at_once(refused):
    words = "run", "continuity-2d", "--level", "3", "--quiet", "--no-adapt"
    assert "leave --adapt-tol out" in refused(*words, "--adapt-tol", "1e-3")
    assert "leave --max-level out" in refused(*words, "--max-level", "5")
    words = "make", "continuity-2d", "--level", "3", "-o", "c2.h5"
    assert "give their tolerance with --adapt-tol" in refused(*words, "--adapt-every", "3")
    assert "max_level is 2" in refused(*words, "--adapt-tol", "1e-3", "--max-level", "2")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--adapt-every", "4"], "--adapt-every is for grids that follow the solution"),
        (["--adapt-relative"], "--adapt-relative is for grids that follow the solution"),
        (["--adapt-tol", "0"], "0.0 is out of range"),
        (["--adapt-tol", "1e-3", "--adapt-keep", "v"], "keep names the axis 'v'"),
        (["--adapt-tol", "1e-3", "--max-level", "2"], "max_level is 2"),
        (
            ["--adapt-tol", "1e-3", "--adapt-weight", "v"],
            "a product of powers of x, y and of field",
        ),
        (["--adapt-tol", "1e-3", "--adapt-weight", "field"], "have no field of a Poisson"),
    ],
)
def test_wrong_options_are_refused(refused, options, text):
    assert text in refused("run", "continuity-2d", "--level", "3", "--quiet", *options)


def test_a_tolerance_that_the_largest_level_keeps_from_being_met(cli, folder):
    words = [*ARGUMENTS, "--adapt-tol", "1e-5", "--until", "0.004", "--json", "-o"]
    low = cli(*words, folder / "low.result.h5", "--max-level", "4")
    adapt = json.loads(low.stdout)["adapt"]
    assert not adapt["tolerance_met"]
    assert f"warning: max_level kept {adapt['limited']} cells" in low.stderr
    high = cli(*words, folder / "high.result.h5", "--max-level", "9")
    assert json.loads(high.stdout)["adapt"]["tolerance_met"]
    assert "max_level" not in high.stderr
