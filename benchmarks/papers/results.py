"""The file of measured cells, to which runs append."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from benchmarks.core.records import earlier, save_text
from benchmarks.core.tables import groups
from benchmarks.core.timing import OURS
from benchmarks.patterns import LAYOUTS, Pattern

ALONE = "bmm, multiply alone"
SPECIALISED = ("bmm", "einsum", "bsr")  # baselines of the paper
GENERIC = ("dense", "sparse")
BASELINES = (*SPECIALISED, *GENERIC)
NAMES = (OURS, *BASELINES, ALONE)

DTYPES = ("float32", "float16")  # of the paper

Key = tuple[Pattern, int, str, str]


@dataclass
class Cell:
    """One product: a pattern, a batch, a dtype and a layout, and what was measured."""

    pattern: Pattern
    batch: int
    dtype: str
    layout: str
    seconds: dict[str, float] = field(default_factory=dict)
    joules: dict[str, float] = field(default_factory=dict)  # of one product
    failed: dict[str, str] = field(default_factory=dict)  # "NAME energy": has no energy, and why
    stopped_early: list[str] = field(default_factory=list)  # slow: the time of their second call
    commit: str = ""  # of the source that was measured last

    @property
    def key(self) -> Key:
        return self.pattern, self.batch, self.dtype, self.layout

    def lacks(self, names: Iterable[str], energy: bool) -> list[str]:
        def lacks(name: str) -> bool:
            has_energy = name in self.joules or f"{name} energy" in self.failed
            is_timed = name in self.seconds and (has_energy or not energy)
            return not is_timed and name not in self.failed

        return [name for name in names if lacks(name)]


def least(
    cells: Iterable[Cell], dtype: str, layout: str = "", what: str = "seconds"
) -> dict[Pattern, dict[str, float]]:
    """The seconds, or joules, of each contender in a layout, or in the better one of both."""
    layouts, found = {layout} if layout else set(LAYOUTS), {}
    chosen = (one for one in cells if one.dtype == dtype and one.layout in layouts)
    own = (one for one in chosen if OURS in getattr(one, what))
    for pattern, several in groups(own, lambda one: one.pattern).items():
        if {one.layout for one in several} == layouts:
            known = [getattr(one, what) for one in several]
            names = dict.fromkeys(name for one in known for name in one)
            found[pattern] = {n: min(one[n] for one in known if n in one) for n in names}
    return found


class Results:
    """The cells of a file; ``device`` must be the one that all of them were measured on."""

    def __init__(self, path: Path | None, machine: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.machine = dict(machine or {})
        self.cells: dict[Key, Cell] = {}
        report = earlier(path, self.machine, *(("device",) if machine else ()))
        self.machine = {**report.get("machine", {}), **self.machine}
        for given in report.get("cells", ()):
            known = {one.name: given[one.name] for one in fields(Cell) if one.name in given}
            cell = Cell(**{**known, "pattern": tuple(given["pattern"])})
            self.cells[cell.key] = cell

    def cell(self, key: Key) -> Cell:
        return self.cells.get(key) or Cell(*key)

    def add(self, cell: Cell) -> None:
        self.cells[cell.key] = cell
        if self.path is not None:
            cells = [vars(cell) for cell in self.cells.values()]
            report = {"machine": self.machine, "cells": cells}
            text = json.dumps(report, ensure_ascii=False)
            save_text(self.path, text.replace('{"pattern"', '\n{"pattern"'))  # a cell a line
