"""Shapes drawn at random: our operator and function next to the chains of other libraries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
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
from benchmarks.gpu.data import factors_of, vectors_of
from benchmarks.gpu.parts.kron import OURS, operator_calls, peers_of
from benchmarks.gpu.peers import jax_chain
from benchmarks.gpu.report.report import Cell
from benchmarks.random_shapes import Draw


def random_cells(draw: Draw) -> Iterator[Cell]:
    """One shape: both ways of calling us, in a graph and eagerly, and all peers."""
    shape, dtype = draw.shape, draw.dtype
    factors = factors_of(shape, dtype)
    op = bk.KroneckerProduct(factors)
    pairs = vectors_of(shape, dtype)
    x, out = pairs[-1]
    row = shape.rows // 2
    expected = op.apply(x[row].get())
    scale = max(float(np.abs(expected).max()), typical_entry(factors))

    def error() -> float:
        return float(np.abs(out[row].get() - expected).max() / scale)

    transposed = [cupy.asarray(np.ascontiguousarray(factor.T)) for factor in factors]

    def function() -> Contender:
        return Contender("gemkm", {"": [partial(bk.gemkm, x, transposed, out=y) for x, y in pairs]})

    def operator() -> Contender:
        return Contender(OURS, {"": operator_calls(op, pairs)})

    how = dtype, out, error
    cell = Cell("random", shape.name, dtype, in_both_ways(operator, *how))
    cell.floor = kron_floor(shape, dtype)
    cell.more["function"] = in_both_ways(function, *how)
    for name, make in peers_of(shape, factors, pairs).items():
        cell.peers[name] = make if isinstance(make, dict) else in_both_ways(make, *how)
    cell.peers["JAX"] = by_jax(draw, factors, pairs, error)
    yield cell


def typical_entry(factors: Sequence[Any]) -> float:
    """Root mean square of an entry of (A_1 ⊗ … ⊗ A_d) x for standard normal x.

    Rounding errors are in proportion to it, also where all entries of few are small by chance.
    """
    return math.prod(float(np.linalg.norm(A) / len(A) ** 0.5) for A in factors)


def in_both_ways(
    make: Callable[[], Contender], dtype: str, out: Any, error: Callable[[], float]
) -> dict[str, Any]:
    """`measured`, and the time of an eager call of the variant that is the fastest in a graph."""
    make_once = cache(make)
    found = measured(make_once, dtype, out, error)
    if "microseconds" in found:
        try:
            contender = make_once()
            calls = contender.calls[found["variant"]]
            time = eager_microseconds(calls, contender.on, found["microseconds"])
            found["eager_microseconds"] = time
        except Exception as problem:
            found["eager_reason"] = f"{type(problem).__name__}: {problem}"[:200]
    return found


def by_jax(
    draw: Draw, factors: Sequence[Any], pairs: Sequence[Any], error: Callable[[], float]
) -> dict[str, Any]:
    """JAX's time, which is that of an eager call; or why there is none."""
    if absent := jax_chain.missing():
        return {"reason": absent}
    out = pairs[-1][1]
    try:
        placed = [cupy.asarray(factor) for factor in factors]
        cupy.cuda.Device().synchronize()
        chain = jax_chain.Chain(draw.shape, placed, [x for x, _ in pairs])
        chain.run()
        chain.wait()
        out[...] = cupy.from_dlpack(chain.result)
        wrong = error()
        if not wrong <= TOLERANCE[draw.dtype]:
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
