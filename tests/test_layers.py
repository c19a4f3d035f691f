"""Imports go down only, and importing batchkron loads nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# a module may import from layers below its own, and from its own package
LAYERS = {
    "batchkron.errors": 0,
    "batchkron.arrays": 0,
    "batchkron._core": 0,
    "batchkron.spec": 1,
    "batchkron.backends": 1,
    "batchkron.storage": 1,
    "batchkron.functions": 2,
    "batchkron.operators": 3,
    "batchkron": 3,  # the public names, as solvers and problems see them
    "batchkron.solvers": 4,
    "batchkron.problems": 4,
    "batchkron.cli": 5,
}


def module_files():
    for folder, package in [
        ("batchkron", "batchkron"),
        ("solvers", "batchkron.solvers"),
        ("problems", "batchkron.problems"),
    ]:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield path, ".".join([package, *[part for part in parts if part != "__init__"]])


MODULES = {module: path for path, module in module_files()}


def unit_of(module):
    """The longest prefix of the module's name that has a layer."""
    parts = module.split(".")
    while parts and ".".join(parts) not in LAYERS:
        parts.pop()
    return ".".join(parts)


def imports_of(path, module):
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                source = str(node.module)
            else:
                above = package[: len(package) - node.level + 1]
                source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{source}.{alias.name}"
                yield full if full in MODULES else source


@pytest.mark.parametrize(
    ("path", "module"), list(module_files()), ids=lambda value: str(value)[-60:]
)
def test_imports_go_down(path, module):
    own = unit_of(module)
    if module == "batchkron":
        return  # re-exports the public names
    for name in imports_of(path, module):
        if not name.startswith("batchkron") or (target := unit_of(name)) == own:
            continue
        allowed = LAYERS[target] < LAYERS[own] or (LAYERS[target] == LAYERS[own] <= 1)
        assert allowed, f"{module} imports {name}, which is not below it"
        if own in ("batchkron.solvers", "batchkron.problems"):
            places = ("batchkron.backends.cpu", "batchkron.backends.cuda")
            assert not name.startswith(places), f"{module} imports a backend"
            assert target not in ("batchkron.solvers", "batchkron.problems")


def test_only_native_imports_the_compiled_module():
    users = [m for m, path in MODULES.items() if "batchkron._core" in set(imports_of(path, m))]
    assert users == ["batchkron.backends.cpu.native"]


def test_only_one_module_imports_cupy():
    users = [
        m
        for m, path in MODULES.items()
        if any(n.split(".")[0] == "cupy" for n in imports_of(path, m))
    ]
    assert users == ["batchkron.backends.cuda.runtime.device"]


def test_importing_batchkron_loads_nothing_heavy():
    script = (
        "import sys, batchkron, batchkron.solvers, batchkron.problems\n"
        "heavy = {'cupy', 'torch', 'mpi4py', 'matplotlib', 'click', 'tqdm'}\n"
        "sys.exit(repr(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
