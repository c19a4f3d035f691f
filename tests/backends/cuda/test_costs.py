"""Estimated times of kernels: the committed costs, their errors, which table a card gets."""

import importlib
import json
import math
import sys
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from batchkron.backends.cuda.costs import costs_for, costs_of

ROOT = Path(__file__).parents[2]
H100 = "NVIDIA H100 80GB HBM3, sm_90, 132 multiprocessors"
FAMILIES = ["registers", "fibres", "slices", "panels", "general"]
# root mean square of log(estimate / measured); of panels that copy words in single precision the
# same kernel takes one of two times, a factor of 1.7 apart
LARGEST_RMS = {
    "registers": 0.10,
    "fibres": 0.14,
    "slices": 0.05,
    "panels": 0.18,
    "general": 0.08,
}
LARGEST_LOSS = 1.02  # mean time of the kernel of least estimate over that of the fastest


@pytest.fixture(autouse=True, scope="module")
def source_root():
    """The benchmarks are found in the source, behind what is installed."""
    sys.path.append(str(ROOT))
    yield
    sys.path.remove(str(ROOT))


def committed(path):
    return ROOT / "batchkron" / "backends" / "cuda" / "costs" / path


@pytest.fixture(scope="module", params=["h100"])
def fitted(request, source_root):
    """The committed table of a card, its measurements, what the fit finds."""
    fit = importlib.import_module("benchmarks.gpu.fit")
    table = json.loads(committed(f"{request.param}.json").read_text())
    measured = fit.read(ROOT / "benchmarks" / "results" / table["measurements"])
    return fit, table, measured, {name: fit.fit_family(name, measured) for name in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_committed_costs_are_those_of_the_fit(fitted, family):
    _, table, measured, found = fitted
    assert table["device"] == measured.device
    # other versions of the libraries may stop some iterations earlier or later
    assert table["kron"][family] == pytest.approx(asdict(found[family].costs), rel=0.02)


@pytest.mark.parametrize("family", FAMILIES)
def test_estimates_are_near_the_measured_times(fitted, family):
    found = fitted[3][family]
    assert found.errors.rms < LARGEST_RMS[family]
    assert abs(found.errors.bias) < 0.03
    assert found.held_out.rms < 1.5 * LARGEST_RMS[family]


def test_least_estimates_are_of_fast_kernels(fitted):
    fit, _, _, found = fitted
    kernels = [kernel for one in found.values() for kernel in one.kernels]
    estimates = [estimate for one in found.values() for estimate in one.estimates]
    assert fit.loss_of_choice(kernels, estimates) < LARGEST_LOSS


@pytest.mark.parametrize("family", FAMILIES)
def test_estimates_grow_with_the_array(fitted, family):
    fit, _, measured, found = fitted
    costs = found[family].costs
    for kernel in found[family].kernels[::5]:
        times = []
        for times_longer in (1, 2, 16):
            longer = kernel._replace(L=kernel.L * times_longer)
            try:
                work = fit.FAMILIES[family].work(longer, measured.limits)
            except ValueError:  # the general kernel takes other groups for longer arrays
                continue
            times.append(float(fit.FAMILIES[family].seconds(work, costs)))
        assert times[0] > 0
        assert all(math.isfinite(time) for time in times)
        if family != "general":  # its tile changes with the array
            assert times == sorted(times), kernel
        else:
            assert times[-1] >= 0.7 * times[0], kernel


def test_constants_are_explained():
    for costs in [getattr(costs_for(H100), family) for family in FAMILIES]:
        explained = type(costs).__doc__
        assert all(field.name in explained for field in fields(costs)), type(costs)


def test_a_measured_card_has_its_own_table():
    costs = costs_for(H100)
    assert costs.is_exact
    assert costs.table == H100
    assert costs is costs_for(H100)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100 PCIe, sm_90, 114 multiprocessors",
        "NVIDIA A100-SXM4-80GB, sm_80, 108 multiprocessors",
        "some other card, with commas, sm_120, 1 multiprocessors",
    ],
)
def test_another_card_has_the_nearest_table_and_says_so(name):
    assert not costs_for(name).is_exact


def test_costs_are_told_apart_by_identity():
    table = json.loads(committed("h100.json").read_text())
    assert costs_of(table) != costs_of(table)
    assert len({costs_of(table), costs_of(table)}) == 2
