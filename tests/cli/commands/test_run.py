"""`batchkron run`: what it computes, prints and writes."""

import json

import numpy as np
import pytest

import batchkron
from batchkron.cli.running.clock import KernelClock
from batchkron.problems import PDE, Axis, Separable, div, grad, make, mass, save_problem, time
from batchkron.solvers import Run, evolve, preconditioners, steppers
from batchkron.solvers.steppers.linear_solver import solver_names
from batchkron.storage import load_checkpoint, load_result, previous_path

X = Axis("x", -1, 1)
KEYS = {
    "problem": str,
    "unknowns": int,
    "added_cells": int,
    "steps": int,
    "time": float,
    "dt": float,
    "seconds_per_step": float,
    "kernel_share": float,
    "l2_error": float,
    "relative_error": float,
    "status": str,
}


def growing(rate, **more):
    """f_t = rate f: each cell for itself."""
    initial = Separable(x=lambda x: 1.0 + x)
    return PDE([X], [mass(X, rate)], boundary="periodic", initial=initial, name="growth", **more)


def rows_of(output):
    """The table that a run prints."""
    pairs = [line.split("  ", 1) for line in output.splitlines()]
    return {name: text.strip() for name, text in pairs}


def test_result_is_what_evolve_returns(cli, folder, problem, problem_file):
    result = evolve(problem, until=0.13)
    output = cli("run", "c2.h5", "--until", "0.13").stdout
    written = load_result(folder / "c2.result.h5")
    assert written.u.tobytes() == result.u.tobytes()
    assert (written.t, written.steps, written.dt) == (0.13, result.steps, result.dt)
    assert (written.status, written.method) == ("completed", "ssp-rk3")
    assert (written.problem_name, written.problem_hash) == (problem.name, problem.content_hash)
    assert written.l2_error == problem.l2_error(result.u, 0.13)
    assert written.relative_error == problem.relative_error(result.u, 0.13)
    assert written.history[-1]["event"] == "completed"
    rows = rows_of(output)
    assert rows["problem"] == (
        "continuity-2d, 80 unknowns in 20 cells of a sparse grid, level 3, degree 1"
    )
    assert rows["steps"] == f"{result.steps}, to t = 0.13"
    assert rows["L2 error"] == f"{written.l2_error:.4g}"
    assert rows["relative error"] == f"{written.relative_error:.4g}"
    assert rows["result"] == "c2.result.h5"
    assert float(rows["per step"].removesuffix(" s")) > 0.0
    assert 0 < int(rows["kernel's share"].removesuffix(" %")) <= 100
    assert set(folder.iterdir()) == {problem_file, folder / "c2.result.h5"}


@pytest.mark.parametrize("name", ["diffusion-1d", "advection-1d"])
def test_names_of_the_gallery_run_as_they_are(cli, folder, name):
    cli("run", name, "--level", "2", "--degree", "1", "--grid", "full")
    problem = make(name, level=2, degree=1, grid="full")
    written = load_result(folder / f"{name}.result.h5")
    assert written.u.tobytes() == evolve(problem, until=problem.stepper.until).u.tobytes()
    assert written.problem_hash == problem.content_hash


def test_collisions_are_timed_and_their_problem_files_run(cli, folder):
    """Their implicit part follows the state."""
    settings = ("--level", "3", "--quiet")
    cli("run", "relaxation-1x1v:nu=50", *settings)
    problem = make("relaxation-1x1v", 3, nu=50.0)
    expected = evolve(problem, until=problem.stepper.until)
    np.testing.assert_array_equal(load_result("relaxation-1x1v.result.h5").u, expected.u)
    save_problem("bgk.h5", make("bgk-1x1v", 3, until=0.01))
    cli("run", "bgk.h5", "--quiet")
    expected = evolve(make("bgk-1x1v", 3), until=0.01)
    np.testing.assert_allclose(load_result("bgk.result.h5").u, expected.u, atol=1e-12)


def test_the_known_error_of_the_readme(cli):
    words = ["continuity-2d", "--degree", "2", "--level", "6", "--until", "0.1"]
    report = json.loads(cli("run", *words, "--json").stdout)
    assert report["unknowns"] == 2304
    assert report["l2_error"] == pytest.approx(6.707e-4, rel=1e-3)


