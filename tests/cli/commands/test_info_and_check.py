"""`batchkron info` and `batchkron check` on sound and broken files of every kind."""

import dataclasses
import json

import h5py
import numpy as np
import pytest

from batchkron.backends.cpu import environment
from batchkron.operators.sparse_grid import added_cells as sweep_hull
from batchkron.problems import PDE, Axis, SparseGrid, div, make, save_problem
from batchkron.solvers import evolve
from batchkron.storage import previous_path, save_checkpoint


@pytest.fixture
def files(cli, problem_file):
    """A problem, its result and a checkpoint: names by kind."""
    cli("run", "c2.h5", "--until", "0.1", "--checkpoint", "c2.checkpoint.h5")
    return {"problem": "c2.h5", "result": "c2.result.h5", "checkpoint": "c2.checkpoint.h5"}


def test_info_shows_a_problem(cli, problem, problem_file):
    output = cli("info", "c2.h5").stdout
    for fragment in [
        "c2.h5, a problem\n",
        "continuity-2d\n",
        "x from -1 to 1\n",
        "y from -2 to 2\n",
        "sparse, finest levels 3, 3, 20 cells\n",
        "unknowns        80\n",
        "degree          1\n",
        "terms           2, constant in time\n",
        "acts on x (",
        "sources         3, varying in time\n",
        f"initial state   ‖u‖₂ = {np.linalg.norm(problem.initial):.4g}\n",
        "exact solution  known, 1 separable part\n",
        f"ssp-rk3, dt = {problem.stepper.dt:.4g}\n",
        "made by: PDE.discretize\n",
        "numpy: ",
        problem.content_hash,
    ]:
        assert fragment in output


@pytest.mark.filterwarnings("default")
def test_info_warns_of_a_build_without_the_best_kernels(cli, problem_file, monkeypatch):
    assert cli("info", "c2.h5").stderr == ""
    monkeypatch.setattr(environment._native, "missing_instruction_set", lambda: "avx512")
    shown = cli("info", "c2.h5")
    assert "no kernels for avx512, the best that this processor has" in shown.stderr


def test_info_shows_a_result_and_a_checkpoint(cli, problem, files):
    result = evolve(problem, until=0.1)
    output = cli("info", files["result"]).stdout
    for fragment in [
        "c2.result.h5, a result\n",
        "continuity-2d\n",
        "completed\n",
        f"{result.steps} of dt = ",
        f"L2 error        {problem.l2_error(result.u, result.t):.4g}\n",
        problem.content_hash,
    ]:
        assert fragment in output
    output = cli("info", files["checkpoint"]).stdout
    for fragment in [
        "c2.checkpoint.h5, a checkpoint\n",
        "0.1, the run is to end at 0.1\n",
        f"{result.steps} of dt = ",
        "float64\n",
        problem.content_hash,
    ]:
        assert fragment in output


def test_info_shortens_long_lists_of_terms(cli, folder, problem):
    many = dataclasses.replace(problem, terms=problem.terms * 10, exact=None)
    save_problem(folder / "many.h5", many)
    output = cli("info", "many.h5").stdout
    assert "20, constant in time\n" in output
    assert output.count("acts on") == 12
    assert "… and 8 more\n" in output
    assert "exact solution  not known\n" in output


def test_info_tells_constant_sources_from_none(cli, folder):
    save_problem(folder / "a.h5", make("advection-1d", level=2, degree=1))
    assert ", constant in time\ninitial state" in cli("info", "a.h5").stdout
    save_problem(folder / "b.h5", make("diffusion-1d", level=2, degree=1))
    assert "sources         2, varying in time\n" in cli("info", "b.h5").stdout
    save_problem(folder / "c.h5", make("pitch-angle-c", level=2, degree=1))
    assert "sources         none\n" in cli("info", "c.h5").stdout


def test_added_cells_are_shown_where_there_are_any(cli, refused, folder, problem, monkeypatch):
    """A mixed derivative on an adaptive grid; the gallery's problems have none."""
    x, y = Axis("x", 0, 1), Axis("y", -1, 1)
    pde = PDE([x, y], [div(x, 0.1) @ div(y, 0.1)], boundary="periodic", initial=1.0)
    grid = SparseGrid.custom([[16, 16], [31, 31]], [5, 5]).closed()
    mixed = pde.discretize(None, 1, grid, allow_ill_posed=True)
    assert mixed.num_added_cells == mixed.operator.num_added_cells > 0
    save_problem(folder / "mixed.h5", mixed)
    save_problem(folder / "plain.h5", problem)
    row = f" {mixed.num_added_cells}, which sweeps pass through beside the grid's\n"
    run = ["run", "--until", "1e-3", "--force"]
    for words in (["info"], ["validate"], run):
        output = cli(*words, "mixed.h5").stdout
        assert "\nadded cells " in output
        assert row in output
        assert "added cells" not in cli(*words, "plain.h5").stdout
    assert "added cells" not in cli("validate", "mixed.h5", "--operator", "batch").stdout
    assert json.loads(cli(*run, "mixed.h5", "--json").stdout)["added_cells"] == int(
        row.split(",")[0]
    )
    monkeypatch.setattr(sweep_hull, "_MAX_ADDED_PER_CELL", 0)
    monkeypatch.setattr(sweep_hull, "_MAX_ADDED_CELLS", 1)
    text = "terms[0] may pass through more than 1 cells"
    assert text in cli("info", "mixed.h5").stdout
    (folder / "mixed.result.h5").unlink()
    assert text in refused("validate", "mixed.h5")
    assert text in refused("run", "mixed.h5", "--until", "1e-3", "--quiet")


