"""What benchmarks and GPU tests import of the source is there, also where CuPy is needed."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Where packages of the source are found; the longest name that fits counts.
FOLDERS = {
    "benchmarks": ROOT / "benchmarks",
    "batchkron": ROOT / "batchkron",
    "batchkron.solvers": ROOT / "solvers",
    "batchkron.problems": ROOT / "problems",
}
FILES = sorted([*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "tests" / "gpu").rglob("*.py")])


def file_of(module):
    """The file of a module of the source, or None."""
    parts = module.split(".")
    for count in range(len(parts), 0, -1):
        folder = FOLDERS.get(".".join(parts[:count]))
        if folder:
            place = folder.joinpath(*parts[count:])
            return next(
                (p for p in (place / "__init__.py", place.with_suffix(".py")) if p.exists()), None
            )
    return None


def names_in(path):
    """All names that a module binds anywhere, also by ``from .public_names import *``."""
    lazy = path.with_name("public_names.py")
    if path.name == "__init__.py" and lazy.exists():
        yield from names_in(lazy)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)


def missing(path):
    """What a file imports of the source that is not there."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or node.level or node.module is None:
            continue
        if node.module.split(".")[0] not in FOLDERS or node.module == "batchkron._core":
            continue
        home = file_of(node.module)
        if home is None:
            yield node.module
            continue
        known = set(names_in(home))
        for alias in node.names:
            if alias.name not in known and not file_of(f"{node.module}.{alias.name}"):
                yield f"{node.module}.{alias.name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_are_there(path):
    assert not list(missing(path))


def test_what_is_missing_is_seen(tmp_path):
    path = tmp_path / "some.py"
    path.write_text(
        "from benchmarks.nowhere import x\nfrom batchkron import KroneckerProduct, nothing\n"
    )
    assert list(missing(path)) == ["benchmarks.nowhere", "batchkron.nothing"]


def imported_by(path):
    """The files of the benchmarks that one of them imports, also inside of functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            homes = {file_of(name) for name in names if name.startswith("benchmarks.")}
            yield from (home for home in homes if home and home.name != "__init__.py")


def circle(graph):
    """A circle of a graph as a path, or nothing."""
    done, way = set(), []

    def visit(place):
        if place in way:
            return [*way[way.index(place) :], place]
        if place in done:
            return []
        way.append(place)
        found = next((one for other in sorted(graph[place]) if (one := visit(other))), [])
        way.pop()
        done.add(place)
        return found

    return next((found for place in sorted(graph) if (found := visit(place))), [])


def test_benchmarks_import_in_no_circle():
    folder = ROOT / "benchmarks"
    graph = {path: set(imported_by(path)) for path in folder.rglob("*.py")}
    assert circle(graph) == []
    core = folder / "core"
    outside = {other for path in core.glob("*.py") for other in graph[path]}
    assert all(other.parent == core for other in outside)


def test_a_circle_is_found():
    assert circle({1: {2}, 2: {3}, 3: {2}}) == [2, 3, 2]
    assert circle({1: {2, 3}, 2: {3}, 3: set()}) == []
