"""Which kernel a batch list has; no device is needed."""

from dataclasses import replace

import numpy as np
import pytest
from device_strategies import dtypes, limits
from hypothesis import given, settings
from hypothesis import strategies as st
from nvrtc import DEVICES

from batchkron.backends.cuda.batch.choose import fastest_kernel
from batchkron.backends.cuda.batch.families import FAMILIES
from batchkron.backends.cuda.batch.kernel import BatchShape
from batchkron.backends.cuda.kernel_family import without
from batchkron.backends.cuda.steps import plan_order, plan_steps

small_factors = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=6)
other_factors = st.sampled_from(
    [
        [(8, 8)] * 2,
        [(12, 12)] * 3,
        [(8, 8), (16, 16), (16, 16)],
        [(4, 4)] * 5,
        [(40, 30)],
        [(2, 2)] * 13,
    ]
)


def shape_of(factors, dtype, num_outputs, mean, **options):
    outputs, inputs = zip(*factors, strict=True)
    steps = plan_steps(inputs, outputs, plan_order(inputs, outputs), dtype)
    return BatchShape(
        steps=steps,
        dtype=dtype,
        products=num_outputs * mean,
        systems=1,
        num_inputs=7,
        num_outputs=num_outputs,
        input_size=int(np.prod(inputs)),
        output_size=int(np.prod(outputs)),
        max_products=2 * mean,
        short_ids=True,
        **{"owner": True, **options},
    )


lists = st.builds(
    shape_of,
    st.one_of(small_factors, other_factors),
    dtypes,
    st.integers(1, 5000),
    st.integers(1, 100),
    owner=st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(lists, limits)
def test_the_first_family_that_accepts_a_list_has_it(shape, device):
    kernel = fastest_kernel(shape, device)
    accepting = [family for family in FAMILIES if family.fastest(shape, device)]
    assert kernel.family is accepting[0]
    assert all(family.accepts(shape, device) for family in accepting)
    with without(f"batch.{kernel.family.name}"):
        other = fastest_kernel(shape, device)
        assert (other and other.family) is (accepting[1] if len(accepting) > 1 else None)
    assert fastest_kernel(shape, device) == kernel


@settings(max_examples=200, deadline=None)
@given(lists, limits)
def test_a_family_takes_the_variant_of_the_least_estimate(shape, device):
    for family in FAMILIES:
        kernel = family.fastest(shape, device)
        if kernel is None:
            continue
        assert family.kernel(shape, kernel.variant, device) == kernel
        variants = list(family.variants(shape, device))
        assert all(type(variant) is family.variant_type for variant in variants)
        least = min(family.estimate(shape, variant, device) for variant in variants)
        assert family.estimate(shape, kernel.variant, device) == least


@settings(max_examples=100, deadline=None)
@given(lists, limits)
def test_launches_fit_the_device(shape, device):
    for family in FAMILIES:
        kernel = family.fastest(shape, device)
        if kernel is None:
            continue
        how = kernel.launch(device)
        assert 1 <= how.threads <= 1024
        assert how.shared_bytes <= device.shared_bytes
        assert how.blocks >= 1
        assert kernel.slots() in (0, shape.max_products)


@pytest.mark.parametrize(
    ("changed", "name"), [({"inner": 2}, "general"), ({"owner": False}, "unsorted")], ids=str
)
def test_lists_of_no_single_vectors_or_no_order_have_kernels_of_their_own(changed, name):
    shape = shape_of([(4, 4)] * 2, np.dtype("f8"), 5000, 64)
    assert fastest_kernel(shape, DEVICES["90"]).family.name not in ("general", "unsorted")
    assert fastest_kernel(replace(shape, **changed), DEVICES["90"]).family.name == name


def test_lists_beyond_what_kernels_count_have_the_general_kernel():
    shape = shape_of([(2, 2)] * 2, np.dtype("f8"), 1, 1)
    for products, inputs, fits in [(2**30, 2**30, True), (2**31, 4, False), (4, 2**31, False)]:
        large = replace(shape, products=products, max_products=products, num_inputs=inputs)
        assert fastest_kernel(large, DEVICES["90"]).family.has_records is fits