def test_json_is_one_object_and_all_of_standard_output(cli, problem, problem_file):
    result = cli("run", "c2.h5", "--until", "0.1", "--json")
    report = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    for key, kind in KEYS.items():
        assert type(report[key]) is kind, key
    expected = evolve(problem, until=0.1)
    assert report["problem"] == "continuity-2d"
    assert (report["unknowns"], report["steps"]) == (80, expected.steps)
    assert (report["time"], report["dt"]) == (0.1, expected.dt)
    assert report["l2_error"] == problem.l2_error(expected.u, 0.1)
    assert report["relative_error"] == problem.relative_error(expected.u, 0.1)
    assert report["status"] == "completed"
    assert report["seconds_per_step"] == report["seconds"] / report["steps"]
    assert 0.0 < report["kernel_share"] <= 1.0
    assert report["kernel_products"] == 3 * expected.steps
    assert report["result"] == "c2.result.h5"
    assert report["checkpoint"] is None
    assert "step" in result.stderr


def test_quiet_prints_nothing_and_progress_comes_in_lines(cli, problem_file):
    quiet = cli("run", "c2.h5", "--until", "0.1", "--quiet")
    assert (quiet.stdout, quiet.stderr) == ("", "")
    lines = cli("run", "c2.h5", "--until", "0.1", "--force").stderr.splitlines()
    assert lines[0].startswith("continuity-2d: 80 unknowns in 20 cells")
    assert len(lines) > 2
    assert all(line.startswith("step ") for line in lines[1:])


def test_step_and_stepper_are_taken(cli, problem, problem_file):
    words = ["--until", "0.1", "--dt", "0.03", "--stepper", "crank-nicolson", "--json"]
    report = json.loads(cli("run", "c2.h5", *words).stdout)
    expected = evolve(problem, until=0.1, dt=0.03, method="crank-nicolson")
    assert (report["steps"], report["dt"]) == (4, 0.025)
    assert report["stepper"] == "crank-nicolson"
    assert report["l2_error"] == problem.l2_error(expected.u, 0.1)
    assert report["kernel_products"] > 8  # those of the linear solves, too


@pytest.mark.usefixtures("problem_file")
def test_threads_are_set_and_change_no_bit(cli, folder, threads):
    for count in (1, 3):
        cli("run", "c2.h5", "--until", "0.1", "--threads", count, "-o", f"{count}.h5")
        assert batchkron.get_num_threads() == count
    first, second = (load_result(folder / f"{count}.h5") for count in (1, 3))
    assert first.u.tobytes() == second.u.tobytes()


def test_without_an_exact_solution_errors_are_unknown(cli, folder):
    save_problem(folder / "g.h5", growing(0.5).discretize(level=2, degree=1, until=0.5))
    report = json.loads(cli("run", "g.h5", "--json").stdout)
    assert report["l2_error"] is None
    assert report["relative_error"] is None
    assert rows_of(cli("run", "g.h5", "--force").stdout)["L2 error"] == "unknown"
    assert load_result(folder / "g.result.h5").l2_error is None


def test_where_the_exact_solution_vanishes_the_relative_error_is_null(cli):
    words = ["--level", "2", "--until", "1e6", "--dt", "1e5", "--json"]
    report = json.loads(cli("run", "diffusion-1d", *words).stdout)
    assert report["relative_error"] is None
    assert report["l2_error"] > 0.0


def test_no_step_at_all(cli, problem, problem_file):
    result = cli("run", "c2.h5", "--until", "0", "--json")
    report = json.loads(result.stdout)
    assert (report["steps"], report["time"], report["status"]) == (0, 0.0, "completed")
    assert report["seconds_per_step"] is None
    assert report["kernel_share"] is None
    assert rows_of(cli("run", "c2.h5", "--until", "0", "--force").stdout)["per step"] == (
        "no step was taken"
    )


def test_a_blow_up_ends_with_its_status_and_keeps_the_last_good_checkpoint(cli, folder):
    save_problem(folder / "g.h5", growing(1.0).discretize(level=1, degree=1))
    words = ["--dt", "1e30", "--until", "1e32", "--stepper", "forward-euler"]
    every = ["--checkpoint-every", "4"]
    result = cli("run", "g.h5", *words, *every, "--json", expect=4)
    report = json.loads(result.stdout)
    assert report["status"] == "not-finite"
    assert report["steps"] == 11
    assert (report["l2_error"], report["result"], report["checkpoint"]) == (None, None, None)
    assert "not-finite at step 11 of 100" in result.stderr
    assert not (folder / "g.result.h5").exists()
    good = load_checkpoint(folder / "g.checkpoint.h5")
    assert good.step == 8
    assert np.isfinite(good.u).all()


