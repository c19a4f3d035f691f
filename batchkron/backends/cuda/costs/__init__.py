"""Constants of kernels' estimated times, one table (JSON file) for each measured card.

``python -m benchmarks.gpu.fit`` fits a table to measured kernels. A kernel family reads its part of
the table that `costs_for` returns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """The constants of one card."""

    device: str  # the card that was measured: "name, sm_NN, N multiprocessors"
    is_exact: bool  # whether it is the requested card, not only the most similar one
    # constants by operation, family and name: ``families["kron"]["fibres"]["launch"]``
    families: Mapping[str, Mapping[str, Mapping[str, float]]]


@cache
def costs_for(device: str) -> CostTable:
    """Return the costs of a card, or those of the most similar card with a table.

    ``device``: "name, sm_NN, N multiprocessors", as from ``runtime.device.device_name``. Similar
    cards have the same architecture; among these, more words of the name in common; then, a closer
    number of multiprocessors.
    """
    table = min(_tables(), key=lambda one: _distance(one["device"], device))
    families = {name: part for name, part in table.items() if isinstance(part, dict)}
    return CostTable(table["device"], table["device"] == device, families)


def _tables() -> list[dict[str, Any]]:
    files = (one for one in resources.files(__name__).iterdir() if one.name.endswith(".json"))
    return [json.loads(one.read_text()) for one in sorted(files, key=lambda one: one.name)]


def _distance(table: str, asked: str) -> tuple[int, int, int]:
    """Return how much two cards differ, as a tuple with the most important difference first."""
    name, architecture, count = _parts(table)
    own_name, own_architecture, own_count = _parts(asked)
    words = set(name.split()) & set(own_name.split())
    return int(architecture != own_architecture), -len(words), abs(count - own_count)


def _parts(device: str) -> tuple[str, str, int]:
    name, architecture, count = device.rsplit(", ", 2)
    return name, architecture, int(count.split()[0])
