"""The choice of a Kron-Matmul's kernels: a shortest path from no mode to all modes.

A node of the graph is the number of modes that have been multiplied, in the order of least work. An
edge is a run of neighbouring modes that one kernel multiplies; its length is the smallest time that
a family estimates for it. Estimates include the launch, so small products get few kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache

import numpy as np

from batchkron.backends.cuda.kernel import Choice, Kernel, chosen_kernel, fastest_choice
from batchkron.backends.cuda.kernel_family import enabled, forgotten
from batchkron.backends.cuda.kron.families import FAMILIES
from batchkron.backends.cuda.kron.fibres.passes import PRODUCTS
from batchkron.backends.cuda.kron.kernel import KronFamily
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import ModeRun, plan_order
from batchkron.spec.kron import KronSpec

_MIN_LAUNCH = 0.9e-6  # seconds; no kernel in a CUDA graph took less (H100)
_MAX_RATE = 2e13  # bytes per second; twice what the second-level cache of an H200 delivers
_MAX_RUN = 16  # largest number of modes of one kernel, over all families
_MAX_PERMUTED = 8  # modes; of more rectangular factors only two orders are tried: it takes too long


def product_of(spec: KronSpec, constant: bool) -> ModeRun:
    """Return the run of all modes; ``constant``: factors may lie in a kernel's constant memory."""
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
        identities=spec.skipped,
    )


def fastest_plan(
    product: ModeRun, device: DeviceLimits, families: tuple[KronFamily, ...] = FAMILIES
) -> tuple[Kernel, ...]:
    """Return the kernels with the smallest estimated time, in the order in which they run.

    ``product``: all modes; ``families``: the families to choose from; those that are switched off
    are skipped. Empty if no family has a kernel for some mode.
    """
    return _fastest_plan(product, device, enabled(families))


_Path = tuple[float, tuple[tuple[ModeRun, Choice], ...]]  # seconds, and runs in their order


@forgotten
@lru_cache(maxsize=1024)
def _fastest_plan(
    product: ModeRun, device: DeviceLimits, families: tuple[KronFamily, ...]
) -> tuple[Kernel, ...]:
    @cache
    def edge_of(run: ModeRun) -> Choice | None:
        return fastest_choice(families, run, device)

    best: _Path = math.inf, ()
    for order in _orders(product):
        best = _shortest_path(product, order, edge_of, best)
    return tuple(chosen_kernel(choice, run, device) for run, choice in best[1])


def _orders(product: ModeRun) -> list[tuple[int, ...]]:
    """Return orders of modes to try: of rectangular factors several, that of least work first.

    Also backwards, and backwards with the last modes after all others, which is faster where they
    make the vectors longer. Identities are left out, or are modes like others.
    """
    least = plan_order(product.inputs, product.outputs)
    orders: list[tuple[int, ...]] = []
    for modes in product.multiplied:
        orders.append(tuple(mode for mode in least if mode in modes))
        if product.inputs == product.outputs:
            continue
        backwards = modes[::-1]
        orders.append(backwards)
        if len(backwards) <= _MAX_PERMUTED:
            orders += [backwards[-cut:] + backwards[:-cut] for cut in range(1, len(backwards))]
    return list(dict.fromkeys(orders))


def _shortest_path(
    product: ModeRun, order: Sequence[int], edge_of: Callable[[ModeRun], Choice | None], best: _Path
) -> _Path:
    """Return the fastest path that multiplies the modes in this order, ``best`` if none is faster.

    An edge is skipped if the path would not be faster even with a kernel that takes no longer than
    its launch and the transfer of its vectors.
    """
    count = len(order)
    paths: list[_Path] = [(math.inf, ())] * count + [best]
    paths[0] = 0.0, ()
    for done in range(count):
        seconds, edges = paths[done]
        for end in range(min(count, done + _MAX_RUN), done, -1):
            low, high = min(order[done:end]), max(order[done:end]) + 1
            if high - low != end - done:
                continue  # not neighbouring modes
            run = product.part(low, high, order[:done])
            launches = 2 if end < count else 1  # at least
            minimum = seconds + launches * _MIN_LAUNCH + run.bytes / _MAX_RATE
            if minimum >= min(paths[end][0], paths[count][0]):
                continue
            edge = edge_of(run)
            if edge is not None and seconds + edge[0] < paths[end][0]:
                paths[end] = seconds + edge[0], (*edges, (run, edge))
    return paths[count]
