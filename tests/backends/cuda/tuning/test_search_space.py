"""What tuning tries: the choice by estimates (the rule) is in it, and all fit the device."""

import dataclasses
import math
import random
from itertools import islice

import pytest
from nvrtc import DEVICES, compile_program
from plans import check_launch, check_runs, plan_of, product, square_run

from batchkron.backends.cuda.kron.choose import fastest_plan
from batchkron.backends.cuda.kron.families import FAMILIES, FAMILY_OF
from batchkron.backends.cuda.kron.fibres.passes import PRODUCTS, FibreVariant
from batchkron.backends.cuda.kron.search_space import (
    KronSpace,
    RunChoice,
    choice_of,
    chosen_kernels,
    read_kron_choice,
    written_kron_choice,
)
from batchkron.backends.cuda.runtime.cubin import resources
from batchkron.backends.cuda.runtime.program import compile_options, device_sources

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
MIXED = [  # others whose runs have kernels of several kinds
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


def kron_case(index, capability, constant=True, precision=None):
    factors, outer, inner, dtype = (KRON + MIXED)[index]
    constant = constant and max(map(max, factors)) <= 16
    whole = product(factors, outer, inner, dtype, precision, constant)
    return whole, DEVICES[capability]


def rule_of(case):
    """The choice of the least estimated time."""
    return choice_of(fastest_plan(*case))


def kron_90(index):
    return kron_case(index, "90")


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
    choice = rule_of(case)
    assert chosen_kernels(choice, *case) == fastest_plan(*case)
    assert read_kron_choice(written_kron_choice(choice)) == choice


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize("index", range(len(KRON)))
def test_every_candidate_of_a_product_fits(index, capability):
    case = kron_case(index, capability)
    space = KronSpace(*case, rule_of(case))
    found = {runs_of(choice) for choice in space._other_runs(space.rule)}
    assert runs_of(space.rule) in found, "the rule's runs are found"
    fitting, limits = set(), case[1]
    for choice in candidates(space):
        kernels = chosen_kernels(choice, *case)
        if kernels is None:
            continue
        fitting.add(choice)
        check_runs(kernels, case[0])
        for kernel in kernels:
            check_launch(kernel, limits)
        assert space.kernels(choice) == tuple((one.program, one.launch) for one in kernels)
        assert read_kron_choice(written_kron_choice(choice)) == choice
    assert len(fitting) > 10 if max(case[0].inputs) < 100 else fitting


@pytest.mark.parametrize("precision", [None, "tf32", "tf32x3"])
def test_families_are_a_choice_wherever_the_search_begins(precision):
    """All families that take the modes are tried; slices only in full precision."""
    case = product([(8, 8)] * 5, 1024, 1, "f4", precision), DEVICES["90"]
    runs = [square_run((8,) * n, 8, 8, "f4") for n in (1, 5)]
    named = {"registers", "fibres", "panels", "general"} | ({"slices"} if not precision else set())
    others = [one for one in FAMILIES if one.name not in {*named, "slices"}]
    wanted = named | {one.name for one in others if any(one.accepts(r, case[1]) for r in runs)}
    for name in ("registers", "general"):
        plan = plan_of([(8, 8)] * 5, 1024, 1, "f4", case[1], precision, families=(name,))
        choices = candidates(KronSpace(*case, choice_of(plan)))
        assert {one.family for choice in choices for one in choice} == wanted


@pytest.mark.slow
@pytest.mark.parametrize("precision", [None, "tf32", "tf32x3"])
def test_matrix_units_are_a_choice_where_they_are_allowed(precision):
    case = kron_case(KRON_128, "90", precision=precision)
    rule = rule_of(case)
    assert chosen_kernels(rule, *case) == fastest_plan(*case)
    found = set()
    for choice in candidates(KronSpace(*case, rule), maximum=4 * MAX_CANDIDATES):
        kernels = chosen_kernels(choice, *case)
        if kernels is None:
            continue
        for one, kernel in zip(choice, kernels, strict=True):
            if one.family != "fibres":
                continue
            products = {each.share.products for each in kernel.tile.passes}
            assert (one.variant.units == 1) == any(products)
            assert products <= {0, PRODUCTS[precision]}
            found.add(one.variant.units)
    assert found == ({0} if precision is None else {0, 1})
    if precision is not None:
        full = kron_case(KRON_128, "90")
        with_units = next(
            choice
            for choice in candidates(KronSpace(*case, rule))
            if any(one.family == "fibres" and one.variant.units for one in choice)
        )
        assert chosen_kernels(with_units, *full) is None, "units are not asked for"


@pytest.mark.slow
def test_candidates_compile():
    """One candidate of each case, drawn at random, meets what the templates require."""
    draw = random.Random(5)
    spaces = [KronSpace(*case, rule_of(case)) for case in map(kron_90, range(len(KRON)))]
    for space in spaces:
        choices = list(islice(candidates(space), 2 * MAX_CANDIDATES))
        draw.shuffle(choices)
        for program, launch in next(filter(None, map(space.kernels, choices))):
            options = compile_options("90")
            _, code = compile_program(program.source, device_sources(), program.expression, options)
            registers = -(-resources(code)[0] // 8) * 8
            assert registers * launch.threads * launch.resident <= 65536


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
def test_variants_that_do_not_fit_have_no_kernel(changed):
    case = kron_case(2, "90")
    (one,) = rule_of(case)
    assert one.family == "registers"
    wrong = dataclasses.replace(one, variant=one.variant._replace(**changed))
    assert chosen_kernels((wrong,), *case) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"slices": 0},
        {"slices": -1},
        {"slices": 3},
        {"columns": 0},
        {"slices": 2, "columns": 4},  # tiles of several slices have all columns
        {"teams": 0},
        {"teams": 7},
        {"warps": 0},
        {"warps": 5},
        {"stages": 0},
        {"stages": 3},
        {"units": 1},
    ],
    ids=repr,
)
def test_cuts_of_fibres_that_a_search_would_not_try_have_no_kernel(changed):
    run, fibres = square_run((8, 8), 6, 8, "f8"), FAMILY_OF["fibres"]
    device = DEVICES["90"]
    variant = fibres.fastest(run, device).variant
    assert fibres.kernel(run, variant, device) is not None
    wrong = variant._replace(**changed)
    assert fibres.kernel(run, wrong, device) is None
    assert fibres.estimate(run, wrong, device) == math.inf


def test_runs_that_do_not_cover_the_modes_have_no_kernels():
    case = kron_case(6, "90")
    fibres = plan_of(*KRON[6], case[1], families=("fibres",))
    variant = choice_of(fibres)[0].variant
    for runs in [[(0, 1)], [(0, 2), (1, 2)], [(0, 3)], [(1, 0), (0, 2)], [(0, 0), (0, 2)]]:
        choice = tuple(RunChoice(*run, "fibres", variant) for run in runs)
        assert chosen_kernels(choice, *case) is None
    strange = FibreVariant(3, 1, 5, 7, 2)
    assert chosen_kernels((RunChoice(0, 2, "fibres", strange),), *case) is None


def test_large_complex_factors_are_left_to_panels_and_the_general_kernel():
    case = product([(32, 32)] * 2, 1024, 1, "c16"), DEVICES["90"]
    rule = rule_of(case)
    assert {one.family for one in rule} <= {"panels", "general"}
    smaller = {"registers", "fibres", "slices"}
    found = {one.family for choice in candidates(KronSpace(*case, rule)) for one in choice}
    assert {"panels", "general"} <= found
    assert not found & smaller
