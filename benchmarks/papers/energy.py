"""Figure 7 of Gonon et al. (2024): the energy of a product, over the least of the baselines.

The paper measures 651 patterns in float32; its median is 0.85, and less than 1 in 72 %. There, as
here, each contender has the layout in which it takes less, and the baselines are bmm, einsum, bsr.
"""

import statistics

from benchmarks.core.plots import boxes
from benchmarks.core.tables import head, row
from benchmarks.core.timing import OURS
from benchmarks.papers.options import run
from benchmarks.papers.results import DTYPES, GENERIC, NAMES, SPECIALISED, least
from benchmarks.patterns import ratio

PUBLISHED = (0.85, 72.0)  # median of our energy over the baselines', percent where it is less


def factors(cells, dtype, baselines):
    found = {}
    for pattern, joules in least(cells, dtype, what="joules").items():
        others = [joules[name] for name in baselines if name in joules]
        if others:
            found[pattern] = joules[OURS] / min(others)
    return found


def table(cells):
    names = ["dtype", "baselines", "patterns", "median factor", "published", "less in %"]
    yield head([*names, "published"])
    for dtype in DTYPES:
        for baselines in (SPECIALISED, (*SPECIALISED, *GENERIC)):
            found = list(factors(cells, dtype, baselines).values())
            if not found:
                continue
            share = 100 * sum(value < 1 for value in found) / len(found)
            is_papers = dtype == "float32" and baselines == SPECIALISED
            median, less = (f"{PUBLISHED[0]}", f"{PUBLISHED[1]:g}") if is_papers else ("–", "–")
            texts = [dtype, ", ".join(baselines), len(found), f"{statistics.median(found):.2f}"]
            yield row([*texts, median, f"{share:.0f}", less])


def panels(cells):
    found = {}
    for dtype in DTYPES:
        for pattern, value in factors(cells, dtype, SPECIALISED).items():
            key = round(pattern[3] * ratio(pattern), 6)
            found.setdefault(dtype, {}).setdefault(key, []).append(value)
    return found


def draw(cells, path):
    boxes(path, panels(cells), "d(b+c)/(bc)", "energy / best of bmm, einsum, bsr", 1.0)


def main(arguments=None):
    names = [name for name in NAMES if "alone" not in name]
    run(__doc__, arguments, table, names, draw, energy=True)


if __name__ == "__main__":
    main()