def test_what_a_file_says_cannot_steer_the_terminal(cli, folder, problem):
    save_problem(folder / "named.h5", dataclasses.replace(problem, name="a\x1b[2Jb"))
    for words in (["info", "named.h5"], ["validate", "named.h5"], ["run", "named.h5"]):
        result = cli(*words)
        assert "\x1b" not in result.output
        assert "a\\x1b[2Jb" in result.stdout


@pytest.mark.parametrize("kind", ["problem", "result", "checkpoint"])
def test_check_finds_sound_files_sound(cli, files, kind):
    assert cli("check", files[kind]).stdout == f"sound: {files[kind]} is a {kind} file\n"


def truncate(path):
    path.write_bytes(path.read_bytes()[:-700])


def empty(path):
    path.write_bytes(b"")


def write_text(path):
    path.write_text("no HDF5\n")


def change_a_number(path):
    with h5py.File(path, "r+") as file:
        values = file["initial" if "initial" in file else "u"]
        values[3] = values[3] + 1e-9


def put_nan(path):
    with h5py.File(path, "r+") as file:
        file["initial" if "initial" in file else "u"][3] = np.nan


def drop_a_dataset(path):
    with h5py.File(path, "r+") as file:
        del file["initial" if "initial" in file else "u"]


def write_other_file(path):
    with h5py.File(path, "w") as file:
        file["u"] = np.ones(3)


BREAKAGES = [
    truncate,
    empty,
    write_text,
    change_a_number,
    put_nan,
    drop_a_dataset,
    write_other_file,
]


@pytest.mark.parametrize("break_file", BREAKAGES)
def test_broken_files_are_found(cli, refused, folder, files, break_file):
    for name in files.values():
        path = folder / name
        break_file(path)
        output = cli("check", name, expect=1).stdout
        assert output.startswith("not sound: ")
        assert name in output
        assert output.count("\n") == 1
        assert name in refused("info", name, expect=3)
    assert "c2.h5" in refused("run", "c2.h5", "-o", "new.h5", "--force", expect=3)
    assert "c2.h5" in refused("validate", "c2.h5", expect=3)


def test_check_is_about_the_file_alone(cli, folder, files):
    """A sound checkpoint beside a broken one does not make it sound."""
    path = folder / files["checkpoint"]
    previous_path(path).write_bytes(path.read_bytes())
    truncate(path)
    assert cli("check", path, expect=1).stdout.startswith("not sound")
    assert cli("check", previous_path(path)).stdout.startswith("sound")


@pytest.mark.parametrize("command", ["info", "check"])
def test_a_missing_file_is_wrong_usage(refused, command):
    assert "nothing.h5 does not exist" in refused(command, "nothing.h5")


def test_info_takes_a_name_with_parameters(cli, refused):
    given, plain = (
        json.loads(cli("info", word, "--json").stdout)
        for word in ("landau-1x1v:k=0.4", "landau-1x1v")
    )
    assert given["parameters"] == {**plain["parameters"], "k": 0.4} != plain["parameters"]
    assert {**given, "parameters": None} == {**plain, "parameters": None}
    assert "no parameter of landau-1x1v" in refused("info", "landau-1x1v:q=1")
    assert "expected" in refused("info", "landau-1x1v:k=1e9")


def test_a_folder_is_not_sound(cli, folder):
    (folder / "sub").mkdir()
    assert "not sound" in cli("check", "sub", expect=1).stdout


def test_reading_changes_nothing(cli, folder, files):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in files.values():
        cli("check", name)
        cli("info", name)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_checkpoint_fields_are_read_with_distrust(cli, folder, files):
    from batchkron.storage import load_checkpoint

    checkpoint = load_checkpoint(folder / files["checkpoint"])
    save_checkpoint(folder / "odd.h5", dataclasses.replace(checkpoint, step=-1))
    assert "step" in cli("check", "odd.h5", expect=1).stdout


def test_make_is_what_check_reads(folder, cli):
    save_problem(folder / "d.h5", make("diffusion-2d", level=2, degree=1))
    assert "problem" in cli("check", "d.h5").stdout
