"""What tuning tries for a batch list: the choice by estimate (the rule) is in it, and all fit."""

import dataclasses
import random
from itertools import islice

import numpy as np
import pytest
from nvrtc import DEVICES, compile_program

from batchkron.backends.cuda.batch.kernel import BatchShape
from batchkron.backends.cuda.batch.registers import (
    BatchSpace,
    output_group_counts,
    read_variant,
    registers_kernel,
    tiling_of,
    written_variant,
)
from batchkron.backends.cuda.runtime.cubin import resources
from batchkron.backends.cuda.runtime.program import compile_options, device_sources
from batchkron.backends.cuda.steps import plan_order, plan_steps

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
MAX_CANDIDATES = 20  # variants that a test looks at in each step


def space_of(index, device):
    """The kernel of a list by the rule, and what tuning chooses from."""
    factors, products, outputs, dtype = LISTS[index]
    K, C = ([shape[axis] for shape in factors] for axis in (0, 1))
    steps = plan_steps(C, K, plan_order(C, K), np.dtype(dtype))
    sizes = int(np.prod(C)), int(np.prod(K))
    shape = BatchShape(steps, np.dtype(dtype), products, 1, 9, outputs, *sizes, owner=True)
    kernel = registers_kernel(dataclasses.replace(shape, short_ids=True), device)
    return kernel, BatchSpace(kernel, device)


def candidates(space, maximum=MAX_CANDIDATES):
    """Variants of every step around the rule's."""
    for step in space.steps():
        yield from islice(step(space.rule), maximum)


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize("index", range(len(LISTS)))
def test_every_candidate_of_a_list_fits(index, capability):
    device = DEVICES[capability]
    rule, space = space_of(index, device)
    assert registers_kernel(rule.work, device, space.rule) == rule
    found = set()
    for variant in candidates(space):
        tiling = tiling_of(rule.work, variant, device)
        ((_, launch),) = space.kernels(variant)
        assert 0 < launch.threads <= 1024
        assert launch.shared_bytes <= device.shared_bytes
        assert tiling.groups_per_output in output_group_counts(tiling)
        assert tiling.cluster == 1 or tiling.outputs == 1
        assert tiling.block % tiling.loaders == 0
        assert 2 <= tiling.stages <= 4
        kinds = rule.work.short_ids, rule.work.identities
        assert (tiling.short_ids, tiling.identities) == kinds
        assert read_variant(written_variant(variant)) == variant
        found.add(tiling)
    assert tiling_of(rule.work, rule.variant, device) in found
    assert len(found) > 5


@pytest.mark.slow
def test_candidates_compile():
    """One candidate of each list, drawn at random, meets what the template requires."""
    draw = random.Random(5)
    for index in range(len(LISTS)):
        _, space = space_of(index, DEVICES["90"])
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
    "registers",
    [[]],
    [0, 64, 2, 1],
    [0, 64, 2, 1, 1, 1],
    [0, 64, 2, 1, True],
    [0, 64, 2, 1, 1.0],
]


@pytest.mark.parametrize("data", WRONG, ids=repr)
def test_what_is_no_variant_is_not_read(data):
    assert read_variant(data) is None


@pytest.mark.parametrize(
    "changed",
    [{"held": 7}, {"block": 48}, {"stages": 5}, {"groups_per_output": 7}, {"cached": 2}],
    ids=repr,
)
def test_variants_that_do_not_fit_have_no_kernel(changed):
    rule, space = space_of(2, DEVICES["90"])
    assert space.kernels(space.rule) is not None
    wrong = space.rule._replace(**changed)
    assert registers_kernel(rule.work, DEVICES["90"], wrong) is None
    assert space.kernels(wrong) is None