def test_a_step_that_is_not_stable_is_refused(cli, refused):
    words = ["diffusion-1d", "--stepper", "rk4", "--until", "0.05", "--quiet"]
    error = refused("run", *words, "--dt", "0.01")
    assert "rk4 is not stable with it: A has an eigenvalue of about -1.536e+05" in error
    assert "pass --allow-unstable to run all the same" in error
    told = error.split("take dt <= ")[1].split(",")[0]
    cli("run", "diffusion-1d", "--stepper", "rk4", "--until", "2e-4", "--dt", told)


def test_a_blow_up_that_stays_finite_ends_with_its_status(cli, folder):
    words = ["diffusion-1d", "--level", "3", "--stepper", "rk4", "--until", "0.05", "--json"]
    words += ["--dt", "6e-4", "--allow-unstable", "--checkpoint-every", "1"]
    result = cli("run", *words, expect=8)
    report = json.loads(result.stdout)
    assert (report["status"], report["result"], report["checkpoint"]) == ("unstable", None, None)
    assert 1 < report["steps"] < 84
    assert f"unstable at step {report['steps']} of 84" in result.stderr
    assert "smaller dt" in result.stderr
    assert not (folder / "diffusion-1d.result.h5").exists()
    kept = load_checkpoint(folder / "diffusion-1d.checkpoint.h5")
    assert kept.step == report["steps"] - 1


def test_an_unstable_run_that_fails_later_keeps_no_state_of_it(cli, folder):
    words = ["diffusion-1d", "--stepper", "rk4", "--until", "0.05", "--dt", "0.01"]
    cli("run", *words, "--allow-unstable", "--checkpoint", "c.h5", expect=8)
    assert not list(folder.iterdir())


def test_a_failed_solve_ends_with_its_status(cli, folder):
    """I - dt A vanishes at dt = 1: no solve can converge."""
    save_problem(folder / "g.h5", growing(1.0).discretize(level=1, degree=1))
    words = ["--dt", "1", "--until", "5", "--stepper", "backward-euler"]
    result = cli("run", "g.h5", *words, "--json", expect=5)
    report = json.loads(result.stdout)
    assert (report["status"], report["steps"], report["result"]) == ("solver-failed", 0, None)
    assert "solver-failed at step 0 of 5" in result.stderr
    assert set(folder.iterdir()) == {folder / "g.h5"}


def test_a_time_that_a_table_does_not_reach_is_an_error_of_usage(cli, folder):
    table = time.spline([0.0, 0.25, 0.5, 1.0], [1.0, 2.0, 1.0, 0.5])
    source = Separable(x=lambda x: 1.0 + x, t=table)
    pde = growing(0.5, sources=source)
    save_problem(folder / "g.h5", pde.discretize(level=1, degree=1, until=1.0))
    cli("run", "g.h5")
    error = cli("run", "g.h5", "--until", "2", "--quiet", "--force", expect=2).stderr
    assert error.startswith("batchkron: ")
    assert error.count("\n") == 1


def test_diffusion_that_becomes_backward_is_refused_with_what_a_command_has(cli, folder):
    """The way on that is no option of the command is said to be Python's."""
    falling = time.polynomial([1.0, -1.0])
    for more in ([], [0.5 * div(X) @ grad(X)]):
        terms = [falling * div(X) @ grad(X), *more]
        pde = PDE([X], terms, boundary="periodic", initial=1.0)
        save_problem(folder / "g.h5", pde.discretize(1, 1), overwrite=True)
        error = cli("run", "g.h5", "--until", "2", "--quiet", expect=2).stderr
        assert "--until of a command" in error
        assert "in Python, with " in error


