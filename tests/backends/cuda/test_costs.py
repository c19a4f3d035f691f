"""Estimated times of kernels: the committed costs, their errors, which table a card gets."""

import json
import math
from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from batchkron.backends.cuda import costs
from batchkron.backends.cuda.costs import CostTable, costs_for
from batchkron.backends.cuda.kernel import costs_of
from batchkron.backends.cuda.kron.families import FAMILY_OF
from batchkron.backends.cuda.kron.kernel import KronFamily
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import ModeRun

ROOT = Path(__file__).parents[3]
TABLES = sorted((ROOT / "batchkron" / "backends" / "cuda" / "costs").glob("*.json"))
# families that have costs, in every table; others begin with the constants that they name
MEASURED = json.loads(TABLES[0].read_text())["kron"]
H100 = "NVIDIA H100 80GB HBM3, sm_90, 132 multiprocessors"
# Root mean square and mean of log(estimate / measured), of kernels that their family chooses, a
# tenth above those of the worse card. Of panels that copy words in single precision the same kernel
# takes one of two times, a factor of 1.7 apart.
LARGEST_ERRORS = {
    "registers": (0.14, 0.03),
    "fibres": (0.19, 0.03),
    "slices": (0.075, 0.03),
    "panels": (0.175, 0.03),
    "general": (0.37, 0.06),
}
LARGEST_ERROR = (0.4, 0.1)  # of other families
LARGEST_LOSS = 1.02  # mean time of the kernel of the least estimate over that of the fastest


@pytest.fixture(params=TABLES, ids=lambda path: path.stem)
def table(request):
    """The committed table of a card."""
    return json.loads(request.param.read_text())


class MeasuredKernel(NamedTuple):
    """A kernel that a card's costs were fitted to; times in seconds."""

    family: KronFamily
    run: ModeRun
    variant: Any
    chosen: bool  # by its family, among all variants
    estimate: float
    time: float


@cache
def measured(name):
    """A card, and the kernels that its costs were fitted to."""
    content = json.loads((ROOT / "benchmarks" / "results" / name).read_text())
    device = replace(DeviceLimits(*content["limits"][:4]), name=content["device"])
    found = []
    for row in content["kernels"]:
        one = dict(zip(content["columns"], row, strict=True))
        family = FAMILY_OF[one["family"]]
        sizes = tuple(one["inputs"]), tuple(one["outputs"]), one["L"], one["R"]
        run = ModeRun(0, *sizes, np.dtype(one["dtype"]), one["products"], one["constant"])
        variant = family.variant_type(one["variant"])
        estimate, time = family.estimate(run, variant, device), one["microseconds"] * 1e-6
        found.append(MeasuredKernel(family, run, variant, one["chosen"], estimate, time))
    return device, found


def test_costs_are_of_families(table):
    assert set(table["kron"]) <= set(FAMILY_OF)
    for family, values in table["kron"].items():
        assert set(values) == set(FAMILY_OF[family].constants)
        assert all(0 < value < math.inf for value in values.values())


@pytest.mark.parametrize("family", MEASURED)
def test_estimates_are_near_the_measured_times(table, family):
    device, kernels = measured(table["measurements"])
    assert device.name == table["device"]
    logs = [
        math.log(one.estimate / one.time)
        for one in kernels
        if one.family.name == family and one.chosen
    ]
    assert len(logs) > 20
    largest_rms, largest_bias = LARGEST_ERRORS.get(family, LARGEST_ERROR)
    assert np.sqrt(np.mean(np.square(logs))) < largest_rms
    assert abs(np.mean(logs)) < largest_bias


def test_least_estimates_are_of_fast_kernels(table):
    """Of the kernels that families choose, the one of the least estimate takes little longer."""
    runs = defaultdict(list)
    for one in measured(table["measurements"])[1]:
        if one.chosen:
            runs[one.run].append((one.estimate, one.time))
    losses = [
        math.log(min(ways)[1] / min(time for _, time in ways))
        for ways in runs.values()
        if len(ways) > 1
    ]
    assert len(losses) > 100
    assert math.exp(np.mean(losses)) < LARGEST_LOSS


@pytest.mark.parametrize("family", MEASURED)
def test_estimates_grow_with_the_array(table, family):
    """For the same tile. Some variants have another one where the array is longer."""
    device, kernels = measured(table["measurements"])
    for one in [one for one in kernels if one.family.name == family][::5]:
        ways = []
        for longer in (1, 2, 16):
            way = replace(one.run, L=one.run.L * longer), one.variant, device
            kernel = one.family.kernel(*way)
            ways.append((one.family.estimate(*way), None if kernel is None else kernel.tile))
        assert all(0 < time < math.inf for time, _ in ways)
        for (before, tile), (after, next_tile) in pairwise(ways):
            assert after >= before * (1 if tile == next_tile else 0.7), one
        assert ways[-1][0] >= ways[0][0], one


@pytest.mark.parametrize("family", FAMILY_OF)
def test_a_fit_may_begin_at_the_constants_of_a_family(family):
    for start, explanation in FAMILY_OF[family].constants.values():
        assert 0 < start < math.inf
        assert explanation


def test_a_family_that_was_not_measured_has_the_constants_of_a_start(monkeypatch):
    general = FAMILY_OF["general"]
    assert costs_of(general, H100).launch == costs_for(H100).families["kron"]["general"]["launch"]
    monkeypatch.setattr(type(general), "name", "unmeasured")
    found = vars(costs_of.__wrapped__(general, H100))
    assert found == {name: value for name, (value, _) in general.constants.items()}


def test_a_measured_card_has_its_own_table(table):
    found = costs_for(table["device"])
    assert found.is_exact
    assert found.device == table["device"]
    assert found.families["kron"] == table["kron"]
    assert set(found.families) == {"kron", "kron_sparse"}
    assert found is costs_for(table["device"])


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100 PCIe, sm_90, 114 multiprocessors",
        "NVIDIA A100-SXM4-80GB, sm_80, 108 multiprocessors",
        "some other card, with commas, sm_120, 1 multiprocessors",
        DeviceLimits(1, 1).name,
    ],
)
def test_another_card_has_the_nearest_table_and_says_so(name):
    found = costs_for(name)
    assert not found.is_exact
    assert found.device != name
    assert found.families["kron"].keys() == MEASURED.keys()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        (H100, H100),
        ("NVIDIA H100 PCIe, sm_90, 114 multiprocessors", "NVIDIA H100 PCIe, sm_90, 100"),
        ("NVIDIA A30, sm_80, 56 multiprocessors", "NVIDIA A100, sm_80, 108"),
        ("some, card, sm_90, 101 multiprocessors", "NVIDIA H100 PCIe, sm_90, 100"),
        ("some card, sm_90, 131 multiprocessors", H100),
    ],
)
def test_architecture_name_and_multiprocessors_decide_in_this_order(monkeypatch, name, nearest):
    devices = [H100, "NVIDIA H100 PCIe, sm_90, 100", "NVIDIA A100, sm_80, 108"]
    tables = [{"device": device, "kron": {}} for device in devices]
    monkeypatch.setattr(costs, "_tables", lambda: tables)
    assert costs_for.__wrapped__(name).device == nearest


def test_tables_are_told_apart_by_identity():
    one, other = (CostTable(H100, True, {}) for _ in range(2))
    assert one != other
    assert len({one, other}) == 2
