"""How we stand on Kronecker-sparse matrices: how often fastest, how far from the floor."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.gpu.report.report import Cell

PART = "kronecker-sparse"


def sparse_standing(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """A record for each dtype and layout, and one for each dtype of both layouts compared."""
    own = [cell for cell in cells if cell.part == PART and cell.microseconds]
    found: list[dict[str, Any]] = []
    for dtype in dict.fromkeys(cell.dtype for cell in own):
        of_dtype = [cell for cell in own if cell.dtype == dtype]
        for layout in ("batch-first", "batch-last"):
            some = [cell for cell in of_dtype if cell.more["layout"] == layout]
            if some:
                found.append({"dtype": dtype, "layout": layout} | _standing(some))
        times = {
            (cell.more["pattern"], cell.more["layout"]): cell.microseconds for cell in of_dtype
        }
        ratios = [
            time / times[pattern, "batch-last"]
            for (pattern, layout), time in times.items()
            if layout == "batch-first" and time and (pattern, "batch-last") in times
        ]
        if ratios:
            found.append(
                {
                    "dtype": dtype,
                    "layout": "first over last",
                    "cells": len(ratios),
                    "median_ratio": median(ratios),
                    "largest_ratio": max(ratios),
                }
            )
    return found


def _standing(cells: Sequence[Cell]) -> dict[str, Any]:
    gains = [1 / cell.ratio for cell in cells if cell.ratio]
    floors = [cell.over_floor for cell in cells if cell.over_floor]
    return {
        "cells": len(cells),
        "fastest": sum(gain >= 1 for gain in gains),
        "compared": len(gains),
        "median_gain": median(gains) if gains else None,
        "least_gain": min(gains, default=None),
        "median_over_floor": median(floors),
        "largest_over_floor": max(floors),
    }


def standing_lines(records: Sequence[dict[str, Any]]) -> list[str]:
    """The records as text."""
    lines = []
    for one in records:
        head = f"- {one['dtype']}, {one['layout']}, {one['cells']} patterns: "
        if "median_ratio" in one:
            text = f"{one['median_ratio']:.2f} in the median, at most {one['largest_ratio']:.2f}"
        else:
            text = f"fastest in {one['fastest']} of {one['compared']}"
            if one["compared"]:
                text += f", gain {one['median_gain']:.2f} in the median, at least "
                text += f"{one['least_gain']:.2f}"
            text += f"; {one['median_over_floor']:.2f} × the floor in the median, at most "
            text += f"{one['largest_over_floor']:.2f}"
        lines.append(head + text)
    return lines
