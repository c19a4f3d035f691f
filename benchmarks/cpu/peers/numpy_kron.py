"""NumPy's explicit Kronecker product."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial, reduce

import numpy as np

from benchmarks.core.checks import Array
from benchmarks.core.timing import Contender
from benchmarks.cpu.contenders import Peer
from benchmarks.cpu.data import ExplicitData
from benchmarks.shapes import Explicit


class NumPyKron(Peer):
    """`numpy.kron`, and the same as one broadcast multiply into memory that is there already."""

    name = "numpy.kron"
    shapes = (Explicit,)

    def version(self) -> str:
        """The version of NumPy."""
        return np.__version__

    def explicit(self, data: ExplicitData) -> Iterable[Contender]:
        """The function; for two factors the multiply with ``out`` under a name of its own."""
        # as many calls as others have outputs to rotate through, though this one allocates its own
        calls = [partial(reduce, np.kron, data.factors) for _ in data.outputs]
        yield Contender(self.name, "function", list(calls), returns=True)
        if len(data.factors) == 2:
            a, b = data.factors
            writes = [partial(broadcast, a, b, out) for out in data.outputs]
            yield Contender("numpy.multiply", "broadcast, out", list(writes))


def broadcast(a: Array, b: Array, out: Array) -> None:
    """Write A ⊗ B as one multiply of four indices."""
    blocks = out.reshape(len(a), len(b), a.shape[1], b.shape[1])
    np.multiply(a[:, None, :, None], b[None, :, None, :], out=blocks)
