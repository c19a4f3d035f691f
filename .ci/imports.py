"""Which files of the tree import or include which, read from the code; nothing is imported."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = {  # folder: the name that it is installed by
    "batchkron": "batchkron",
    "solvers": "batchkron.solvers",
    "problems": "batchkron.problems",
}


def python_modules(root=ROOT):
    """Return the file of each module; a folder's ``__init__`` has the folder's name."""
    found = {}
    for folder, package in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            found[".".join([package, *[part for part in parts if part != "__init__"]])] = path
    return found


def imports_of(path, module, modules):
    """Yield what a file imports at any place: at the top, in functions, for types only.

    What an ``__init__`` imports for types alone is left out: packages that load on first use.
    """
    package = module.split(".") if path.stem == "__init__" else module.split(".")[:-1]
    tree = ast.parse(path.read_text())
    if path.stem == "__init__":
        tree.body = [node for node in tree.body if not isinstance(node, ast.If)]
    for node in ast.walk(tree):
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
                yield full if full in modules else source


def python_imports(modules):
    """Return which modules each module imports, in its type stub too.

    A folder's ``__init__`` has this name at its end here, to be a file beside the others.
    """
    names = {
        module: f"{module}.__init__" if path.name == "__init__.py" else module
        for module, path in modules.items()
    }
    found = {name: set() for name in names.values()}
    for module, path in modules.items():
        stub = path.with_suffix(".pyi")
        for source in [path, stub] if stub.exists() else [path]:
            imported = {
                names[name] for name in imports_of(source, module, modules) if name in names
            }
            found[names[module]] |= imported - {names[module]}
    return found


def csrc_includes(root=ROOT):
    """Return which files of csrc each includes, as dotted names from ``csrc``.

    Includes between #if and #endif are left out: krylov/ includes the scalars of cuda/ or of simd/,
    depending on whether it is compiled for a device or for the host.
    """
    csrc = root / "csrc"
    files = {path for path in csrc.rglob("*") if path.suffix in (".hpp", ".cpp", ".cuh", ".cu")}

    def name(path):
        return ".".join(["csrc", *path.relative_to(csrc).parts[:-1], path.name.replace(".", "_")])

    found = {}
    for path in sorted(files):
        quoted, conditions = [], 0
        for directive, file in re.findall(
            r'^\s*#\s*(if|endif|include)\w*(?:\s+"([^"]+)")?', path.read_text(), re.MULTILINE
        ):
            conditions += {"if": 1, "endif": -1, "include": 0}[directive]
            if file and not conditions:
                quoted.append(file)
        places = [(folder / file).resolve() for file in quoted for folder in (csrc, path.parent)]
        found[name(path)] = {name(place) for place in places if place in files} - {name(path)}
    return found


def siblings(folder, imports):
    """Return which files and folders of a folder import which others there, and by what modules.

    An import between two modules belongs to the deepest folder that holds both. It is an edge
    between the two entries of that folder that are, or contain, these modules.
    """
    start = folder.split(".")
    edges = {}
    for module, imported in imports.items():
        for other in sorted(imported):
            a, b = module.split("."), other.split(".")
            depth = next(k for k in range(len(a)) if a[k] != b[k])
            if a[:depth] == start:
                edges.setdefault((a[depth], b[depth]), (module, other))
    return edges
