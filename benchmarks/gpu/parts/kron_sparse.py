"""Kronecker-sparse matrices next to what torch offers: batched and dense multiplies, CSR, BSR."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property, partial
from typing import Any

import cupy
import numpy as np

import batchkron as bk
from batchkron.backends.cuda.kron_sparse.choose import fastest_way
from batchkron.backends.cuda.runtime.device import device_limits
from benchmarks.core.device_timing import (
    CACHE_BYTES,
    Contender,
    elapsed,
    measured,
    random_array,
    timed,
)
from benchmarks.gpu.cases.sparse_cases import BATCH, PEAKS, SparseCase, shape_of
from benchmarks.gpu.peers import torch_chain, torch_sparse
from benchmarks.gpu.report.report import Cell

MAX_BUFFER_SETS = 8
CHECKED = 6  # vectors of a result that are compared
# A peer whose flops at the chip's peak, or whose first call, take this many times as long as ours
# is not timed further: it cannot be the best one.
TOO_LONG = 4.0
OF_CALLS = 400.0  # µs that a peer's calls from Python may take, which graphs do without
COPIED = 1 << 28  # elements of float32
MAX_DENSE_BYTES = 4 << 30


class SparseData:
    """Values, and vectors that calls take in turn, in one dtype and layout."""

    def __init__(self, case: SparseCase, dtype: str) -> None:
        self.case, self.dtype = case, np.dtype(dtype)
        _, _, c, _ = case.pattern
        values = random_array(case.pattern, "float32").get() / np.sqrt(c)
        self.values = values.astype(dtype)
        self.first = case.layout == "batch-first"
        sets = max(1, min(MAX_BUFFER_SETS, CACHE_BYTES // case.bytes(dtype)))
        self.pairs = [
            (self._vectors(case.columns, seed), cupy.empty(self._shape(case.rows), dtype))
            for seed in range(sets)
        ]

    def _shape(self, size: int) -> tuple[int, int]:
        return (BATCH, size) if self.first else (size, BATCH)

    def _vectors(self, size: int, seed: int) -> Any:
        if self.dtype == np.float16:
            return random_array(self._shape(size), "float32", seed).astype("float16")
        return random_array(self._shape(size), self.dtype.name, seed)

    @cached_property
    def expected(self) -> tuple[Any, Any]:
        """Some vectors of the last result, in double precision."""
        a, _, c, d = self.case.pattern
        few = np.linspace(0, BATCH - 1, CHECKED).astype(int)
        x = self.pairs[-1][0]
        given = (x[few] if self.first else x[:, few].T).get().astype("f8")
        blocks = given.reshape(CHECKED, a, c, d)
        sums = np.einsum("nacd,abcd->nabd", blocks, self.values.astype("f8"), optimize=True)
        return few, sums.reshape(CHECKED, -1)

    def error(self) -> float:
        """The largest error of the last result, relative to the largest entry."""
        few, expected = self.expected
        y = self.pairs[-1][1]
        found = (y[few] if self.first else y[:, few].T).get().astype("f8")
        return float(np.abs(found - expected).max() / np.abs(expected).max())


def sparse_cells(case: SparseCase, dtype: str) -> Iterator[Cell]:
    """One case in one dtype."""
    data = SparseData(case, dtype)
    op = bk.KroneckerSparse(data.values, layout=case.layout).to("cuda")  # type: ignore[arg-type]
    last = data.pairs[-1][1]

    def ours() -> Contender:
        return Contender("batchkron", {"": [partial(op.apply, x, out=y) for x, y in data.pairs]})

    floors = case.floors(dtype, copy_rate())
    found = measured(ours, dtype, last, data.error)
    cell = Cell("kronecker-sparse", case.name, dtype, found)
    cell.floor = max(floors.values())
    shape = shape_of(case, dtype)
    way = fastest_way(shape, device_limits(cupy.cuda.Device().id))
    programs = dict.fromkeys(program.expression for program in way.programs())
    cell.more |= {"pattern": case.pattern, "layout": case.layout, "floors": floors}
    cell.more |= {"kernel": "; ".join(programs), "estimate": 1e6 * way.seconds}
    for name, peer in peers_of(data, found.get("microseconds")).items():
        cell.peers[name] = peer
    if cell.microseconds:
        cell.more["tflops"] = case.flops / cell.microseconds / 1e6
        cell.more["terabytes_per_second"] = case.bytes(dtype) / cell.microseconds / 1e6
    yield cell


def peers_of(data: SparseData, ours: float | None) -> dict[str, dict[str, Any]]:
    """The time of each peer, or the "reason" for there being none."""
    absent = torch_chain.missing()
    if absent:
        return {name: {"reason": absent} for name in torch_sparse.PEERS}
    values = torch_chain.tensor(cupy.asarray(data.values))
    pairs = [(torch_chain.tensor(x), torch_chain.tensor(y)) for x, y in data.pairs]
    found = {}
    for name, make in torch_sparse.PEERS.items():
        found[name] = _peer(data, name, partial(make, values, pairs, data.first), ours)
        torch_chain.torch.cuda.empty_cache()
    return found


def _peer(
    data: SparseData,
    name: str,
    make: Callable[[], dict[str, Sequence[Callable[[], object]]]],
    ours: float | None,
) -> dict[str, Any]:
    case, dtype = data.case, data.dtype.name
    if name == "dense":
        if case.rows * case.columns * data.dtype.itemsize > MAX_DENSE_BYTES:
            return {"reason": "not measured: the dense matrix is too large"}
        least = 1e6 * case.dense_flops / PEAKS[dtype]
        if ours is not None and least > TOO_LONG * ours:
            return {"reason": f"not measured: its flops take {TOO_LONG:g} times as long as ours"}

    def contender() -> Contender:
        calls = make()
        if ours is not None:
            least = min(_first_time(own[-1]) for own in calls.values())
            if least > TOO_LONG * ours + OF_CALLS:
                raise RuntimeError(f"a call took {least:.0f} µs, too long to be timed further")
        return Contender(name, calls, torch_chain.on)

    return measured(contender, dtype, data.pairs[-1][1], data.error)


def _first_time(call: Callable[[], object]) -> float:
    """Microseconds of a later call: the first one may load or choose something."""
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream, torch_chain.on(stream):
        call()
        return min(elapsed(stream, call) for _ in range(3))


@cache
def copy_rate() -> float:
    """Bytes per second through this device's memory, half of them read and half written."""
    x = cupy.zeros(COPIED, "f4")
    y = cupy.empty_like(x)
    timing = timed([partial(cupy.copyto, y, x)])
    return 2e6 * float(x.nbytes / timing.microseconds)