def test_results_go_beside_the_problem_file(cli, folder, problem):
    (folder / "sub").mkdir()
    save_problem(folder / "sub" / "a.b.h5", problem)
    cli("run", "sub/a.b.h5", "--until", "0.05", "--checkpoint-every", "1")
    names = {path.name for path in (folder / "sub").iterdir()}
    assert names == {
        "a.b.h5",
        "a.b.result.h5",
        "a.b.checkpoint.h5",
        "a.b.checkpoint.h5.previous",
    }


def test_a_file_with_a_name_of_the_gallery_needs_a_path(cli, folder, problem):
    save_problem(folder / "continuity-1d", problem)
    report = json.loads(
        cli("run", "continuity-1d", "--level", "1", "--until", "0", "--json").stdout
    )
    assert report["problem"] == "continuity-1d"
    report = json.loads(cli("run", "./continuity-1d", "--until", "0", "--json", "--force").stdout)
    assert report["problem"] == "continuity-2d"


class TestClock:
    """The kernel's share of time is that of operator products; timing changes no bit."""

    @pytest.fixture
    def varying(self):
        """A problem whose operator and source depend on time."""
        y = Axis("y", 0, 3)
        exact = Separable(
            x=lambda x: np.cos(np.pi * x),
            y=lambda y: 1.5 + np.cos(2 * np.pi * y / 3),
            t=time.sin(2.0),
        )
        terms = [div(X, -1.0), div(y, -0.5, time=2.0 + time.cos(3.0), flux="central")]
        pde = PDE([X, y], terms, boundary="periodic", exact=exact, sources="from exact")
        return pde.discretize(level=3, degree=1)

    @pytest.mark.parametrize("method", ["ssp-rk3", "crank-nicolson", "ark3", "exponential-euler"])
    def test_runs_are_the_same_bits(self, varying, problem, method):
        for content in (varying, problem):
            clock = KernelClock(content.initial)
            options = {"until": 0.2, "dt": 0.02, "method": method}
            run = Run(content, **options, on_product=clock.running)
            result, expected = run.to_end(), evolve(content, **options)
            assert result.u.tobytes() == expected.u.tobytes()
            assert run.products >= 10 * (3 if method == "ssp-rk3" else 2)
            assert 0.0 < clock.seconds_of(run.products) < result.seconds

    def test_products_that_were_not_timed_take_as_long_as_the_others(self, problem):
        clock = KernelClock(problem.initial)
        assert clock.seconds_of(3) == 0.0
        with clock.running():
            np.sin(np.ones(1000))
        assert clock.seconds_of(6) == 6 * clock.seconds_of(1) > 0.0


def test_a_stepper_of_the_gallery_gets_a_step_that_it_is_stable_with(cli, folder):
    words = ["diffusion-1d", "--level", "3", "--degree", "1", "--stepper", "rk4", "--until", "0.1"]
    report = json.loads(cli("run", *words, "--json").stdout)
    problem = make("diffusion-1d", level=3, degree=1, method="rk4")
    assert report["status"] == "completed"
    assert report["steps"] == evolve(problem, until=0.1).steps
    assert report["relative_error"] < 0.1


def test_a_file_whose_step_is_not_for_the_stepper_needs_another(refused, cli, folder):
    save_problem(folder / "d.h5", make("diffusion-1d", level=2, degree=1))
    error = refused("run", "d.h5", "--stepper", "rk4")
    assert "rk4 is explicit" in error
    assert "--dt" in error
    cli("run", "d.h5", "--stepper", "rk4", "--dt", "1e-4", "--until", "1e-3")


def test_a_table_that_ends_before_the_run_is_refused_before_it(cli, folder):
    table = time.spline([0.0, 0.25, 0.5, 1.0], [1.0, 2.0, 1.0, 0.5])
    pde = growing(0.5, sources=Separable(x=lambda x: 1.0 + x, t=table))
    save_problem(folder / "g.h5", pde.discretize(level=1, degree=1, until=1.0))
    error = cli("run", "g.h5", "--until", "2", expect=2).stderr
    assert error.startswith("batchkron: ")
    assert error.count("\n") == 1
    assert set(folder.iterdir()) == {folder / "g.h5"}


def test_a_device_needs_its_software(refused, folder, problem_file, no_cupy):
    for word in ("continuity-1d", problem_file.name):
        assert "pip install 'batchkron[cuda13]'" in refused("run", word, "--device", "cuda")


