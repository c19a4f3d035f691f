"""Shapes drawn at random: our operator and function next to the chains of other libraries."""

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import cupy
import numpy as np

import batchkron as bk
from benchmarks.core.device_timing import (
    REPLAYS,
    TOLERANCE,
    Contender,
    call_microseconds,
    eager_microseconds,
    eager_rounds,
    measured,
)
from benchmarks.gpu.cases.floors import kron_floor
from benchmarks.gpu.data import KronSubject, contender_of, given
from benchmarks.gpu.options import Choice
from benchmarks.gpu.parts.kron import peers_of
from benchmarks.gpu.peers import jax_chain
from benchmarks.gpu.report import Cell


class RandomSubject(KronSubject):
    """A Kron-Matmul whose entries may all be small by chance."""

    def error(self) -> float:
        """The largest error, relative to the largest entry or to a typical one."""
        # root mean square of an entry for standard normal x: a few may all be small by chance
        root = math.prod(float(np.linalg.norm(A) / len(A) ** 0.5) for A in self.factors)
        scale = max(float(np.abs(self.expected).max()), root)
        return float(np.abs(self.found - self.expected).max() / scale)


def random_cells(choice: Choice) -> Iterator[Cell]:
    """One shape: both ways of calling us, in a graph and eagerly, and all peers."""
    shape, dtype = choice.case.shape, choice.dtype
    subject = RandomSubject(shape, dtype)
    transposed = [cupy.asarray(np.ascontiguousarray(factor.T)) for factor in subject.factors]

    def function() -> list[Any]:
        return [partial(bk.gemkm, x, transposed, out=y) for x, y in subject.pairs]

    cell = Cell("random", shape.name, dtype, in_both_ways(subject, subject.calls))
    cell.floor = kron_floor(shape, dtype)
    cell.more["function"] = in_both_ways(subject, function)
    for name, make in peers_of(subject).items():
        cell.peers[name] = given(make) or in_both_ways(subject, make)
    cell.peers["JAX"] = by_jax(subject)
    yield cell


def in_both_ways(subject: KronSubject, make: Callable[[], Any]) -> dict[str, Any]:
    """Its time, and that of an eager call of the variant that is the fastest in a graph."""

    @cache
    def contender() -> Contender:
        return contender_of(make())

    found = measured(contender, subject.dtype, subject.out, subject.error)
    if "microseconds" in found:
        try:
            calls = contender().calls[found["variant"]]
            time = eager_microseconds(calls, contender().on, found["microseconds"])
            found["eager_microseconds"] = time
        except Exception as problem:
            found["eager_reason"] = f"{type(problem).__name__}: {problem}"[:200]
    return found


def by_jax(subject: KronSubject) -> dict[str, Any]:
    if absent := jax_chain.missing():
        return {"reason": absent}
    pairs = subject.pairs
    try:
        placed = [cupy.asarray(factor) for factor in subject.factors]
        cupy.cuda.Device().synchronize()
        chain = jax_chain.Chain(subject.shape, placed, [x for x, _ in pairs])
        chain.run()
        chain.wait()
        subject.out[...] = cupy.from_dlpack(chain.result)
        wrong = subject.error()
        if not wrong <= TOLERANCE[subject.dtype]:
            return {"reason": f"wrong result, relative error {wrong:.1e}"}
        first = call_microseconds(chain.run, 1, 1, chain.wait)
        time = call_microseconds(chain.run, eager_rounds(first), REPLAYS, chain.wait)
    except Exception as problem:
        return {"reason": f"not measured: {type(problem).__name__}: {problem}"[:200]}
    each = time / len(pairs)
    return {
        "microseconds": each,
        "eager_microseconds": each,
        "captured": False,
        "variant": "tensordot",
        "relative_error": wrong,
    }
