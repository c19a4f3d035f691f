"""What tuning chooses from: the rule's choice is among it, all fits the device, nothing is lost."""

import dataclasses
import random
from itertools import islice

import numpy as np
import pytest
from nvrtc import DEVICES, compile_program

from batchkron.backends.cuda.batch.registers import output_team_counts
from batchkron.backends.cuda.batch.search_space import (
    BatchCase,
    BatchSpace,
    chosen_tiling,
    read_batch_choice,
    written_batch_choice,
)
from batchkron.backends.cuda.kron.fibres.choose import FibreKnobs
from batchkron.backends.cuda.kron.fibres.tf32 import PRODUCTS
from batchkron.backends.cuda.kron.registers.tile import RegisterKnobs
from batchkron.backends.cuda.kron.search_space import (
    GroupChoice,
    KronCase,
    KronSpace,
    chosen_groups,
    read_kron_choice,
    rule_choice,
    written_kron_choice,
)
from batchkron.backends.cuda.kron.slices import SliceKnobs
from batchkron.backends.cuda.runtime.cubin import resources
from batchkron.backends.cuda.runtime.program import compile_options, device_sources
from batchkron.backends.cuda.steps import plan_order, plan_steps

# factors (K, C), rows, columns, dtype
KRON = [
    ([(8, 8)] * 5, 1024, 1, "f4"),
    ([(8, 8)] * 5, 1024, 1, "f8"),
    ([(3, 3)] * 7, 1024, 1, "f4"),
    ([(2, 2)] * 9, 20, 1, "f8"),
    ([(5, 3), (2, 4), (4, 2)], 11, 1, "c8"),
    ([(16, 16)] * 4, 1024, 1, "f4"),
    ([(64, 64)] * 2, 1024, 1, "f8"),
    ([(128, 128)] * 3, 16, 1, "f8"),
    ([(52, 50), (65, 20)], 10, 1, "f4"),
    ([(5, 5), (5, 5), (2, 2), (25, 25)], 1, 1, "f8"),
    ([(6, 6)] * 3, 1, 37, "f4"),
    ([(128, 128)] * 2, 1024, 1, "f4"),
]
MIXED = [  # others whose groups have kernels of several kinds
    ([(8, 8)] * 8, 16, 1, "f4"),
    ([(16, 16)] * 6, 16, 1, "f8"),
    ([(16, 16)] * 6, 16, 1, "f4"),
]
KRON_128 = 11
# factors (K, C), products, outputs, dtype
LISTS = [
    ([(4, 4)], 32_000_000, 500_000, "f8"),
    ([(2, 2)] * 2, 4000, 1000, "f4"),
    ([(3, 3)] * 3, 9472, 148, "f8"),
    ([(8, 8)] * 2, 2_000_000, 31_250, "f8"),
    ([(5, 5)] * 4, 204_800, 3200, "f8"),
    ([(2, 3), (4, 3), (3, 4)], 900, 3, "c8"),
    ([(4, 4)] * 6, 31_232, 488, "f4"),
    ([(4, 4)] * 5, 64 * 9, 9, "f8"),
]
MAX_CANDIDATES = 20  # choices that a test looks at in each step


def kron_case(index, capability, constant=True):
    factors, outer, inner, dtype = (KRON + MIXED)[index]
    outputs, inputs = (tuple(shape[axis] for shape in factors) for axis in (0, 1))
    constant = constant and max(*inputs, *outputs) <= 16
    return KronCase(inputs, outputs, outer, inner, np.dtype(dtype), constant, DEVICES[capability])


def batch_case(index, capability):
    factors, products, outputs, dtype = LISTS[index]
    K, C = ([shape[axis] for shape in factors] for axis in (0, 1))
    steps = plan_steps(C, K, plan_order(C, K), np.dtype(dtype))
    limits = DEVICES[capability]
    return BatchCase(steps, np.dtype(dtype), outputs, products, True, False, limits)


def kron_90(index):
    return kron_case(index, "90")


