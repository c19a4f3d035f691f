"""Imports go to lower layers without cycles, and importing batchkron loads nothing heavy."""

import ast
import runpy
import subprocess
import sys
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]

# a module may import from layers below its own, and from its own package
LAYERS = {
    "batchkron.errors": 0,
    "batchkron._core": 0,
    "batchkron.attributes": 0,
    "batchkron.callers": 0,
    "batchkron.lazy": 0,
    "batchkron.log": 0,
    "batchkron.names": 0,
    "batchkron.plugins": 1,
    "batchkron.config": 0,
    "batchkron.arrays": 1,
    "batchkron.datasets": 1,
    "batchkron.figures": 1,
    "batchkron.analysis": 2,
    "batchkron.spec": 2,
    "batchkron.storage": 2,
    "batchkron.backends": 3,
    "batchkron.array_kinds": 4,
    "batchkron.functions": 5,
    "batchkron.operators": 6,
    "batchkron.public_names": 6,
    "batchkron": 6,  # the public names, as solvers and problems see them
    "batchkron.distributed": 7,
    "batchkron.jax": 7,
    "batchkron.kronecker_sparse": 7,
    "batchkron.solvers": 7,
    "batchkron.problems": 7,
    "batchkron.torch": 7,
    "batchkron.cli": 8,
    "batchkron.linear_operator": 8,
}

# modules of backends/cuda that import runtime/device, even indirectly; the others need no CuPy
NEEDS_A_DEVICE = {
    "backend",
    "batch.bound_list",
    "batch.gemm",
    "batch.list_calls",
    "batch.plan",
    "batch.tuned",
    "diagonal.plan",
    "exchange.copies",
    "exchange.nccl",
    "exchange.peers",
    "explicit.plan",
    "formula.plan",
    "gram.gradients",
    "gram.plan",
    "interface.device",
    "interpolated.plan",
    "kron.function_calls",
    "kron.plan",
    "kron.program",
    "kron.tuned",
    "kron_sparse.chain_plan",
    "kron_sparse.function_calls",
    "kron_sparse.launches",
    "kron_sparse.plan",
    "kron_sparse.tuned",
    "kron_sum.plan",
    "kron_sum.triangular_plan",
    "krylov.passes",
    "kernel_launch",
    "runtime.calls",
    "runtime.device",
    "runtime.launch",
    "runtime.plan",
    "runtime.recorder",
    "runtime.repeated_work",
    "segmented.plan",
    "step_sums.plan",
    "tuning.compiler_process",
    "tuning.trials",
    "vector_sum.plan",
}

READ = SimpleNamespace(**runpy.run_path(str(ROOT / ".ci" / "imports.py")))
MODULES = READ.python_modules()
IMPORTS = READ.python_imports(MODULES)
INCLUDES = READ.csrc_includes()


def unit_of(module):
    """The longest prefix of the module's name that has a layer."""
    parts = module.split(".")
    while parts and ".".join(parts) not in LAYERS:
        parts.pop()
    return ".".join(parts)


