"""Families that are switched off; no device is needed."""

import threading
from dataclasses import dataclass

import numpy as np
import pytest
from nvrtc import DEVICES

from batchkron.backends.cuda.choose import ORDER, families
from batchkron.backends.cuda.kernel import Family
from batchkron.backends.cuda.kernel_family import enabled, forget_by, without
from batchkron.backends.cuda.kron.choose import fastest_plan
from batchkron.backends.cuda.kron.families import FAMILIES as KRON
from batchkron.backends.cuda.kron_sparse.families import FAMILIES as KRON_SPARSE
from batchkron.backends.cuda.steps import ModeRun


@dataclass(frozen=True)
class Toy:
    operation: str
    name: str


TABLE = Toy("toys", "tops"), Toy("toys", "kites"), Toy("games", "tops")


@pytest.mark.parametrize("table", [KRON, KRON_SPARSE, *map(families, ORDER)])
def test_every_family_can_be_switched_off(table):
    names = [f"{family.operation}.{family.name}" for family in table]
    assert len({*names}) == len(table)
    for number, name in enumerate(names):
        with without(name):
            assert enabled(table) == table[:number] + table[number + 1 :]
    for family in table:
        if isinstance(family, Family):
            continue
        for method in ("variants", "estimate", "kernel"):
            assert callable(getattr(family, method))
        assert all(isinstance(name, str) for name in family.numbers)


def test_families_are_off_inside_only():
    with without("toys.tops"):
        assert enabled(TABLE) == TABLE[1:]
        with without("toys.kites", "games.tops"):
            assert enabled(TABLE) == ()
        assert enabled(TABLE) == TABLE[1:]
    assert enabled(TABLE) is TABLE


def test_other_threads_have_all_families():
    found = []
    with without("toys.tops"):
        thread = threading.Thread(target=lambda: found.append(enabled(TABLE)))
        thread.start()
        thread.join()
    assert found == [TABLE]


def test_what_was_remembered_is_forgotten_at_both_ends(monkeypatch):
    monkeypatch.setattr("batchkron.backends.cuda.kernel_family._remembered", [])
    calls = []
    forget_by(lambda: calls.append(enabled(TABLE)))
    with without("toys.tops"):
        assert calls == [TABLE[1:]]
    assert calls == [TABLE[1:], TABLE]


def test_plans_of_kron_matmuls_do_not_mix():
    product = ModeRun(0, (4,) * 4, (4,) * 4, 1000, 1, np.dtype("f4"))

    def names():
        return {kernel.family.name for kernel in fastest_plan(product, DEVICES["90"])}

    before = names()
    with without(*(f"kron.{name}" for name in before)):
        assert names()
        assert not names() & before
    assert names() == before