def batch_90(index):
    return batch_case(index, "90")


def candidates(space, maximum=MAX_CANDIDATES):
    """Choices of every step around the rule's."""
    for step in space.steps():
        yield from islice(step(space.rule), maximum)


def runs_of(choice):
    """First and last modes of each kernel."""
    return tuple((one.low, one.high) for one in choice)


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("index", range(len(KRON + MIXED)))
def test_the_rule_is_a_choice(index, capability, constant):
    case = kron_case(index, capability, constant)
    choice = rule_choice(case)
    assert chosen_groups(choice, case) == case.by_the_rule()
    assert read_kron_choice(written_kron_choice(choice)) == choice


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize("index", range(len(KRON)))
def test_every_candidate_of_a_product_fits(index, capability):
    case = kron_case(index, capability)
    space = KronSpace(case, rule_choice(case))
    found = {runs_of(choice) for choice in space._other_runs(space.rule)}
    assert runs_of(space.rule) in found, "the rule's runs are found"
    fitting, shape = set(), list(zip(case.inputs, case.outputs, strict=True))
    for choice in candidates(space):
        groups = chosen_groups(choice, case)
        if groups is None:
            continue
        fitting.add(choice)
        modes = [mode for group in groups for mode in group.tile.modes]
        assert sorted(modes) == list(range(len(shape)))
        for kernel in space.kernels(choice):
            assert kernel.fits(case.limits)
            assert kernel.threads * kernel.blocks <= 2048
            assert kernel.blocks * (kernel.shared_bytes + 1024) <= case.limits.shared_bytes + 1024
        assert read_kron_choice(written_kron_choice(choice)) == choice
    assert len(fitting) > 10 if max(case.inputs) < 100 else fitting


def test_slices_are_a_choice_where_the_rule_has_others():
    sizes, dtype = (4,) * 8, np.dtype("f4")
    case = KronCase(sizes, sizes, 140, 1, dtype, False, DEVICES["90"])
    rule = rule_choice(case)
    assert {type(one.knobs) for one in rule} == {RegisterKnobs}
    found = {type(one.knobs) for choice in candidates(KronSpace(case, rule)) for one in choice}
    assert found == {RegisterKnobs, SliceKnobs}


@pytest.mark.slow
@pytest.mark.parametrize("precision", [None, "tf32", "tf32x3"])
def test_matrix_units_are_a_choice_where_they_are_allowed(precision):
    case = dataclasses.replace(kron_case(KRON_128, "90"), precision=precision)
    rule = rule_choice(case)
    assert chosen_groups(rule, case) == case.by_the_rule()
    found = set()
    for choice in candidates(KronSpace(case, rule), maximum=4 * MAX_CANDIDATES):
        groups = chosen_groups(choice, case)
        if groups is None:
            continue
        for one, group in zip(choice, groups, strict=True):
            if not isinstance(one.knobs, FibreKnobs):
                continue
            products = {one.products for one in group.tile.passes}
            assert (one.knobs.units == 1) == any(products)
            assert products <= {0, PRODUCTS[precision]}
            found.add(one.knobs.units)
    assert found == ({0} if precision is None else {0, 1})
    if precision is not None:
        full = dataclasses.replace(case, precision=None)
        with_units = next(
            choice
            for choice in candidates(KronSpace(case, rule))
            if any(one.knobs.units for one in choice)
        )
        assert chosen_groups(with_units, full) is None, "units are not asked for"


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize("index", range(len(LISTS)))
def test_every_candidate_of_a_list_fits(index, capability):
    case = batch_case(index, capability)
    rule = case.by_the_rule()
    space = BatchSpace(case, rule)
    assert chosen_tiling(space.rule, case) == rule
    found = set()
    for choice in candidates(space):
        tiling = chosen_tiling(choice, case)
        (kernel,) = space.kernels(choice)
        assert kernel.fits(case.limits)
        assert tiling.teams_per_output in output_team_counts(tiling)
        assert tiling.cluster == 1 or tiling.outputs == 1
        assert tiling.block % tiling.group == 0
        assert 2 <= tiling.stages <= 4
        assert (tiling.short_ids, tiling.identities) == (case.short_ids, case.identities)
        assert read_batch_choice(written_batch_choice(choice)) == choice
        found.add(tiling)
    assert rule in found
    assert len(found) > 5