def imports_of(module):
    """What a module imports, of batchkron and others."""
    return READ.imports_of(MODULES[module], module, MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down(module):
    own = unit_of(module)
    if module in ("batchkron", "batchkron.public_names"):
        return  # re-export the public names
    for name in imports_of(module):
        if not name.startswith("batchkron") or (target := unit_of(name)) == own:
            continue
        assert LAYERS[target] < LAYERS[own], f"{module} imports {name}, which is not below it"
        if own in ("batchkron.solvers", "batchkron.problems"):
            places = ("batchkron.backends.cpu", "batchkron.backends.cuda")
            assert not name.startswith(places), f"{module} imports a backend"
            assert target not in ("batchkron.solvers", "batchkron.problems")


def test_other_packages_know_the_cuda_backend_by_its_interface():
    cuda = "batchkron.backends.cuda"
    faults = [
        f"{module} imports {name}"
        for module in MODULES
        if not module.startswith("batchkron.backends")
        for name in imports_of(module)
        if f"{name}.".startswith(f"{cuda}.") and not name.startswith(f"{cuda}.interface.")
    ]
    assert not faults


def test_every_folder_has_a_layer():
    assert {unit_of(module) for module in MODULES} == set(LAYERS) - {"batchkron._core"}
    folders = {module.split(".")[1] for module in MODULES if "." in module}
    assert folders <= {layer.removeprefix("batchkron.") for layer in LAYERS}


def folders(files):
    """All folders of dotted names."""
    return sorted({file[:end] for file in files for end, at in enumerate(file) if at == "."})


def shortest_circle(edges):
    """The edges of the shortest cycle of a directed graph; [] if there is none."""
    after = {}
    for a, b in edges:
        after.setdefault(a, []).append(b)
    circles = []
    for start in after:
        ways, queue = {start: [start]}, deque([start])
        while queue:
            for b in after.get(here := queue.popleft(), ()):
                if b == start:
                    circles.append(ways[here])
                elif b not in ways:
                    ways[b] = [*ways[here], b]
                    queue.append(b)
    if not circles:
        return []
    circle = min(circles, key=len)
    return list(zip(circle, [*circle[1:], circle[0]], strict=True))


@pytest.mark.parametrize("folder", folders([*IMPORTS, *INCLUDES]))
def test_no_circle_of_files_or_folders(folder):
    """Imports in functions count, too; each is an edge between two entries of a folder."""
    edges = READ.siblings(folder, INCLUDES if folder.startswith("csrc") else IMPORTS)
    lines = [
        f"  {a} -> {b}: {edges[a, b][0]} imports {edges[a, b][1]}"
        for a, b in shortest_circle(edges)
    ]
    assert not lines, "\n".join([f"a circle in {folder}:", *lines])


def test_circles_are_found():
    edges = dict.fromkeys([("a", "b"), ("b", "c"), ("c", "d"), ("d", "b"), ("d", "a")])
    assert sorted(shortest_circle(edges)) == [("b", "c"), ("c", "d"), ("d", "b")]
    assert shortest_circle({("a", "b"): None, ("a", "c"): None, ("b", "c"): None}) == []


def test_nobody_imports_the_face_of_its_own_folder():
    """A folder's ``__init__`` is above its contents."""
    faults = [
        f"{module} imports {other}"
        for module, imported in IMPORTS.items()
        for other in imported
        if other.endswith(".__init__") and other != "batchkron.__init__"  # see LAYERS
        if module.startswith(other.removesuffix("__init__"))
    ]
    assert not faults


@pytest.mark.parametrize("module", MODULES)
def test_imports_are_relative_where_the_folder_is_installed_elsewhere(module):
    """solvers/ is installed as batchkron.solvers: editors follow only relative imports there."""
    places = ("batchkron.solvers", "batchkron.problems")
    home = next((place for place in places if f"{module}.".startswith(f"{place}.")), None)
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom):
            if home is None:
                assert node.level == 0, f"{module}, line {node.lineno}: a relative import"
            else:
                own = f"{node.module}.".startswith(f"{home}.")
                assert node.level or not own, f"{module}, line {node.lineno}: an absolute import"


def test_only_native_imports_the_compiled_module():
    users = [m for m in MODULES if "batchkron._core" in set(imports_of(m))]
    assert users == ["batchkron.backends.cpu.native"]


def test_only_one_module_imports_cupy():
    users = [m for m in MODULES if any(n.split(".")[0] == "cupy" for n in imports_of(m))]
    assert users == ["batchkron.backends.cuda.runtime.device"]


def test_only_one_module_imports_mpi4py():
    users = [m for m in MODULES if any(n.split(".")[0] == "mpi4py" for n in imports_of(m))]
    assert users == ["batchkron.distributed.communication.mpi"]


@pytest.mark.parametrize(
    ("package", "folders"),
    [
        ("torch", ("batchkron.torch.", "batchkron.linear_operator.")),
        ("linear_operator", ("batchkron.linear_operator.",)),
        ("gpytorch", ("batchkron.linear_operator.",)),
    ],
)
def test_packages_are_imported_in_their_folders_only(package, folders):
    users = [m for m in MODULES if any(n.split(".")[0] == package for n in imports_of(m))]
    assert users
    assert all(f"{m}.".startswith(folders) for m in users)


def test_only_one_folder_imports_jax():
    names = {"equinox", "jax", "lineax"}
    users = [m for m in MODULES if any(n.split(".")[0] in names for n in imports_of(m))]
    assert users, "batchkron.jax"
    assert all(f"{m}.".startswith("batchkron.jax.") for m in users)


def test_planners_need_no_cupy():
    cuda = [m for m in MODULES if m.startswith("batchkron.backends.cuda")]
    above = {"batchkron.backends.cuda.runtime.device"}
    while more := {m for m in cuda if above.intersection(imports_of(m))} - above:
        above |= more
    assert {m.removeprefix("batchkron.backends.cuda.") for m in above} == NEEDS_A_DEVICE
    script = (
        "import importlib, sys\n"
        "sys.modules['cupy'] = None  # as if it were not installed\n"
        f"for name in {sorted(set(cuda) - above)}:\n"
        "    importlib.import_module(name)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_importing_batchkron_loads_nothing_heavy():
    script = (
        "import sys, batchkron as bk\n"
        "bk.gekmm, bk.solvers.evolve, bk.problems.PDE, bk.distributed.distribute\n"
        "heavy = {'cupy', 'torch', 'linear_operator', 'gpytorch', 'jax', 'mpi4py', 'matplotlib',"
        " 'xarray', 'click', 'tqdm'}\n"
        "sys.exit(repr(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_picture_of_the_structure_is_up_to_date(tmp_path):
    pictures = ROOT / "docs" / "pictures"
    drawn = tmp_path / "structure.svg"
    subprocess.run([sys.executable, str(pictures / "draw_structure.py"), str(drawn)], check=True)
    same = drawn.read_text() == (pictures / "structure.svg").read_text()
    assert same, "folders or their imports have changed: run docs/pictures/draw_structure.py"
