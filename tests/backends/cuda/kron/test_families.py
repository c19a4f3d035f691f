"""What all families of kernels keep: variants fit, estimates are seconds, choices are read back."""

import math
from itertools import pairwise

import numpy as np
import pytest
from nvrtc import DEVICES
from plans import check_launch

from batchkron.backends.cuda.kron.families import FAMILIES, FAMILY_OF
from batchkron.backends.cuda.kron.fibres.family import _ranked
from batchkron.backends.cuda.kron.fibres.rank import slower_by_conflicts
from batchkron.backends.cuda.kron.kernel import kron_arguments
from batchkron.backends.cuda.kron.search_space import (
    RunChoice,
    read_kron_choice,
    written_kron_choice,
)
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import ModeRun

MAX_VARIANTS = 40  # of a run that are looked at
RUNS = [  # sizes before and afterwards, L, R, dtype
    ((4,), (4,), 1, 1, "f4"),
    ((8,) * 3, (8,) * 3, 156, 1, "f4"),
    ((8,) * 5, (8,) * 5, 1024, 1, "f8"),
    ((8,) * 4, (8,) * 4, 1024, 1, "f4"),
    ((16,) * 3, (16,) * 3, 7, 64, "f8"),
    ((16,) * 2, (16,) * 2, 5, 3, "c8"),
    ((3, 5), (4, 2), 9, 7, "c16"),
    ((64,), (64,), 300, 1, "f8"),
    ((64, 64), (64, 64), 40, 1, "f4"),
    ((20, 9), (24, 9), 50, 5, "f4"),
    ((128,), (128,), 4096, 8, "f8"),
    ((300,), (200,), 70, 1, "f4"),
    ((300,), (200,), 70, 9, "c8"),
    ((20_000,), (3,), 1, 1, "f8"),
    ((2,) * 12, (2,) * 12, 3, 1, "f8"),
]
NARROW = DeviceLimits(48 << 10, 16)  # shared memory of older devices


def run_of(index, first=0, **more):
    inputs, outputs, L, R, dtype = RUNS[index]
    return ModeRun(first, inputs, outputs, L, R, np.dtype(dtype), **more)


def test_bank_conflicts_count_in_the_fastest_fibres():
    """What is chosen has the least rank with conflicts, sometimes not the least without them."""
    device, fibres, others = DEVICES["90"], FAMILY_OF["fibres"], 0
    for sizes, L, R, dtype in (((8,) * 4, 1024, 3, "f4"), ((64,), 300, 1, "f8")):
        run = ModeRun(0, sizes, sizes, L, R, np.dtype(dtype))
        chosen = fibres.fastest(run, device).variant
        ranks = {variant: rank for rank, variant, _ in _ranked(run, device)}
        slower = {
            variant: rank * slower_by_conflicts(fibres.kernel(run, variant, device).tile.conflicts)
            for variant, rank in ranks.items()
        }
        assert slower[chosen] == min(slower.values())
        others += ranks[chosen] > min(ranks.values())
    assert others


@pytest.fixture(params=FAMILIES, ids=lambda family: family.name)
def family(request):
    return request.param


@pytest.fixture(params=range(len(RUNS)), ids=lambda index: str(RUNS[index]))
def run(request):
    return run_of(request.param)


@pytest.fixture(params=[*DEVICES.values(), NARROW], ids=[*DEVICES, "narrow"])
def device(request):
    return request.param


def some_variants(family, run, device):
    """As many as a test looks at, of all sizes."""
    if not family.accepts(run, device):
        return []
    found = list(family.variants(run, device))
    return found[:: max(1, len(found) // MAX_VARIANTS)]


def test_names_are_unique():
    assert len(FAMILY_OF) == len(FAMILIES)
    assert all(name == family.name for name, family in FAMILY_OF.items())


def test_each_run_has_a_kernel(run, device):
    assert any(family.fastest(run, device) is not None for family in FAMILIES)


def test_variants_have_kernels_that_fit(family, run, device):
    for variant in some_variants(family, run, device):
        assert isinstance(variant, tuple)
        assert [type(number) for number in variant] == [int] * len(family.numbers)
        assert family.variant_type(list(variant)) == variant
        kernel = family.kernel(run, variant, device)
        assert kernel is not None
        assert (kernel.family, kernel.work, kernel.variant) == (family, run, variant)
        assert kernel.seconds == family.estimate(run, variant, device)
        assert 0.5e-6 < kernel.seconds < 10, "seconds"
        check_launch(kernel, device)


def test_variants_are_all_different(family, run, device):
    if family.accepts(run, device):
        found = list(family.variants(run, device))
        assert len(set(found)) == len(found)


def test_the_fastest_is_one_of_the_variants(family, run, device):
    fastest = family.fastest(run, device)
    if fastest is None:
        assert not some_variants(family, run, device)
        return
    assert family.accepts(run, device)
    assert fastest.variant in list(family.variants(run, device))
    assert fastest.seconds == family.estimate(run, fastest.variant, device)


def test_what_is_not_accepted_has_no_kernel(family, run, device):
    if not family.accepts(run, device):
        assert family.fastest(run, device) is None


def test_variants_are_read_as_they_were_written(family, run, device):
    for variant in some_variants(family, run, device):
        choice = (RunChoice(0, len(run.inputs), family.name, variant),)
        written = written_kron_choice(choice)
        assert written == [[family.name, 0, len(run.inputs), *variant]]
        assert read_kron_choice(written) == choice


def test_variants_near_another_may_be_tried(family, run):
    device = DEVICES["90"]
    fastest = family.fastest(run, device)
    if fastest is None:
        return
    for variant in list(family.near(run, fastest.variant, 1, 1.3, device))[:MAX_VARIANTS]:
        kernel = family.kernel(run, variant, device)
        assert (kernel is None) == math.isinf(family.estimate(run, variant, device))
        if kernel is not None:
            check_launch(kernel, device)


def test_more_rows_never_take_less_time(run):
    """By any family."""
    device = DEVICES["90"]
    for family in FAMILIES:
        times = []
        for factor in (1, 2, 5, 16, 64):
            longer = ModeRun(0, run.inputs, run.outputs, run.L * factor, run.R, run.dtype)
            fastest = family.fastest(longer, device)
            times.append(math.inf if fastest is None else fastest.seconds)
        found = [time for time in times if math.isfinite(time)]
        for before, after in pairwise(found):
            assert after >= before * (1 - 1e-9), (family.name, times)


def test_where_a_run_stands_in_the_product_changes_no_choice(family, run):
    device = DEVICES["90"]
    first = family.fastest(run, device)
    later = family.fastest(ModeRun(3, run.inputs, run.outputs, run.L, run.R, run.dtype), device)
    if first is None:
        assert later is None
        return
    assert (later.variant, later.seconds) == (first.variant, first.seconds)
    assert later.modes == tuple(mode + 3 for mode in first.modes)
    assert later.program == first.program


def test_programs_and_arguments_are_of_the_family(family, run, device):
    kernel = family.fastest(run, device)
    if kernel is None:
        return
    program = kernel.program
    assert program.header.startswith(f"cuda/kron/{family.name}")
    arguments = kernel.arguments
    assert arguments["R"] == run.R
    if family.name != "general":
        assert arguments.dtype == kron_arguments(run.dtype, len(run.inputs))
        assert arguments["L"] == run.L
