"""Figures 4, 9 and 14 of Gonon et al. (2024): the share of bmm's time in which it rewrites vectors.

    python -m benchmarks.papers.rewrites [--device cuda] [--json PATH] [--part I/N] [--plot PATH]

The share is (time of bmm - time of its multiply alone) / time of bmm, where the multiply alone
works on vectors that are permuted already. The paper has up to 45 %, and 50 % in its abstract.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.core.plots import boxes
from benchmarks.papers.options import measured_results, parser_of
from benchmarks.papers.results import ALONE, Cell
from benchmarks.patterns import LAYOUTS, ratio, time_patterns

PUBLISHED = 45  # percent, the most of figure 4
DTYPES = ("float32", "float16")


def shares(cells: Iterable[Cell], dtype: str, layout: str) -> dict[float, list[float]]:
    """Percentages of bmm's time by the ratio (b + c) / (b c)."""
    found: dict[float, list[float]] = {}
    for cell in cells:
        if (cell.dtype, cell.layout) != (dtype, layout) or not {"bmm", ALONE} <= set(cell.seconds):
            continue
        if "bmm" in cell.stopped_early:  # a single call has the time of its launches, too
            continue
        share = 1 - cell.seconds[ALONE] / cell.seconds["bmm"]
        found.setdefault(ratio(cell.pattern), []).append(100 * share)
    return found


def panels(cells: Sequence[Cell]) -> dict[str, dict[float, list[float]]]:
    """The shares of each dtype and layout that was measured."""
    found = {
        f"{dtype}, {layout}": shares(cells, dtype, layout) for dtype in DTYPES for layout in LAYOUTS
    }
    return {title: own for title, own in found.items() if own}


def table(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield the lines of a Markdown table: medians by the ratio, and the largest share."""
    found = panels(cells)
    keys = sorted({key for own in found.values() for key in own})
    yield f"| (b+c)/(bc) | patterns | {' | '.join(f'{title}: median %' for title in found)} |"
    yield f"|{' --- |' * (len(found) + 2)}"
    for key in keys:
        medians = [
            f"{statistics.median(own[key]):.0f}" if key in own else "–" for own in found.values()
        ]
        count = max(len(own.get(key, ())) for own in found.values())
        yield f"| {key:.4f} | {count} | {' | '.join(medians)} |"
    largest = [f"{max(max(own) for own in one.values()):.0f}" for one in found.values()]
    yield f"| largest (published: up to {PUBLISHED}) | | {' | '.join(largest)} |"


def draw(cells: Sequence[Cell], path: Path) -> None:
    """Draw the shares over the ratio."""
    boxes(path, panels(cells), "(b+c)/(bc)", "% of bmm's time", PUBLISHED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table and draw the picture."""
    parser = parser_of(__doc__)
    parser.add_argument("--plot", type=Path, help="picture to draw")
    options = parser.parse_args(arguments)
    options.dtype = options.dtype or list(DTYPES)
    results = measured_results(options, time_patterns(), ("bmm", ALONE))
    cells = [cell for cell in results.cells.values() if cell.batch == options.batch]
    print("\n".join(table(cells)))
    if options.plot:
        draw(cells, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
