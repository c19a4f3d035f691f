"""The tables of docs/results/cpu.md: ``python -m benchmarks.cpu.tables [--missed] FILE ...``.

Reads files of `python -m benchmarks.cpu --json`; of a cell in several of them the first counts.
"""

import json
import statistics
from pathlib import Path

from benchmarks.core.options import parser_of
from benchmarks.core.tables import duration, groups, head, row
from benchmarks.cpu.regimes import REGIMES


def verdicts_of(paths):
    """The verdicts of all files, each cell once."""
    found = {}
    for path in paths:
        for one in json.loads(path.read_text())["verdicts"]:
            key = one["regime"], one["shape"], one["dtype"], one["threads"]
            if key not in found or found[key]["met"] is None:
                found[key] = one
    return list(found.values())


def spread(values, form):
    """Least, median and most."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    return ", ".join(format(f(known), form) for f in (min, statistics.median, max))


def summary(verdicts):
    """Yield a row for each regime."""
    yield head(["regime", "cells", "met", "ratio: least, median, most", "of the machine"])
    titles = {regime.name: regime.title for regime in REGIMES}
    for name, own in groups(verdicts, lambda one: one["regime"]).items():
        own = [one for one in own if one["met"] is not None]
        met = sum(one["met"] for one in own)
        ratios = spread((one["ratio"]["value"] for one in own), ".2f")
        shares = spread((one.get("share", {}).get("value") for one in own), ".0%")
        title = titles.get(name, "one thread to more, of the ceiling that binds")
        yield row([title, len(own), met, ratios, shares])


def missed(verdicts):
    """Yield a row for each cell that falls short."""
    yield head(["regime", "shape", "dtype", "threads", "ours", "ratio", "of the machine"])
    for one in verdicts:
        if one["met"] is False:
            texts = []
            for target, form in ((one["ratio"], ".2f"), (one.get("share", {}), ".0%")):
                value, needed = target.get("value"), target.get("needed")
                is_short = needed is not None and value is not None and value < needed
                asked = (
                    f"{value:{form}} (≥ {needed:{form}}) {target['against']}" if is_short else ""
                )
                texts.append(asked)
            cell = [one[name] for name in ("regime", "shape", "dtype", "threads")]
            yield row([*cell, duration(one.get("ours")), *texts])


def main(arguments=None):
    parser = parser_of(__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="of benchmarks.cpu --json")
    parser.add_argument("--missed", action="store_true", help="every cell that falls short")
    options = parser.parse_args(arguments)
    verdicts = verdicts_of(options.files)
    print("\n".join(missed(verdicts) if options.missed else summary(verdicts)))


if __name__ == "__main__":
    main()
