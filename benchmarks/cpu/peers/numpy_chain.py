"""NumPy: one matrix multiply for each factor, written with care."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.core.checks import Array
from benchmarks.core.timing import Contender
from benchmarks.cpu.contenders import Peer
from benchmarks.cpu.data import BatchData, KronMatmulData
from benchmarks.shapes import Batch, KronMatmul

BOUND = "NumPy, bound"
Step = Callable[[], Any]


class NumPy(Peer):
    """Chains of `numpy.matmul`.

    The bound chains are a peer of their own: the views that they multiply are made outside of the
    time. A function of x cannot do that, and it saves half of a tiny call.
    """

    name = "NumPy"
    shapes = (KronMatmul, Batch)

    def version(self) -> str:
        """The version of NumPy."""
        return np.__version__

    def kron_matmul(self, data: KronMatmulData) -> Iterable[Contender]:
        """The rotating chain; and chains whose views and buffers are bound to x and ``out``."""
        yield Contender(
            self.name,
            "rotating",
            [partial(rotate, data.factors[::-1], x) for x in data.inputs],
            returns=True,
        )
        pairs = list(zip(data.inputs, data.outputs, strict=True))
        yield Contender(
            BOUND,
            "rotating",
            [partial(run, rotating_steps(data, x, out)) for x, out in pairs],
        )
        yield Contender(
            BOUND,
            "mode by mode",
            [partial(run, mode_steps(data, x, out)) for x, out in pairs],
        )

    def batch(self, data: BatchData) -> Iterable[Contender]:
        """Gather, one batched multiply for each mode, sum over the contributions."""
        if data.shape.only is not None:
            return
        matrices = [pool[ids] for pool, ids in zip(data.pools, data.ids.T, strict=True)]
        pairs = list(zip(data.inputs, data.outputs, strict=True))
        for variant, multiply in (("batched matmul", by_matmul), ("batched einsum", by_einsum)):
            calls = [partial(gathered, data, matrices, multiply, x, out) for x, out in pairs]
            yield Contender(self.name, variant, list(calls))


def rotate(reversed_factors: list[Array], x: Array) -> Array:
    """Multiply the last mode and bring it to the front, once for each factor."""
    z = x
    for factor in reversed_factors:
        z = np.matmul(factor.T, z.reshape(-1, len(factor)).T)
    # the rows of x come last now, which makes no difference for one row
    return z if len(x) == 1 else np.ascontiguousarray(z.reshape(-1, len(x)).T)


def run(steps: list[Step]) -> None:
    """Call one prepared step after another."""
    for step in steps:
        step()


def rotating_steps(data: KronMatmulData, x: Array, out: Array) -> list[Step]:
    """The steps of `rotate` on views of the data's buffers."""
    rows, steps, z = len(x), list[Step](), x.reshape(-1)
    for count, factor in enumerate(reversed(data.factors)):
        p, q = factor.shape
        size = z.size // p * q
        straight = count == len(data.factors) - 1 and rows == 1
        target = out.reshape(-1) if straight else data.scratch[count % 2][:size]
        steps.append(
            partial(np.matmul, factor.T, z.reshape(-1, p).T, out=target.reshape(q, size // q))
        )
        z = target
    if rows > 1:
        steps.append(partial(np.copyto, out, z.reshape(-1, rows).T))
    return steps


def mode_steps(data: KronMatmulData, x: Array, out: Array) -> list[Step]:
    """Multiplies (L, P, R) to (L, Q, R) in the order of least work, on the data's buffers."""
    sizes, steps, z = [p for p, _ in data.shape.factors], list[Step](), x.reshape(-1)
    order = data.shape.cheapest_order
    for count, mode in enumerate(order):
        factor = data.factors[mode]
        before = len(x) * math.prod(sizes[:mode])
        after = math.prod(sizes[mode + 1 :])
        sizes[mode] = factor.shape[1]
        size = before * factor.shape[1] * after
        target = out.reshape(-1) if count == len(order) - 1 else data.scratch[count % 2][:size]
        shape = (before, -1) if after == 1 else (before, -1, after)
        source, result = z.reshape(shape), target.reshape(shape)
        operands = (source, factor) if after == 1 else (factor.T, source)
        steps.append(partial(np.matmul, *operands, out=result))
        z = target
    return steps


def by_matmul(matrices: Array, z: Array) -> Array:
    """matrices (B, n, n) times z (B, L, n, R)."""
    return np.asarray(np.matmul(matrices[:, None], z))


def by_einsum(matrices: Array, z: Array) -> Array:
    """matrices (B, n, n) times z (B, L, n, R)."""
    return np.asarray(np.einsum("bkc,blcr->blkr", matrices, z))


def gathered(
    data: BatchData,
    matrices: list[Array],
    multiply: Callable[[Array, Array], Array],
    x: Array,
    out: Array,
) -> None:
    """Compute all products, then add those of one output, which stand side by side."""
    products, n = data.shape.products, data.shape.size
    z = x[data.sources]
    for mode, chosen in enumerate(matrices):
        z = multiply(chosen, z.reshape(products, n**mode, n, -1))
    z.reshape(data.shape.blocks, data.shape.contributions, -1).sum(axis=1, out=out)
