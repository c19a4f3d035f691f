"""Entry points of other distributions: steppers, preconditioners and problems of the gallery."""

import json
import os
import subprocess
import sys
import tomllib

import pytest

BROKEN = {
    "batchkron.steppers": {
        "rk4": "not_there:RK4",  # batchkron's own wins, so that this one is never loaded
        "no-module": "not_there:STEPPER",
        "no-stepper": "json:loads",
    },
    "batchkron.problems": {"no-problem": "not_there:ENTRY"},
}


def install(folder, name, groups):
    """Write what pip writes of a distribution: its name and its entry points."""
    place = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (place / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{one} = {value}\n" for one, value in entries.items())
            for group, entries in groups.items()
        )
    )


@pytest.fixture
def site(tmp_path, pytestconfig):
    """A folder with the example's distribution, as installed, and one that is broken."""
    source = pytestconfig.rootpath / "examples" / "plugin"
    module = "batchkron_example_plugin.py"
    (tmp_path / module).write_text((source / module).read_text())
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    install(tmp_path, project["name"], project["entry-points"])
    install(tmp_path, "broken-plugin", BROKEN)
    return tmp_path


def run(site, *words):
    """Run Python with a site of plugins."""
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "always"}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, cwd=site
    )


def test_names_of_plugins_are_as_good_as_own_ones(site):
    script = """
import json, warnings
import numpy as np
import batchkron as bk
from batchkron.problems import gallery, make
from batchkron.solvers import evolve, preconditioners, steppers
stepper = steppers.get("ralston3")
problem = make("travelling-wave", level=5, speed=2.0, method="ralston3", until=0.5, dt=2e-3)
result = evolve(problem)
error = float(np.abs(result.u - problem.initial).max())
implicit = make("diffusion-1d", level=3)
solved = evolve(implicit, until=0.01, dt=0.005, method="backward-euler", preconditioner="diagonal")
A = bk.KroneckerProduct([np.diag([1.0, 2.0])])
M = preconditioners.make("diagonal", A, 0.25).to_dense().tolist()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found = [steppers.names()[-1], preconditioners.names()[-1], gallery.names()[-1]]
    found += [steppers.get("rk4").__module__]
print(json.dumps({"order": stepper.order, "error": error, "status": str(solved.status), "M": M,
                  "names": found, "warnings": [str(one.message) for one in caught]}))
"""
    done = run(site, "-c", script)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["order"] == 3
    assert found["error"] < 1e-3  # after one period
    assert found["status"] == "completed"
    assert found["M"] == [[1 / 0.75, 0.0], [0.0, 2.0]]
    assert found["names"] == [
        "ralston3",
        "diagonal",
        "travelling-wave",
        "batchkron.solvers.steppers.rk4",
    ]
    texts = sorted(found["warnings"])
    assert len(texts) == 3, texts
    assert texts[0].startswith(
        "'no-module' of broken-plugin (batchkron.steppers: not_there:STEPPER)"
    )
    assert "ModuleNotFoundError" in texts[0]
    assert "(batchkron.problems: not_there:ENTRY)" in texts[1]
    assert "expected a Tableau or a subclass of Stepper" in texts[2]


def test_a_broken_plugin_does_not_disturb_other_names(site):
    script = """
import warnings
warnings.simplefilter("error")
from batchkron.problems import make
from batchkron.solvers import evolve
print(evolve(make("continuity-1d", level=2, degree=1), until=0.1).status)
"""
    done = run(site, "-c", script)
    assert (done.stdout, done.stderr) == ("completed\n", "")
    missing = run(site, "-c", "from batchkron.solvers import steppers; steppers.get('no-module')")
    assert missing.returncode == 1
    assert "'no-module' of broken-plugin" in missing.stderr
    assert "ValueError: method is 'no-module'; expected one of forward-euler" in missing.stderr
    assert "ralston3" in missing.stderr


def test_the_command_knows_plugins(site):
    listed = run(site, "-m", "batchkron.cli", "list")
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.splitlines()[-1].split("  ")[0] == "travelling-wave"
    options = ["--stepper", "ralston3", "--until", "0.1", "--level", "3", "--json"]
    done = run(site, "-m", "batchkron.cli", "run", "travelling-wave:speed=0.5", *options)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stepper"] == "ralston3"


@pytest.mark.parametrize("name", ["no-module", "no-stepper"])
def test_the_command_explains_steppers_that_do_not_load(site, name):
    make = ["make", "continuity-1d", "--level", "2", "-o", "w.h5"]
    assert run(site, "-m", "batchkron.cli", *make).returncode == 0
    for options in ((), ("--dt", "0.01")):
        failed = run(site, "-m", "batchkron.cli", "run", "w.h5", "--method", name, *options)
        assert failed.returncode == 2, failed.stderr
        *warned, last = failed.stderr.splitlines()
        assert f"batchkron: warning: '{name}' of broken-plugin" in "\n".join(warned)
        assert "Traceback" not in failed.stderr
        assert last.startswith(f"batchkron: method is '{name}'; expected one of forward-euler")


def test_the_command_loads_no_plugin_that_is_not_asked_for(site):
    done = run(
        site, "-m", "batchkron.cli", "run", "continuity-1d", "--level", "2", "--until", "0.1"
    )
    assert (done.returncode, done.stderr.count("not_there")) == (0, 0), done.stderr
    for word in ("no-problem", "no-problem:k=1"):
        failed = run(site, "-m", "batchkron.cli", "run", word)
        assert failed.returncode == 2
        first, last = failed.stderr.splitlines()
        assert first.startswith("batchkron: warning: 'no-problem' of broken-plugin")
        assert last.startswith("batchkron: the gallery has no 'no-problem'; it has continuity-1d")
