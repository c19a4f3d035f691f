"""Kernels of products with identities between factors: what is multiplied, and what is computed."""

from itertools import product as pairs
from math import prod

import numpy as np
import pytest
from dense_oracle import dense_kron, random_array
from nvrtc import DEVICES
from plans import check_launch

from batchkron.backends.cuda.kron.choose import fastest_plan, product_of
from batchkron.backends.cuda.kron.search_space import (
    KronSpace,
    choice_of,
    chosen_kernels,
)
from batchkron.spec.identities import sizes_of, skipped_modes
from batchkron.spec.kron import KronSpec

LIMITS = DEVICES["90"]
PATTERNS = [  # shapes of factors (K, C), and identities between them
    [(4, 4), 512, (4, 4)],
    [(2, 2), 2, (2, 2)],
    [(3, 2), 4, (2, 5), 100, (4, 4)],
    [(8, 8), (8, 8), 16, (8, 8)],
    [(2, 2)] + [2] * 9 + [(2, 2)],
    [(40, 40), 3, (70, 20)],
]


def spec_of(pattern, outer, inner, dtype="float64"):
    factors = [one if isinstance(one, int) else np.empty(one) for one in pattern]
    outputs, inputs = sizes_of(factors)
    skipped = skipped_modes(factors)
    return KronSpec(inputs, outputs, outer, inner, np.dtype(dtype), skipped=skipped)


def computed(kernels, factors, x):
    """What the runs of kernels compute, one after another."""
    for kernel in kernels:
        run = kernel.work
        matrices = factors[run.first : run.first + len(run.inputs)]
        vectors = x.reshape(run.L, prod(run.inputs), run.R)
        x = np.einsum("pq,lqr->lpr", dense_kron(*matrices), vectors)
    return x.reshape(-1)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_runs_compute_the_product(rng, pattern):
    for (outer, inner), dtype in pairs([(1, 1), (300, 1), (5, 7)], ["f4", "c16"]):
        spec = spec_of(pattern, outer, inner, dtype)
        kernels = fastest_plan(product_of(spec, constant=False), LIMITS)
        for kernel in kernels:
            check_launch(kernel, LIMITS)
        factors = [
            np.eye(one) if isinstance(one, int) else random_array(rng, one) for one in pattern
        ]
        x = random_array(rng, outer * prod(spec.inputs) * inner)
        if x.size * prod(spec.outputs) > 1e7:
            continue
        expected = np.einsum(
            "pq,lqr->lpr", dense_kron(*factors), x.reshape(outer, prod(spec.inputs), inner)
        )
        np.testing.assert_allclose(computed(kernels, factors, x), expected.reshape(-1), atol=1e-9)


def multiplied(kernels):
    """The modes that kernels multiply."""
    return sorted(mode for kernel in kernels for mode in kernel.modes)


def test_what_is_skipped():
    large = fastest_plan(product_of(spec_of(PATTERNS[0], 64, 1), constant=False), LIMITS)
    assert multiplied(large) == [0, 2]
    assert [kernel.work.L * kernel.work.R for kernel in large] == [64 * 4 * 512] * 2
    small = fastest_plan(product_of(spec_of(PATTERNS[1], 2**22, 1), constant=False), LIMITS)
    assert multiplied(small) == [0, 1, 2]  # one pass over memory instead of two
    assert len(small) == 1


def test_choices_of_the_tuner():
    spec = spec_of(PATTERNS[0], 64, 1)
    case = product_of(spec, constant=False), LIMITS
    plan = fastest_plan(*case)
    rule = choice_of(plan)
    assert [one.work for one in chosen_kernels(rule, *case)] == [one.work for one in plan]
    assert chosen_kernels(rule[:1], *case) is None
    space = KronSpace(*case, rule)
    found = [choice for step in space.steps() for choice in step(rule)]
    assert found
    for choice in found:
        kernels = chosen_kernels(choice, *case)
        assert kernels is None or multiplied(kernels) == [0, 2]
