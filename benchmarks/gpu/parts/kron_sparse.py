"""Kronecker-sparse matrices next to what torch offers: batched and dense multiplies, CSR, BSR."""

from functools import cache, cached_property, partial

import cupy
import numpy as np

import batchkron as bk
from batchkron.backends.cuda.kron_sparse.choose import fastest_way
from batchkron.backends.cuda.kron_sparse.transposed import programs_of, seconds_of
from batchkron.backends.cuda.runtime.device import device_limits
from benchmarks.core.device_timing import elapsed, random_array, timed
from benchmarks.gpu.cases.sparse_cases import PEAKS, shape_of
from benchmarks.gpu.data import Subject, pairs_of
from benchmarks.gpu.peers import torch_chain
from benchmarks.gpu.peers.torch_sparse import MAKERS
from benchmarks.gpu.report import Cell

PEERS = {"bmm": "bmm", "einsum": "einsum", "dense": "dense", "CSR": "sparse", "BSR": "bsr"}
CHECKED = 6  # vectors of a result that are compared
# A peer whose flops at the chip's peak, or whose first call, take this many times as long as ours
# is not timed further: it cannot be the best one.
TOO_LONG = 4.0
OF_CALLS = 400.0  # µs that a peer's calls from Python may take, which graphs do without
COPIED = 1 << 28  # elements of float32
MAX_DENSE_BYTES = 4 << 30


class SparseData(Subject):
    """Values, and vectors that calls take in turn, in one dtype and layout."""

    def __init__(self, case, dtype):
        self.case, self.dtype, self.tolerance = case, dtype, dtype
        _, _, c, _ = case.pattern
        values = random_array(case.pattern, "float32").get() / np.sqrt(c)
        self.values = values.astype(dtype)
        self.first = case.layout == "batch-first"
        self.pairs = pairs_of(
            lambda seed: (
                random_array(self._shape(case.columns), dtype, seed),
                cupy.empty(self._shape(case.rows), dtype),
            ),
            case.bytes(dtype),
        )
        self.out = self.pairs[-1][1]
        self.result = None  # of a peer, which allocates it
        self.few = np.linspace(0, case.batch - 1, CHECKED).astype(int)

    def calls(self):
        layout = self.case.layout
        op = bk.KroneckerSparse(self.values, layout=layout).to("cuda")
        return [partial(op.apply, x, out=y) for x, y in self.pairs]

    def _shape(self, size):
        return (self.case.batch, size) if self.first else (size, self.case.batch)

    def _vectors_of(self, array):
        return (array[self.few] if self.first else array[:, self.few].T).get().astype("f8")

    @cached_property
    def expected(self):
        a, _, c, d = self.case.pattern
        blocks = self._vectors_of(self.pairs[-1][0]).reshape(CHECKED, a, c, d)
        sums = np.einsum("nacd,abcd->nabd", blocks, self.values.astype("f8"), optimize=True)
        return sums.reshape(CHECKED, -1)

    @property
    def found(self):
        return self._vectors_of(self.out if self.result is None else cupy.asarray(self.result))


def sparse_cells(choice):
    case, dtype = choice.case, choice.dtype
    data = SparseData(case, dtype)
    floors = case.floors(dtype, copy_rate())
    cell = Cell("kronecker-sparse", case.name, dtype, data.time_of(data.calls))
    cell.floor = max(floors.values())
    way = fastest_way(shape_of(case, dtype), device_limits(cupy.cuda.Device().id))
    programs = dict.fromkeys(program.expression for program in programs_of(way))
    cell.more |= {"pattern": case.pattern, "layout": case.layout, "floors": floors}
    cell.more |= {"kernel": "; ".join(programs), "estimate": 1e6 * seconds_of(way)}
    cell.peers |= peers_of(data, cell.microseconds)
    cell.add_rates(tflops=case.flops, terabytes_per_second=case.bytes(dtype))
    yield cell


def peers_of(data, ours):
    if absent := torch_chain.missing():
        return {name: {"reason": absent} for name in PEERS}
    found, makers = {}, peer_calls(data, PEERS.values())
    for name, maker in PEERS.items():
        found[name] = _peer(data, name, makers[maker], ours)
        data.result = None
        torch_chain.torch.cuda.empty_cache()
    return found


def peer_calls(data, names):
    """What makes the calls of torch's ways, on the same vectors as ours."""
    values = torch_chain.tensor(cupy.asarray(data.values))
    inputs = [torch_chain.tensor(x) for x, _ in data.pairs]
    torch, layout = torch_chain.torch, data.case.layout

    def calls(name):
        return [MAKERS[name](torch, values, x, layout) for x in inputs]

    return {name: partial(calls, name) for name in names}


def too_long(case, dtype, ours):
    """Why the dense multiply is not measured, if so."""
    if case.rows * case.columns * np.dtype(dtype).itemsize > MAX_DENSE_BYTES:
        return "not measured: the dense matrix is too large"
    if ours is not None and 1e6 * case.dense_flops / PEAKS[dtype] > TOO_LONG * ours:
        return f"not measured: its flops take {TOO_LONG:g} times as long as ours"
    return ""


def _peer(data, name, make, ours):
    if name == "dense" and (reason := too_long(data.case, data.dtype, ours)):
        return {"reason": reason}

    def keep(call):
        data.result = None  # the memory of the last one
        data.result = call()

    def contender():
        made = make()
        if ours is not None and (least := _first_time(made[-1])) > TOO_LONG * ours + OF_CALLS:
            raise RuntimeError(f"a call took {least:.0f} µs, too long to be timed further")
        return {"": [partial(keep, call) for call in made]}, torch_chain.on

    return data.time_of(contender)


def _first_time(call):
    """Microseconds of a later call: the first one may load or choose something."""
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream, torch_chain.on(stream):
        call()
        return min(elapsed(stream, call) for _ in range(3))


@cache
def copy_rate():
    """Bytes per second through this device's memory, half of them read and half written."""
    x = cupy.zeros(COPIED, "f4")
    y = cupy.empty_like(x)
    return 2e6 * float(x.nbytes / timed([partial(cupy.copyto, y, x)]))
