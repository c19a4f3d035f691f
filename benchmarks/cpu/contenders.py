"""What takes part in a measurement: batchkron's calls, and what a peer has to offer."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

import batchkron as bk
from benchmarks.core.checks import Data
from benchmarks.core.timing import OUR_FUNCTION, OURS, Contender
from benchmarks.cpu.data import BatchData, ExplicitData, KronMatmulData


class Peer:
    """A library to compare with.

    ``kron_matmul``, ``batch`` and ``explicit`` offer its variants of x (A_1 ⊗ … ⊗ A_d), of a batch
    list, and of A_1 ⊗ … ⊗ A_d written out, where it has some.
    """

    name: str

    def missing(self) -> str | None:
        """Say why the peer cannot be measured on this machine, if so."""
        return None

    def version(self) -> str | None:
        raise NotImplementedError

    def maker(self, data: Data) -> Any:
        """What makes the variants for the data, None if there are none."""
        kinds = {KronMatmulData: "kron_matmul", BatchData: "batch", ExplicitData: "explicit"}
        return getattr(self, kinds[type(data)], None)  # type: ignore[index]


class Batchkron(Peer):
    """Ourselves, by public calls with ``out``; operators are built outside of the time."""

    name = OURS

    def kron_matmul(self, data: KronMatmulData) -> Iterable[Contender]:
        operator = bk.KroneckerProduct([factor.T for factor in data.factors])
        pairs = zip(data.inputs, data.outputs, strict=True)
        if data.shape.rows == 1:
            calls = [partial(operator.matvec, x[0], out[0]) for x, out in pairs]
        else:
            calls = [partial(operator.apply, x, out) for x, out in pairs]
        return [Contender(self.name, "operator", list(calls))]

    def batch(self, data: BatchData) -> Iterable[Contender]:
        """The batch operator, or the segmented mode multiply where only one mode acts."""
        blocks, mode = data.shape.blocks, data.shape.only
        operator: bk.BatchedKron | bk.SegmentedModeMultiply
        if mode is None:
            lists = data.pools, data.ids, data.sources, data.targets
            operator = bk.BatchedKron(*lists, num_inputs=blocks, num_outputs=blocks)
        else:
            starts = data.shape.contributions * np.arange(blocks + 1)
            before, behind = mode, data.shape.modes - 1 - mode
            operator = bk.SegmentedModeMultiply(
                *(data.pools[mode], starts, data.ids[:, mode], data.sources),
                before=data.shape.size**before,
                behind=data.shape.size**behind,
                num_inputs=blocks,
            )
        pairs = zip(data.inputs, data.outputs, strict=True)
        calls = [partial(operator.apply, *pair) for pair in pairs]
        return [Contender(self.name, "operator", calls)]

    def explicit(self, data: ExplicitData) -> Iterable[Contender]:
        calls = [partial(bk.kron, *data.factors, out=out) for out in data.outputs]
        return [Contender(self.name, "function", list(calls))]


class OurFunction(Peer):
    """Ourselves, by the function that takes the factors in each call."""

    name = OUR_FUNCTION

    def kron_matmul(self, data: KronMatmulData) -> Iterable[Contender]:
        pairs = zip(data.inputs, data.outputs, strict=True)
        calls = [partial(bk.gemkm, x, data.factors, out=out) for x, out in pairs]
        return [Contender(self.name, "gemkm", list(calls))]
