"""What a command loads, completion, and names that are known without their libraries."""

import json
import os
import subprocess
import sys

import pytest

from batchkron.cli.arguments.known_names import GALLERY, PRECONDITIONERS, SOLVERS, STEPPERS
from batchkron.problems import gallery, save_problem
from batchkron.solvers import EvolveStatus, preconditioners, steppers
from batchkron.solvers.steppers.linear_solver import solver_names

SCRIPT = """
import json, os, sys
from batchkron.cli import main
words = json.loads(os.environ["WORDS"])
try:
    main(words, prog_name="batchkron")
except SystemExit as end:
    status = end.code
print(json.dumps([status, len(sys.modules), "numpy" in sys.modules]), file=sys.stderr)
"""


def loaded(*words, **environment):
    """Run a command; return its output, its status, the modules it loads, and whether NumPy is."""
    environment = {**os.environ, "WORDS": json.dumps(words), **environment}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment
    )
    return done.stdout, *json.loads(done.stderr.splitlines()[-1])


def completed(*words):
    """Return what the shell gets for a line that ends with the last word."""
    line = {"COMP_WORDS": " ".join(["batchkron", *words]), "COMP_CWORD": str(len(words))}
    output, _, _, has_numpy = loaded(_BATCHKRON_COMPLETE="bash_complete", **line)
    return [line.partition(",")[2] for line in output.splitlines()], has_numpy


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["list"], ["run", "--help"], ["make", "--help"]]
)
def test_help_and_the_gallery_need_no_numerical_library(words):
    output, status, modules, has_numpy = loaded(*words)
    assert (status, has_numpy) == (0, False)
    assert output
    alone = subprocess.run(
        [sys.executable, "-c", "import click, sys; print(len(sys.modules))"],
        capture_output=True,
        text=True,
    )
    more = 110 if words == ["list"] else 70  # the list looks for plugins by importlib.metadata
    assert modules < int(alone.stdout) + more


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (["r"], ["run"]),
        (["c"], ["converge", "check"]),
        (["run", "landau-1x"], ["landau-1x1v", "landau-1x2v", "landau-1x3v"]),
        (["make", "diffusion-3d-"], ["diffusion-3d-neumann"]),
        (["info", "bgk"], ["bgk-1x1v"]),
        (["converge", "advection-d"], ["advection-diffusion-2d"]),
        (["run", "continuity-1d", "--step"], ["--stepper"]),
        (["run", "continuity-1d", "--stepper", "ssp"], ["ssp-rk3", "ssp-rk2", "ssp-rk43"]),
        (["run", "x.h5", "--preconditioner", "block"], ["block-jacobi"]),
        (["run", "x.h5", "--solver", "f"], ["fgmres"]),
    ],
)
def test_completion(words, some):
    found, has_numpy = completed(*words)
    assert (found, has_numpy) == (some, False)


def test_completion_has_problem_files(problem):
    save_problem("continuity.h5", problem)
    save_problem("other.h5", problem)
    assert "continuity.h5" in completed("run", "cont")[0]
    assert completed("run", "oth")[0] == ["other.h5"]


def test_known_names_are_those_of_the_libraries():
    assert dict(GALLERY) == {name: gallery.get(name).equation for name in gallery.names()}
    assert tuple(GALLERY) == gallery.names()
    assert steppers.names() == STEPPERS
    assert preconditioners.names() == PRECONDITIONERS
    assert (*solver_names(), "krylov", "kronecker", "auto") == SOLVERS


@pytest.mark.usefixtures("problem_file")
def test_json_of_commands(cli, folder):
    listed = json.loads(cli("list", "--json").stdout)["problems"]
    assert [one["name"] for one in listed] == list(GALLERY)
    parameters = {one["name"]: one["parameters"] for one in listed}
    assert parameters["landau-1x1v"]["k"] == 0.5
    made = json.loads(cli("make", "continuity-1d", "--level", 3, "-o", "a.h5", "--json").stdout)
    info = json.loads(cli("info", "a.h5", "--json").stdout)
    assert made["file"] == "a.h5"
    assert info["content_hash"] == made["content_hash"]
    assert (made["cells"], made["unknowns"]) == (8, 8 * (made["degree"] + 1))
    sound = json.loads(cli("check", "c2.h5", "--json").stdout)
    assert sound == {"file": "c2.h5", "sound": True, "kind": "problem", "fault": None}
    (folder / "bad.h5").write_bytes((folder / "c2.h5").read_bytes()[:-100])
    broken = json.loads(cli("check", "bad.h5", "--json", expect=1).stdout)
    assert (broken["sound"], broken["kind"]) == (False, None)
    assert "bad.h5" in broken["fault"]
    report = json.loads(cli("validate", "c2.h5", "--json").stdout)
    assert report["ok"] is True
    assert 0 < report["max_error_over_bound"] <= 1


def test_info_of_a_name_of_the_gallery_shows_its_parameters(cli):
    lines = cli("info", "landau-1x1v").stdout.splitlines()
    rows = {line.split("  ")[0]: line for line in lines}
    assert "k=0.5" in rows["parameters"]
    assert "k from 1e-06 to 1e+06" in rows["ranges"]
    found = json.loads(cli("info", "landau-1x1v", "--json").stdout)
    entry = gallery.get("landau-1x1v")
    assert found["parameters"] == dict(entry.parameters)
    assert found["stepper"] == entry.method


@pytest.mark.usefixtures("problem_file")
def test_method_is_another_name_of_stepper(cli):
    for option in ("--stepper", "--method"):
        run = ["run", "c2.h5", option, "rk4", "--until", "0.01", "--json", "--force"]
        assert json.loads(cli(*run).stdout)["stepper"] == "rk4"


@pytest.mark.usefixtures("problem_file")
def test_two_methods_are_refused(cli, refused):
    both = ["run", "c2.h5", "--method", "rk4", "--stepper"]
    assert "'rk4' and 'ssp-rk3' are given" in refused(*both, "ssp-rk3")
    same = cli(*both, "rk4", "--until", "0.01", "--json", "--force")
    assert json.loads(same.stdout)["stepper"] == "rk4"


@pytest.mark.usefixtures("problem_file")
def test_unknown_names_of_options_say_what_may_be_meant(refused):
    assert "Did you mean ssp-rk3" in refused("run", "c2.h5", "--stepper", "ssp_rk3")
    assert "Did you mean block-jacobi?" in refused(
        "run", "c2.h5", "--preconditioner", "blockjacobi"
    )


@pytest.mark.usefixtures("problem_file")
def test_the_documentation_has_all_keys_and_statuses(cli, pytestconfig):
    page = (pytestconfig.rootpath / "docs" / "reference" / "command-line.md").read_text()
    table = page.split("**JSON.**")[1].split("**Pictures.**")[0]
    found = json.loads(cli("run", "c2.h5", "--until", "0.01", "--json").stdout)
    missing = [key for key in found if f"`{key}`" not in table]
    missing += [str(status) for status in EvolveStatus if f"`{status}`" not in table]
    assert not missing
