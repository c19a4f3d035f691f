"""Tables 3, 5 and 8 of Gonon et al. (2024): in which share of patterns a contender is faster.

A gain is the median of (time of the others / time) over the patterns in which it is faster.
"""

import statistics
import sys

from benchmarks.core.tables import head, row
from benchmarks.core.timing import OURS
from benchmarks.papers.options import run
from benchmarks.papers.results import BASELINES, GENERIC, SPECIALISED, least

# The paper's table, a dtype, a layout ("": each contender has the better one of both), contenders,
# the others that they are compared with by their least times, percent of the patterns, and gain.
CLAIMS = (
    ("3", "float32", "", (OURS, *SPECIALISED), GENERIC, 99.67, 6.57),
    ("3", "float32", "", ("bmm",), ("einsum", "bsr", *GENERIC), 92.66, 1.37),
    ("3", "float32", "", (OURS,), BASELINES, 88.10, 1.39),
    ("5", "float32", "batch-first", (OURS,), BASELINES, 20.0, 1.28),
    ("5", "float32", "batch-last", (OURS,), BASELINES, 88.1, 1.39),
    ("8", "float16", "", (OURS, *SPECIALISED), GENERIC, 86.95, 8.45),
    ("8", "float16", "", ("bmm",), ("einsum", "bsr", *GENERIC), 83.22, 1.83),
    ("8", "float16", "", (OURS,), BASELINES, 36.69, 1.46),
)


def gain(times, faster, slower):
    """The least time of the second ones over that of the first, None where one has none."""
    one = [times[name] for name in faster if name in times]
    other = [times[name] for name in slower if name in times]
    return min(other) / min(one) if one and other else None


def outcome(times, faster, slower):
    """Patterns compared, and where it is faster; the median gain over these, and over all."""
    found = (gain(own, faster, slower) for own in times)
    gains = [one for one in found if one is not None]
    ahead = [one for one in gains if one > 1]
    medians = (statistics.median(own) if own else float("nan") for own in (ahead, gains))
    return (len(gains), len(ahead), *medians)


def table(cells):
    names = ["table", "dtype", "layout", "faster", "than", "patterns"]
    names += ["published %", "measured %", "published gain", "measured gain", "gain over all"]
    yield head(names)
    for table, dtype, layout, faster, slower, share, gained in CLAIMS:
        times = least(cells, dtype, layout)
        count, ahead, own, overall = outcome(times.values(), faster, slower)
        measured = ["–"] * 3
        if count:
            measured = [f"{100 * ahead / count:.1f}", f"{own:.2f}", f"{overall:.2f}"]
        texts = [table, dtype, layout or "the better one", ", ".join(faster), ", ".join(slower)]
        yield row([*texts, count, f"{share:g}", measured[0], f"{gained:.2f}", *measured[1:]])


def lost(cells):
    found = []
    for cell in cells:
        others = {name: cell.seconds[name] for name in BASELINES if name in cell.seconds}
        if OURS in cell.seconds and others:
            best = min(others, key=others.__getitem__)
            if others[best] < cell.seconds[OURS]:
                found.append((others[best] / cell.seconds[OURS], best, cell))
    for factor, best, cell in sorted(found, key=lambda one: one[0]):
        yield f"{cell.pattern} {cell.dtype} {cell.layout}: {factor:.2f} × {best}"


def main(arguments=None):
    cells = run(__doc__, arguments, table)
    behind = list(lost(cells))
    print(f"\nbehind a baseline in {len(behind)} of {len(cells)} cells\n")
    print("\n".join(behind[:20]))
    wrong = [cell for cell in cells if cell.failed.get(OURS, "").startswith("ArithmeticError")]
    for cell in wrong:
        print(f"wrong: {cell.pattern} {cell.dtype} {cell.layout}: {cell.failed[OURS]}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