@pytest.mark.slow
def test_candidates_compile():
    """One of each case, drawn at random: what the templates ask for is kept by all."""
    draw = random.Random(5)
    spaces = [KronSpace(case, rule_choice(case)) for case in map(kron_90, range(len(KRON)))]
    spaces += [BatchSpace(case, case.by_the_rule()) for case in map(batch_90, range(len(LISTS)))]
    for space in spaces:
        choices = list(islice(candidates(space), 2 * MAX_CANDIDATES))
        draw.shuffle(choices)
        for kernel in next(filter(None, map(space.kernels, choices))):
            program, options = kernel.program, compile_options("90")
            _, code = compile_program(program.source, device_sources(), program.expression, options)
            registers = -(-resources(code).registers // 8) * 8
            assert registers * kernel.threads * kernel.blocks <= 65536


WRONG = [
    None,
    [],
    {},
    "fibres",
    [[]],
    [["fibres", 0, 2, 1, 1]],
    [["else", 0, 2, 1, 1, 1, 32, 1]],
    [["registers", 0, 2, 1, 1, 8, 64, 1.0]],
    [["registers", 0, 2, 1, 1, 8, 64, True]],
    [[["registers"], 0, 2, 1, 1, 8, 64, 1]],
]


@pytest.mark.parametrize("data", WRONG, ids=repr)
def test_what_is_no_choice_is_not_read(data):
    assert read_kron_choice(data) is None
    assert read_batch_choice(data) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"slices": 0},
        {"slices": 2000},
        {"columns": 2},
        {"columns": 0},
        {"held": 0},
        {"held": -8},
        {"held": 10_000},
        {"threads": 0},
        {"threads": 33},
        {"threads": 2048},
        {"blocks": 0},
        {"blocks": -1},
        {"blocks": 200},
    ],
    ids=repr,
)
def test_knobs_that_do_not_fit_have_no_kernel(changed):
    case = kron_case(2, "90")
    (one,) = rule_choice(case)
    assert isinstance(one.knobs, RegisterKnobs)
    wrong = dataclasses.replace(one, knobs=dataclasses.replace(one.knobs, **changed))
    assert chosen_groups((wrong,), case) is None


def test_runs_that_do_not_cover_the_modes_have_no_kernels():
    case = kron_case(6, "90")
    knobs = rule_choice(case)[0].knobs
    assert isinstance(knobs, FibreKnobs)
    for runs in [[(0, 1)], [(0, 2), (1, 2)], [(0, 3)], [(1, 0), (0, 2)], [(0, 0), (0, 2)]]:
        choice = tuple(GroupChoice(*run, knobs) for run in runs)
        assert chosen_groups(choice, case) is None
    strange = FibreKnobs(3, 1, 5, 7, 2)
    assert chosen_groups((GroupChoice(0, 2, strange),), case) is None


@pytest.mark.parametrize(
    "changed",
    [{"held": 7}, {"block": 48}, {"stages": 5}, {"teams_per_output": 7}, {"cached": 2}],
    ids=repr,
)
def test_tilings_that_do_not_fit_are_none(changed):
    case = batch_case(2, "90")
    rule = BatchSpace(case, case.by_the_rule()).rule
    assert chosen_tiling(rule, case) is not None
    assert chosen_tiling(dataclasses.replace(rule, **changed), case) is None


def test_large_complex_factors_leave_nothing_to_choose():
    case = kron_case(5, "90")
    case = dataclasses.replace(case, inputs=(32,) * 2, outputs=(32,) * 2, dtype=np.dtype("c16"))
    assert rule_choice(case) is None
