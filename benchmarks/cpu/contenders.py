"""What takes part in a measurement: batchkron's calls, and what a peer has to offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import batchkron as bk
from benchmarks.cpu.data import Array, BatchData, Data, ExplicitData, KronMatmulData
from benchmarks.cpu.shapes import Batch, Explicit, KronMatmul, Shape

OURS = "batchkron"
OUR_FUNCTION = "batchkron's function"


@dataclass(frozen=True)
class Contender:
    """One way of computing a result: a call for each set of the data.

    The result is in the data's output, or, with ``returns``, what the call returns. ``keeps`` are
    arrays that the calls know by address only: they are kept alive here.
    """

    name: str
    variant: str
    calls: list[Callable[[], Any]]
    returns: bool = False
    keeps: Sequence[object] = ()

    def result(self, data: Data) -> Array:
        """Call once, on the first set."""
        returned = self.calls[0]()
        return np.asarray(returned) if self.returns else data.outputs[0]


@dataclass(frozen=True)
class Absent:
    """A way of computing a result that is not measured, and why."""

    name: str
    variant: str
    reason: str


class Peer:
    """A library to compare with, and the kinds of shapes that it is for.

    Each method offers its variants, or nothing if it has none.
    """

    name: str
    shapes: tuple[type[Shape], ...]

    def missing(self) -> str | None:
        """Say why the peer cannot be measured on this machine, if so."""
        return None

    def version(self) -> str:
        """The version that is measured."""
        raise NotImplementedError

    def kron_matmul(self, data: KronMatmulData) -> Iterable[Contender | Absent]:
        """Offer x (A_1 ⊗ … ⊗ A_d)."""
        return ()

    def batch(self, data: BatchData) -> Iterable[Contender | Absent]:
        """Offer a batch list."""
        return ()

    def explicit(self, data: ExplicitData) -> Iterable[Contender | Absent]:
        """Offer A_1 ⊗ … ⊗ A_d written out."""
        return ()

    def offers(self, data: Data) -> list[Contender | Absent]:
        """All variants for these data."""
        if isinstance(data, KronMatmulData):
            return list(self.kron_matmul(data))
        if isinstance(data, BatchData):
            return list(self.batch(data))
        assert isinstance(data, ExplicitData)
        return list(self.explicit(data))


class Batchkron(Peer):
    """Ourselves, by public calls with ``out``; operators are built outside of the time."""

    name = OURS
    shapes = (KronMatmul, Batch, Explicit)

    def version(self) -> str:
        """The version of the installed package."""
        return bk.__version__

    def kron_matmul(self, data: KronMatmulData) -> Iterable[Contender]:
        """The operator of the transposed factors, applied to every row."""
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
            operator = bk.BatchedKron(
                data.pools,
                data.ids,
                data.sources,
                data.targets,
                num_inputs=blocks,
                num_outputs=blocks,
            )
        else:
            operator = bk.SegmentedModeMultiply(
                data.pools[mode],
                data.shape.contributions * np.arange(blocks + 1),
                data.ids[:, mode],
                data.sources,
                before=data.shape.size**mode,
                behind=data.shape.size ** (data.shape.modes - 1 - mode),
                num_inputs=blocks,
            )
        pairs = zip(data.inputs, data.outputs, strict=True)
        return [
            Contender(self.name, "operator", [partial(operator.apply, *pair) for pair in pairs])
        ]

    def explicit(self, data: ExplicitData) -> Iterable[Contender]:
        """The function with ``out``."""
        calls = [partial(bk.kron, *data.factors, out=out) for out in data.outputs]
        return [Contender(self.name, "function", list(calls))]


class OurFunction(Peer):
    """Ourselves, by the function that takes the factors in each call."""

    name = OUR_FUNCTION
    shapes = (KronMatmul,)

    def version(self) -> str:
        """The version of the installed package."""
        return bk.__version__

    def kron_matmul(self, data: KronMatmulData) -> Iterable[Contender]:
        """`batchkron.gemkm` with ``out``."""
        pairs = zip(data.inputs, data.outputs, strict=True)
        calls = [partial(bk.gemkm, x, data.factors, out=out) for x, out in pairs]
        return [Contender(self.name, "gemkm", list(calls))]
