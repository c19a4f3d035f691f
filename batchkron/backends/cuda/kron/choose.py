"""The choice of a Kron-Matmul's kernels: a shortest path from no mode to all modes.

A node of the graph is the number of modes that have been multiplied, in the order of least work. An
edge is a run of neighbouring modes that one kernel multiplies; its length is the smallest time that
a family estimates for it. Estimates include the launch, so small products get few kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from batchkron.backends.cuda.kernel_family import enabled
from batchkron.backends.cuda.kron.families import FAMILIES
from batchkron.backends.cuda.kron.fibres.tf32 import PRODUCTS
from batchkron.backends.cuda.kron.kernel import KronFamily, KronKernel
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import ModeRun, plan_order
from batchkron.spec.kron import KronSpec

_MIN_LAUNCH = 0.9e-6  # seconds; no kernel in a CUDA graph took less (H100)
_MAX_RATE = 8e12  # bytes per second; no kernel moves more, from caches either
_MAX_RUN = 16  # largest number of modes of one kernel, over all families


def product_of(spec: KronSpec, constant: bool) -> ModeRun:
    """Return the run of all modes of a Kron-Matmul.

    ``constant``: whether factors may lie in a kernel's constant memory.
    """
    return ModeRun(
        first=0,
        inputs=spec.inputs,
        outputs=spec.outputs,
        L=spec.outer,
        R=spec.inner,
        dtype=spec.dtype,
        products=PRODUCTS[spec.precision] if spec.dtype == np.float32 else 0,
        constant=constant,
        fixed_columns=spec.inner == 1,
    )


def fastest_plan(
    product: ModeRun, device: DeviceLimits, families: tuple[KronFamily, ...] = FAMILIES
) -> tuple[KronKernel, ...]:
    """Return the kernels with the smallest estimated time, in the order in which they run.

    Parameters
    ----------
    product : ModeRun
        All modes.
    device : DeviceLimits
    families : tuple of KronFamily
        The families to choose from; those that are switched off are skipped.

    Returns
    -------
    tuple of KronKernel
        Empty if no family has a kernel for some mode.
    """
    return _fastest_plan(product, device, enabled(families))


@lru_cache(maxsize=1024)
def _fastest_plan(
    product: ModeRun, device: DeviceLimits, families: tuple[KronFamily, ...]
) -> tuple[KronKernel, ...]:
    orders = {tuple(plan_order(product.inputs, product.outputs))}
    if product.inputs != product.outputs:
        orders.add(tuple(reversed(range(len(product.inputs)))))
    best: tuple[float, tuple[KronKernel, ...]] = math.inf, ()
    for order in sorted(orders, reverse=True):
        best = _shortest_path(product, order, device, families, best)
    return best[1]


def _shortest_path(
    product: ModeRun,
    order: Sequence[int],
    device: DeviceLimits,
    families: Sequence[KronFamily],
    best: tuple[float, tuple[KronKernel, ...]],
) -> tuple[float, tuple[KronKernel, ...]]:
    """Return the fastest kernels that multiply the modes in this order, ``best`` if none is faster.

    An edge is skipped if the path would not be faster even with a kernel that takes no longer than
    its launch and the transfer of its vectors.
    """
    count = len(order)
    ways: list[tuple[float, tuple[KronKernel, ...]]] = [(math.inf, ())] * count + [best]
    ways[0] = 0.0, ()
    for done in range(count):
        seconds, kernels = ways[done]
        for end in range(min(count, done + _MAX_RUN), done, -1):
            low, high = min(order[done:end]), max(order[done:end]) + 1
            if high - low != end - done:
                continue  # not neighbouring modes
            run = product.part(low, high, order[:done])
            minimum = seconds + _min_seconds(run) + (_MIN_LAUNCH if end < count else 0.0)
            if minimum >= min(ways[end][0], ways[count][0]):
                continue
            found = (family.fastest(run, device) for family in families)
            kernel = min(filter(None, found), key=lambda one: one.seconds, default=None)
            if kernel is not None and seconds + kernel.seconds < ways[end][0]:
                ways[end] = seconds + kernel.seconds, (*kernels, kernel)
    return ways[count]


def _min_seconds(run: ModeRun) -> float:
    """Return a lower bound of the seconds that a kernel takes for a run."""
    return _MIN_LAUNCH + run.bytes / _MAX_RATE
