"""Figures 4, 9 and 14 of Gonon et al. (2024): the share of bmm's time in which it rewrites vectors.

The multiply alone works on vectors that are permuted already.
"""

import statistics

from benchmarks.core.plots import boxes
from benchmarks.core.tables import head, row
from benchmarks.papers.options import run
from benchmarks.papers.results import ALONE, DTYPES
from benchmarks.patterns import LAYOUTS, ratio

PUBLISHED = 45  # percent, the most of figure 4


def shares(cells, dtype, layout):
    found = {}
    for cell in cells:
        if (cell.dtype, cell.layout) != (dtype, layout) or not {"bmm", ALONE} <= set(cell.seconds):
            continue
        if "bmm" in cell.stopped_early:  # a single call has the time of its launches, too
            continue
        share = 1 - cell.seconds[ALONE] / cell.seconds["bmm"]
        found.setdefault(ratio(cell.pattern), []).append(100 * share)
    return found


def panels(cells):
    found = {
        f"{dtype}, {layout}": shares(cells, dtype, layout) for dtype in DTYPES for layout in LAYOUTS
    }
    return {title: own for title, own in found.items() if own}


def table(cells):
    found = panels(cells)
    keys = sorted({key for own in found.values() for key in own})
    yield head(["(b+c)/(bc)", "patterns", *(f"{title}: median %" for title in found)])
    for key in keys:
        own = [one.get(key, []) for one in found.values()]
        medians = [f"{statistics.median(one):.0f}" if one else "–" for one in own]
        yield row([f"{key:.4f}", max(map(len, own)), *medians])
    largest = [f"{max(max(own) for own in one.values()):.0f}" for one in found.values()]
    yield row([f"largest (published: up to {PUBLISHED})", "", *largest])


def draw(cells, path):
    boxes(path, panels(cells), "(b+c)/(bc)", "% of bmm's time", PUBLISHED)


def main(arguments=None):
    run(__doc__, arguments, table, ("bmm", ALONE), draw)


if __name__ == "__main__":
    main()