def test_steps_chosen_by_their_errors_and_a_named_preconditioner(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["run", "diffusion-2d", "--level", "3", "--until", "0.01", "--json", "--force"]
    errors = []
    for rtol in ("1e-3", "1e-5"):
        options = ["--stepper", "esdirk3", "--rtol", rtol, "--preconditioner", "auto"]
        report = json.loads(cli(*words, *options).stdout)
        assert report["status"] == "completed"
        assert report["rejected"] >= 0
        errors.append(report["steps"])
    assert errors[0] < errors[1]


@pytest.mark.parametrize(
    "options",
    [
        ["--stepper", "ark3", "--dt", "0.001", "--solver", "bicgstab"],
        ["--stepper", "exponential-trapezoidal", "--atol", "1e-6", "--solver", "krylov"],
        ["--stepper", "dormand-prince", "--rtol", "1e-6"],
    ],
)
def test_every_kind_of_method_runs(cli, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    words = ["run", "advection-1d", "--level", "3", "--until", "0.01", "--json"]
    assert json.loads(cli(*words, *options).stdout)["status"] == "completed"


@pytest.mark.parametrize("option", ["--stepper", "--solver", "--preconditioner"])
def test_every_name_that_the_library_knows_is_offered_and_runs(cli, tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    names = {
        "--stepper": steppers.names(),
        "--solver": solver_names(),
        "--preconditioner": preconditioners.names(),
    }[option]
    words = ["run", "diffusion-2d", "--level", "2", "--degree", "1", "--until", "2e-4", "--json"]
    words += ["--dt", "1e-4", "--force"]
    for name in names:
        options = [option, name]
        if option != "--stepper":
            options += ["--stepper", "sdirk2"]
        if option == "--solver":
            options += ["--preconditioner", "auto"]
        chooses_order = option == "--stepper" and steppers.get(name).chooses_order
        if chooses_order:
            options += ["--rtol", "1e-4"]
        report = json.loads(cli(*words, *options).stdout)
        assert report["status"] == "completed", name
        assert report["steps"] == 2 or chooses_order, name


def test_a_stopped_run_that_chooses_its_steps_goes_on_bitwise(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = ["run", "advection-1d", "--level", "3", "--stepper", "dormand-prince", "--rtol", "1e-6"]
    base += ["--quiet", "--force"]
    cli(*base, "--until", "0.2", "-o", "whole.h5")
    cli(
        *base,
        "--until",
        "0.2",
        "-o",
        "half.h5",
        "--checkpoint",
        "half.checkpoint.h5",
        "--checkpoint-every",
        "3",
    )
    middle = load_checkpoint(previous_path("half.checkpoint.h5"))
    assert 0.0 < middle.t < 0.2
    resume = str(previous_path("half.checkpoint.h5"))
    cli(*base, "--until", "0.2", "-o", "resumed.h5", "--resume", resume, "--checkpoint", "other.h5")
    whole, resumed = load_result("whole.h5"), load_result("resumed.h5")
    np.testing.assert_array_equal(whole.u, resumed.u)


def test_options_that_do_not_fit_the_stepper(refused):
    words = ["run", "advection-1d", "--level", "3", "--until", "0.01"]
    assert "does not estimate its error" in refused(*words, "--rtol", "1e-3")
    assert "is explicit" in refused(*words, "--solver", "cg")


@pytest.mark.parametrize("more", [[], ["--stepper", "rk4", "--dt", "0.01"], ["--adapt", "0.1"]])
@pytest.mark.parametrize("name", ["collisional-landau-1x1v", "bgk-1x1v"])
def test_an_initial_density_that_is_not_positive_ends_with_its_status(cli, folder, name, more):
    words = [f"{name}:amplitude=1.5", "--level", "4", "--until", "0.02", "--json", *more]
    result = cli("run", *words, expect=9)
    report = json.loads(result.stdout)
    assert (report["status"], report["steps"]) == ("not-physical", 0)
    assert "Moment({v: 0}) is -" in result.stderr


def test_parameters_that_are_wrong(refused):
    text = refused("run", "landau-1x1v:k=0.5,k=0.4")
    assert "landau-1x1v has the parameter k twice in 'k=0.5,k=0.4'" in text
    assert "the parameter 'k' of landau-1x1v is 0; expected" in refused("run", "landau-1x1v:k=0")
