"""Which kernels a Kron-Matmul has: the shortest path from no mode done to all modes done.

A node is the number of modes that are done, in the order of least work. An edge is a run of
neighbouring modes that one kernel does; its length is the least time that a family estimates for
it. A launch is part of every edge, so that few rows need no rule of their own.
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

_MIN_LAUNCH = 0.9e-6  # seconds: no kernel in a graph took less on an H100
_MAX_RATE = 8e12  # bytes a second: no kernel moves more, in caches either
_MAX_RUN = 16  # modes: no family takes more


def product_of(spec: KronSpec, constant: bool) -> ModeRun:
    """Return all modes of a Kron-Matmul; ``constant``: factors may be constants of kernels."""
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
    """Return the kernels of the least estimated time, in the order in which they run.

    Parameters
    ----------
    product : ModeRun
        All modes.
    device : DeviceLimits
    families : tuple of KronFamily
        Those to choose from, but for those that are switched off.

    Returns
    -------
    tuple of KronKernel
        Empty where no family takes some mode.
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
    """Return the fastest kernels that do the modes in this order, or ``best`` if none are faster.

    Edges are left out that cannot be part of a faster way: whatever their kernels are, they are
    launched, and move their vectors.
    """
    count = len(order)
    ways: list[tuple[float, tuple[KronKernel, ...]]] = [(math.inf, ())] * count + [best]
    ways[0] = 0.0, ()
    for done in range(count):
        seconds, kernels = ways[done]
        for end in range(min(count, done + _MAX_RUN), done, -1):
            low, high = min(order[done:end]), max(order[done:end]) + 1
            if high - low != end - done:
                continue  # they are no neighbours
            run = product.part(low, high, order[:done])
            minimum = seconds + _least(run) + (_MIN_LAUNCH if end < count else 0.0)
            if minimum >= min(ways[end][0], ways[count][0]):
                continue
            found = (family.fastest(run, device) for family in families)
            kernel = min(filter(None, found), key=lambda one: one.seconds, default=None)
            if kernel is not None and seconds + kernel.seconds < ways[end][0]:
                ways[end] = seconds + kernel.seconds, (*kernels, kernel)
    return ways[count]


def _least(run: ModeRun) -> float:
    """Return the seconds that any kernel takes for a run."""
    return _MIN_LAUNCH + run.bytes / _MAX_RATE
