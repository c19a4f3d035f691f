"""Plans of Kron-Matmuls by kernel families, and checks that every plan must pass."""

from contextlib import contextmanager
from importlib import import_module
from math import prod

import numpy as np

from batchkron.backends.cuda.batch.kernel import BatchShape
from batchkron.backends.cuda.kernel_family import forget_plans
from batchkron.backends.cuda.kron.choose import _fastest_plan, fastest_plan, product_of
from batchkron.backends.cuda.kron.families import FAMILY_OF
from batchkron.backends.cuda.steps import ModeRun, plan_order, plan_steps
from batchkron.spec.kron import KronSpec


def product(shapes, rows, columns, dtype, precision=None, constant=False):
    """All modes of a Kron-Matmul with factors of these shapes (K, C)."""
    outputs, inputs = (tuple(shape[axis] for shape in shapes) for axis in (0, 1))
    spec = KronSpec(inputs, outputs, rows, columns, np.dtype(dtype), precision)
    return product_of(spec, constant)


def square_run(sizes, L, R, dtype, first=0):
    """A run of square factors, as a plan's kernel is given it."""
    return ModeRun(first, tuple(sizes), tuple(sizes), L, R, np.dtype(dtype))


def plan_of(
    shapes, rows, columns, dtype, device, precision=None, constant=False, families=FAMILY_OF
):
    """The kernels of the least estimated time, of these families: none where they take no mode."""
    whole = product(shapes, rows, columns, dtype, precision, constant)
    return fastest_plan(whole, device, tuple(FAMILY_OF[name] for name in families))


def seconds_of(kernels):
    """The estimated time of kernels one after another."""
    return sum(kernel.seconds for kernel in kernels)


def check_runs(kernels, whole):
    """Every mode is done once, and each kernel reads what the one before has written."""
    sizes = list(whole.inputs)
    done = []
    for kernel in kernels:
        run = kernel.work
        low, high = run.first, run.first + len(run.inputs)
        assert run.inputs == whole.inputs[low:high]
        assert run.outputs == whole.outputs[low:high]
        assert sorted(kernel.modes) == list(range(low, high))
        assert whole.L * prod(sizes[:low]) == run.L
        assert prod(sizes[high:]) * whole.R == run.R
        sizes[low:high] = run.outputs
        assert kernel.work.results == whole.L * prod(sizes) * whole.R
        assert (run.dtype, run.products, run.constant) == (
            whole.dtype,
            whole.products,
            whole.constant,
        )
        done += range(low, high)
    assert sorted(done) == list(range(len(whole.inputs)))


def check_launch(kernel, device):
    """A kernel's thread blocks fit the device, and have work."""
    shape = kernel.launch
    assert 0 < shape.blocks < 2**31
    assert 0 < shape.threads <= 1024
    assert shape.threads * shape.resident <= 2048
    assert 0 <= shape.shared_bytes <= device.shared_bytes
    assert shape.resident * (shape.shared_bytes + 1024) <= device.shared_bytes + 1024
    assert shape.workspace >= 0


def list_shape(factors, dtype, outputs, products, maximum=0, short_ids=True, identities=False):
    """A batch list of single vectors with factors (rows, columns), sums in a fixed order."""
    rows, columns = zip(*factors, strict=True)
    steps = plan_steps(columns, rows, plan_order(columns, rows), np.dtype(dtype))
    sizes = prod(columns), prod(rows)
    numbers = products, 1, 1, outputs, *sizes, True, 1, maximum
    return BatchShape(steps, np.dtype(dtype), *numbers, short_ids, identities)


@contextmanager
def preferred(name):
    """Inside of the block, this family alone has the Kron-Matmuls of which it takes all modes."""
    plan = import_module("batchkron.backends.cuda.kron.plan")
    family, choose = (FAMILY_OF[name],), plan.fastest_plan

    def prefer(whole, device):
        _fastest_plan.cache_clear()  # a test may have changed the family's variants
        return choose(whole, device, family) or choose(whole, device)

    plan.fastest_plan = prefer
    forget_plans()
    try:
        yield
    finally:
        plan.fastest_plan = choose
        forget_plans()
