"""The tables of docs/results/gpu.md, made of what a run has written.

Which cases a table has, and in which order, is the page's. Without a page it prints what was
profiled. Tables of parts that were not run, other ones and the text stay as they are.
"""

import json
import sys
from itertools import groupby
from pathlib import Path

from benchmarks.core.tables import table
from benchmarks.gpu.profiling import profile_table
from benchmarks.gpu.report import ratio, shown

DTYPES = {"f32": "float32", "f64": "float64", "tf32x3": "tf32x3", "tf32": "tf32"}


def _time(entry):
    return shown(None if entry is None else entry.get("microseconds"))


def _recorded(cell, name):
    time = cell["recorded"].get(name)
    return " to ".join(f"{one:g}" for one in time) if isinstance(time, list) else shown(time)


def _twice(columns):
    """The head of columns for both dtypes."""
    return f"f32, {columns}, f64, {columns}"


# What a column shows of a cell; those named after a dtype begin the columns of that dtype.
COLUMNS = {
    "goal": lambda cell: shown(cell["goal"]),
    "cuBLAS": lambda cell: _time(cell["peers"].get("cuBLAS")),
    "FastKron": lambda cell: _recorded(cell, "FastKron"),
    "ASGarD": lambda cell: _recorded(cell, "ASGarD"),
    "function": lambda cell: _time(cell["function"]),
    "owner": lambda cell: _time(cell["owner"]),
    # a multiple of the floor, where that is longer than a launch
    "× floor": lambda cell: ratio(cell["ours_over_floor"]) if cell["floor"] >= 1 else "–",
    "× best peer": lambda cell: ratio(1 / cell["ours_over_best_peer"]),
    "CPU": lambda cell: _time(next(iter(cell["peers"].values()))),
    "of floor": lambda cell: f"{100 / cell['ours_over_floor']:.0f} %",
    "note": lambda cell: str(cell["note"]),
    "by functions": lambda cell: ratio(cell["factor_of_functions"]),
    "published": lambda cell: ratio(cell.get("published_factor")),
    "float32": lambda cell: _time(cell["peers"]["full"]),
}
# The parts of a run that tables are of, by the heads of these.
TABLES = {
    f"rows: factors, {_twice('goal, cuBLAS, FastKron, × floor')}": "kron",
    "rows: factors, tf32x3, goal, tf32, float32": "precision",
    f"(d, n), {_twice('goal, ASGarD, × floor')}": "batch",
    f"(d, n), {_twice('function, owner, ASGarD, × floor')}": "atomic",
    f"(d, n), unknowns, {_twice('goal')}": "small batch",
    f"list, {_twice('goal, × floor')}": "list",
    f"product, {_twice('TB/s, × best peer')}": "explicit",
    f"right-hand side, {_twice('CPU, of floor')}, note": "sweeps",
    f"rows: factors, {_twice('by functions')}, published": "ablation",
}
CALLS = "operator, one row, eager call, in a graph"


def main(arguments):
    if len(arguments) not in (1, 2):
        raise SystemExit("usage: python -m benchmarks.gpu.tables RESULTS.json [PAGE.md]")
    cells = json.loads(Path(arguments[0]).read_text())["cells"]
    if len(arguments) == 1:
        print("\n".join(profile_table(cells)))
    else:
        page = Path(arguments[1])
        page.write_text(with_tables(page.read_text(), cells))


def with_tables(text, cells):
    """A page whose tables have the figures of these cells."""
    found = []
    for is_table, group in groupby(text.splitlines(), lambda line: line.startswith("|")):
        lines = list(group)
        found += new_table(lines, cells) if is_table else lines
    return "\n".join(found) + "\n"


def new_table(lines, cells):
    """A table with the figures of these cells, or as it is where it is not of this run."""
    head, _, *rows = ([text.strip() for text in line.strip("|").split("|")] for line in lines)
    kind = ", ".join(head)
    if kind == CALLS:
        own = {one["case"]: one for one in cells if one["part"] == "latency"}
        rows = [call(name, own) for name, *_ in rows] if own else []
    else:
        part = TABLES.get(kind)
        own = {(one["case"], one["dtype"]): one for one in cells if one["part"] == part}
        rows = [figures(head, name, own) for name, *_ in rows] if own else []
    return table(head, rows).splitlines() if rows else list(lines)


def figures(head, name, cells):
    """A row of a table: a case in one dtype after the other."""
    if not any(case == name for case, _ in cells):
        raise SystemExit(f"the results have no {name}")
    found, cell = [name], None
    for column in head[1:]:
        dtype, _, unit = column.partition(", ")
        if dtype in DTYPES:
            cell = cells.get((name, DTYPES[dtype]))
            found.append(leading(cell, unit))
        else:
            found.append("–" if cell is None else COLUMNS[column](cell))
    return found


def leading(cell, unit):
    """The first figure of a case in a dtype: our time, or what it is about there."""
    if cell is None:
        return "–"
    if unit:
        return f"{cell['terabytes_per_second']:.2f}"
    return ratio(cell["factor"]) if cell["part"] == "ablation" else _time(cell["ours"])


def call(name, cells):
    return [name, *(_time(cells[f"{name} {what}"]["ours"]) for what in ("call", "node"))]


if __name__ == "__main__":
    main(sys.argv[1:])
