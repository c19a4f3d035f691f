"""Figures as text: times with their units, and tables in Markdown."""

from collections.abc import Mapping

TIMES = {"seconds", "median", "least", "setup", "step", "least_step", "first_step"}  # in seconds
QUIET_LOAD = 0.3  # load average from which a report says that the machine was busy


def duration(seconds):
    """Seconds in the unit that suits them."""
    if seconds is None:
        return "–"
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{1e6 * seconds:.3g} µs"


def count_of(threads):
    return "1 thread" if threads == 1 else f"{threads} threads"


def machine_lines(machine):
    """The head of a report: what its figures belong to, with the versions of the peers."""
    peers = "; ".join(f"{name} {version}" for name, version in machine["peers"].items())
    lines = [f"# {machine['processor']}, {machine['processors']} processors, {machine['date']}\n"]
    lines.append(
        f"batchkron {machine['commit'][:12]}, {machine['instruction_set']} kernels; "
        f"{peers or 'no peers'}"
    )
    load = machine["load_average"][0]
    if load > QUIET_LOAD:
        lines.append(f"The machine was not quiet: load average {load:.1f} at first")
    missing = machine["missing_peers"].items()
    return "\n".join([*lines, *(f"{name} was not measured: {why}" for name, why in missing)])


def groups(items, key):
    """The items of each key, in the order of their first ones."""
    found = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def words(record, is_time=False):
    """The names and values of a record in a line, seconds with their units."""
    found = []
    for name, value in record.items():
        in_seconds = is_time or name in TIMES or name.endswith("_seconds")
        if isinstance(value, Mapping):
            text = f"({words(value, in_seconds)})"
        elif isinstance(value, list):
            texts = [words(one) if isinstance(one, Mapping) else str(one) for one in value]
            text = "; ".join(texts)
        elif isinstance(value, float):
            text = duration(value) if in_seconds else f"{value:.3g}"
        else:
            text = "–" if value is None else str(value)
        found.append(f"{name.replace('_', ' ')} {text}")
    return ", ".join(found)


def row(texts):
    return f"| {' | '.join(map(str, texts))} |"


def head(names):
    """The head of a table whose rows are printed as they come."""
    return f"{row(names)}\n|{' --- |' * len(names)}"


def table(names, rows):
    """A table with its columns under each other."""
    lines = [list(names), *(list(map(str, one)) for one in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        row(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines
    )
