"""Which kernel a batch list has; no device is needed."""

from dataclasses import replace

import numpy as np
import pytest
from device_strategies import dtypes, limits
from hypothesis import given, settings
from hypothesis import strategies as st
from nvrtc import DEVICES

from batchkron.backends.cuda.batch.kernel import BatchShape
from batchkron.backends.cuda.choose import families, kernel_of
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
def test_the_first_family_that_has_a_kernel_is_taken(shape, device):
    kernel = kernel_of("batch", shape, device)
    found = [family for family in families("batch") if family.kernel(shape, device)]
    assert kernel.family is found[0]
    with without(f"batch.{kernel.family.name}"):
        other = kernel_of("batch", shape, device)
        assert (other and other.family) is (found[1] if len(found) > 1 else None)
    assert kernel_of("batch", shape, device) == kernel


@settings(max_examples=100, deadline=None)
@given(lists, limits)
def test_launches_fit_the_device(shape, device):
    for family in families("batch"):
        kernel = family.kernel(shape, device)
        if kernel is None:
            continue
        how, names = kernel.launch, kernel.arguments.dtype.names
        assert 1 <= how.threads <= 1024
        assert how.shared_bytes <= device.shared_bytes
        assert how.blocks >= 1
        if "slots" in names:
            assert kernel.arguments["slots"] in (0, shape.max_products)


@pytest.mark.parametrize(
    ("changed", "name"), [({"inner": 2}, "general"), ({"owner": False}, "unsorted")], ids=str
)
def test_lists_of_no_single_vectors_or_no_order_have_kernels_of_their_own(changed, name):
    shape = shape_of([(4, 4)] * 2, np.dtype("f8"), 5000, 64)
    assert kernel_of("batch", shape, DEVICES["90"]).family.name not in ("general", "unsorted")
    assert kernel_of("batch", replace(shape, **changed), DEVICES["90"]).family.name == name


def test_lists_beyond_what_kernels_count_have_the_general_kernel():
    shape = shape_of([(2, 2)] * 2, np.dtype("f8"), 1, 1)
    for products, inputs, fits in [(2**30, 2**30, True), (2**31, 4, False), (4, 2**31, False)]:
        large = replace(shape, products=products, max_products=products, num_inputs=inputs)
        assert (kernel_of("batch", large, DEVICES["90"]).family.name != "general") is fits
