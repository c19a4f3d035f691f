"""Public names load on first use: what importing costs, and what `dir` and `help` show."""

import json
import os
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import batchkron as bk
import batchkron.problems
from batchkron import public_names
from batchkron.problems import public_names as problem_names


def run_script(script):
    """Return what a script prints as JSON, in a process of its own."""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def modules_of(statement):
    """The names of the modules that a statement loads."""
    return set(run_script(f"import json, sys\n{statement}\nprint(json.dumps(list(sys.modules)))"))


def test_importing_loads_no_numerical_library():
    assert not {"numpy", "scipy", "h5py"} & modules_of("import batchkron, batchkron.problems")


def test_products_load_what_sparse_linear_algebra_loads():
    """Beyond scipy.sparse.linalg, only modules of batchkron itself, and the standard library."""
    more = modules_of("import batchkron; batchkron.gekmm") - modules_of(
        "import scipy.sparse.linalg"
    )
    foreign = {name.split(".")[0] for name in more} - set(sys.stdlib_module_names)
    assert foreign == {"batchkron"}


def test_problems_and_solvers_load_no_splines_and_quadrature():
    loaded = modules_of("import batchkron as bk\nbk.problems.PDE, bk.solvers.evolve")
    assert "batchkron.problems.pde" in loaded
    heavy = {"fft", "integrate", "interpolate", "optimize", "spatial", "special"}
    assert not {f"scipy.{name}" for name in heavy} & loaded


@pytest.mark.parametrize("statement", ["import batchkron", "from batchkron.solvers import evolve"])
def test_sources_without_a_core_say_where_to_go(tmp_path, statement):
    """What a newcomer meets who starts Python in the folder of the sources."""
    sources = tmp_path / "batchkron"
    sources.mkdir()
    for path in Path(bk.__file__).parent.glob("*.py"):
        (sources / path.name).write_text(path.read_text())
    environment = {**os.environ, "PYTHONSAFEPATH": ""}
    run = subprocess.run(
        [sys.executable, "-c", statement],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    last = run.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {sources} has no compiled core")
    assert last.endswith("Start it in another folder, or as python -P")


@pytest.mark.parametrize("name", ["problems", "solvers", "distributed", "kronecker_sparse"])
def test_packages_load_on_first_use(name):
    script = f"import json, batchkron as bk\nprint(json.dumps(bk.{name}.__name__))"
    assert run_script(script) == f"batchkron.{name}"


@pytest.mark.parametrize(
    ("package", "names", "inner"),
    [
        (bk, public_names, ["distributed", "kronecker_sparse", "problems", "solvers", "storage"]),
        (bk.problems, problem_names, []),
    ],
)
def test_dir_shows_public_names_only(package, names, inner):
    shown = [name for name in dir(package) if not name.startswith("_")]
    frameworks = {"jax", "linear_operator", "torch"}
    assert set(shown) - frameworks == {*names.__all__, *inner}
    assert all(getattr(package, name) is getattr(names, name) for name in names.__all__)
    assert package.__all__ == names.__all__


def test_dir_shows_frameworks_that_are_installed():
    script = (
        "import importlib.util, json, batchkron.lazy as lazy\n"
        "lazy.find_spec = lambda name: name == 'jax'\n"
        "import batchkron as bk\nprint(json.dumps(dir(bk)))"
    )
    shown = run_script(script)
    assert "jax" in shown
    assert "torch" not in shown


def test_names_that_are_not_there():
    with pytest.raises(AttributeError, match="'batchkron' has no attribute 'gekm'"):
        bk.gekm  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Pde'"):
        from batchkron.problems import Pde  # noqa: F401


def test_a_star_import_has_the_public_names():
    script = "import json\nfrom batchkron import *\nprint(json.dumps(sorted(globals())))"
    assert set(public_names.__all__) <= set(run_script(script))


def test_help_begins_with_a_screen_that_points_to_the_pages(pytestconfig):
    lines = bk.__doc__.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    assert pydoc.plain(pydoc.render_doc(bk)).splitlines()[4].strip() in lines[0]
    for page in ["tutorials/quickstart.md", "README.md", "reference/python-api.md"]:
        assert f"docs/{page}" in bk.__doc__
        assert (pytestconfig.rootpath / "docs" / page).exists()
    for line in lines[2:7]:
        for word in line.replace(";", ",").split(","):
            name = word.split()[-1].removesuffix(")") if word.split() else ""
            if name.startswith("Kron") or name.startswith("batched_"):
                assert name in bk.__all__
