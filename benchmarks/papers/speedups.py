"""Figures 6, 10, 11 and 12 of Gonon et al. (2024), and 13, 15, 16 and 17 in half precision.

Gains by (b + c) / (b c), where dense and CSR are slower, and by the size M N; and times in
batch-first over those in batch-last. But for the last, each contender has its better layout.
"""

import math
import statistics

from benchmarks.core.plots import draw_boxes, figures, grouped, logarithmic, save_figure
from benchmarks.core.tables import groups, head, row
from benchmarks.core.timing import OURS
from benchmarks.papers.kronecker_sparse import gain
from benchmarks.papers.options import run
from benchmarks.papers.results import BASELINES, DTYPES, GENERIC, SPECIALISED, least
from benchmarks.patterns import LAYOUTS, ratio


def gains_by_ratio(times):
    """Our gains over the specialised baselines, where these or ours are the fastest."""
    found = {}
    for pattern, own in times.items():
        generic = gain(own, (OURS, *SPECIALISED), GENERIC)
        ours = gain(own, (OURS,), SPECIALISED)
        if ours is not None and (generic is None or generic > 1):
            found.setdefault(ratio(pattern), []).append(ours)
    return found


def gains_by_size(times, faster, slower):
    found = {}
    for pattern, own in times.items():
        a, b, c, d = pattern
        one = gain(own, faster, slower)
        if one is not None:
            found.setdefault(float(a * b * d * a * c * d), []).append(one)
    return found


def layout_ratios(cells, dtype):
    own = [cell for cell in cells if cell.dtype == dtype]
    found = {}
    for both in groups(own, lambda cell: cell.pattern).values():
        times = {cell.layout: cell.seconds for cell in both}
        first, last = (times.get(layout, {}) for layout in LAYOUTS)
        for name in first.keys() & last.keys() & {OURS, *BASELINES}:
            found.setdefault(name, []).append(first[name] / last[name])
    return {name: found[name] for name in (OURS, *BASELINES) if name in found}


def by_decade(sizes):
    found = {}
    for size, own in sizes.items():
        found.setdefault(10.0 ** math.floor(math.log10(size)), []).extend(own)
    return found


def all_gains(cells):
    found = {}
    for dtype in DTYPES:
        times = least(cells, dtype)
        if times:
            found[dtype] = {
                "ours": gains_by_ratio(times),
                "specialised": gains_by_size(times, (OURS, *SPECIALISED), GENERIC),
                "bmm": gains_by_size(times, ("bmm",), ("einsum", "bsr")),
            }
    return found


def _gain_table(columns, first, form):
    keys = sorted({key for own in columns.values() for key in own})
    titles = [
        text for title in columns for text in (f"{title}: patterns", "median gain", "ahead in %")
    ]
    yield head([first, *titles])
    parts = [(f"{key:{form}}", [own.get(key, []) for own in columns.values()]) for key in keys]
    whole = [[one for each in own.values() for one in each] for own in columns.values()]
    for label, rows in [*parts, ("all", whole)]:
        texts = []
        for own in rows:
            texts += [str(len(own)), f"{statistics.median(own):.2f}" if own else "–"]
            texts.append(f"{100 * sum(one > 1 for one in own) / len(own):.0f}" if own else "–")
        yield row([label, *texts])


def tables(cells):
    found = all_gains(cells)

    def columns(name):
        return {dtype: own[name] for dtype, own in found.items()}

    yield "Figures 6 and 13, ours over min(bmm, einsum, bsr):\n"
    yield from _gain_table(columns("ours"), "(b+c)/(bc)", ".4f")
    for title, name in (
        ("Figures 10 and 15, min(ours, bmm, einsum, bsr) over min(dense, CSR)", "specialised"),
        ("Figures 11 and 16, bmm over min(einsum, bsr)", "bmm"),
    ):
        yield f"\n{title}:\n"
        decades = {dtype: by_decade(own) for dtype, own in columns(name).items()}
        yield from _gain_table(decades, "M N from", ".0e")
    yield "\nFigures 12 and 17, time in batch-first over time in batch-last:\n"
    yield head(["dtype", "contender", "patterns", "least", "median", "most"])
    for dtype in found:
        for name, own in layout_ratios(cells, dtype).items():
            numbers = [f"{one(own):.2f}" for one in (min, statistics.median, max)]
            yield row([dtype, name, len(own), *numbers])


def draw(cells, path):
    pyplot = figures()
    found = all_gains(cells)
    figure, axes = pyplot.subplots(
        4, len(found), figsize=(6.4 * len(found), 13), squeeze=False, sharey="row"
    )
    for column, (dtype, gains) in zip(axes.T, found.items(), strict=True):
        draw_boxes(column[0], grouped(gains["ours"]), 1)
        column[0].set_xlabel("(b+c)/(bc), and how many patterns")
        column[0].set_title(f"{dtype}: ours over min(bmm, einsum, bsr)")
        for axis, name, title in (
            (column[1], "specialised", "min(ours, bmm, einsum, bsr) over min(dense, CSR)"),
            (column[2], "bmm", "bmm over min(einsum, bsr)"),
        ):
            points = [(size, one) for size, own in gains[name].items() for one in own]
            axis.scatter(*zip(*points, strict=True), s=14)
            axis.axhline(1, linestyle="--", linewidth=0.8, color="0.4")
            axis.set_xscale("log")
            axis.set_xlabel("M N, entries of the dense matrix")
            axis.set_title(f"{dtype}: {title}")
            axis.grid(linewidth=0.4)
        ratios = layout_ratios(cells, dtype)
        draw_boxes(column[3], list(ratios.items()), 1, rotation=0)
        column[3].set_xlabel("contender, and how many patterns")
        column[3].set_title(f"{dtype}: time in batch-first over time in batch-last")
        for axis in column:
            logarithmic(axis)
    for line, label in zip(axes, ("gain", "gain", "gain", "ratio of times"), strict=True):
        line[0].set_ylabel(label)
    save_figure(figure, path)


def main(arguments=None):
    run(__doc__, arguments, tables, draw=draw)


if __name__ == "__main__":
    main()
