"""The contenders on a CUDA device: ours on CuPy's arrays, the paper's baselines in torch."""

import math
import statistics
import warnings
from contextlib import ExitStack
from functools import partial

import cupy
import numpy as np

import batchkron as bk
from benchmarks.core.device_timing import elapsed
from benchmarks.core.energy import EnergyError, energy_counter, watts
from benchmarks.core.records import machine
from benchmarks.core.timing import OURS
from benchmarks.gpu.cases.sparse_cases import SparseCase, shape_of
from benchmarks.gpu.compiling import compile_programs, sparse_programs
from benchmarks.gpu.peers import torch_chain
from benchmarks.gpu.peers.torch_sparse import MAKERS
from benchmarks.papers.results import Bench, DeviceLostError, text_of

GRAPH_SECONDS = 4e-3  # about the length of a graph
MAX_CALLS = 64  # in a graph
REPLAYS = 5
BUSY_SECONDS = 2e-2  # of replays before the device is waited for, when energy is measured
MAX_BLOCK = 128  # rows of a block; Triton takes minutes for a larger one, which was never the best


def has_large_blocks(key):
    """Whether torch would compile a multiply by BSR with Triton: squares of a power of two."""
    (_, b, c, _), _, dtype, _ = key
    side = math.gcd(b, c)
    return side > MAX_BLOCK and side & (side - 1) == 0 and dtype != "float64"


class CudaBench(Bench):
    """Runs contenders on one stream, captured in graphs of torch where that is possible."""

    module = cupy

    def __init__(self, energy, commit, processes):
        if reason := torch_chain.missing():
            raise RuntimeError(reason)
        warnings.filterwarnings("ignore", module="torch")  # one for each shape of BSR
        self.torch = torch_chain.torch
        self.machine = machine("cuda", commit)
        self._processes = processes
        self._compiled = set()
        self._values = (None, None)  # of the last problem: host, device
        self._stream = cupy.cuda.Stream(non_blocking=True)
        device = cupy.cuda.Device().id
        self._counter = None
        if energy:
            self._counter = energy_counter(cupy.cuda.runtime.deviceGetPCIBusId(device))

    def _on(self):
        stack = ExitStack()
        stack.enter_context(self.torch.no_grad())
        stack.enter_context(self._stream)
        stack.enter_context(torch_chain.on(self._stream))
        return stack

    def compile(self, keys):
        shapes = (shape_of(SparseCase(p, layout, n), dtype) for p, n, dtype, layout in keys)
        found = sparse_programs(shapes)
        programs = [one for one in found if one not in self._compiled]
        compile_programs(programs, self._processes)
        self._compiled.update(programs)

    def prepare(self, given):
        _, _, dtype, layout = given.key
        few, repeated = cupy.asarray(given.few), cupy.asarray(given.repeated)
        if layout == "batch-first":
            source = cupy.take(few, repeated, axis=0)
        else:
            source = cupy.take(cupy.ascontiguousarray(few.T), repeated, axis=1)
        if self._values[0] is not given.values:  # several problems share them
            self._values = given.values, cupy.asarray(given.values)
        values = torch_chain.tensor(self._values[1])
        x = torch_chain.tensor(source)

        def ours():
            op = bk.KroneckerSparse(given.values, layout=layout).to("cuda")
            return partial(op.apply, source, out=cupy.full(given.shape, np.nan, dtype))

        def bound(make):
            with self._on():
                return make(self.torch, values, x, layout)

        def ours_bound():
            with self._on():
                return ours()

        def refused():
            raise RuntimeError(f"not measured: blocks of more than {MAX_BLOCK} rows")

        cupy.cuda.Device().synchronize()
        makers = {OURS: ours_bound, **{name: partial(bound, make) for name, make in MAKERS.items()}}
        return makers | ({"bsr": refused} if has_large_blocks(given.key) else {})

    def run(self, call):
        with self._on():
            result = call()
            self._stream.synchronize()
        return result

    def vectors(self, result, given):
        first = given.key[3] == "batch-first"
        sampled = given.sampled.tolist()
        found = result[sampled] if first else result[:, sampled].T
        if isinstance(result, cupy.ndarray):
            return found.get().astype(np.float64)
        return found.double().cpu().numpy()

    def once(self, call):
        with self._on():
            self._stream.synchronize()
            return 1e-6 * elapsed(self._stream, call)

    def repeated(self, call):
        seconds = self.once(call)
        calls = self._calls(seconds)
        work = self._work(call, calls)
        with self._on():
            work()
            times = [elapsed(self._stream, work) for _ in range(REPLAYS)]
        return 1e-6 * statistics.median(times) / calls

    @staticmethod
    def _calls(seconds):
        return max(1, min(MAX_CALLS, int(GRAPH_SECONDS / max(seconds, 1e-6))))

    def _work(self, call, calls):
        """Return what replays a graph of short calls; long ones are called one after another."""

        def eager():
            for _ in range(calls):
                call()

        if calls == 1:
            return eager
        graph = self.torch.cuda.CUDAGraph()
        try:
            with self._on():
                graph.capture_begin(capture_error_mode="relaxed")
                try:
                    eager()
                finally:
                    graph.capture_end()
        except Exception:
            # a failed capture leaves the stream unusable
            self._stream = cupy.cuda.Stream(non_blocking=True)
            return eager
        return graph.replay

    def watts(self, call, seconds):
        if self._counter is None:
            raise EnergyError("not measured: give --energy")
        calls = self._calls(seconds)
        work = self._work(call, calls)
        rounds = max(1, int(BUSY_SECONDS / (calls * seconds)))

        def busy():
            for _ in range(rounds):
                work()
            self._stream.synchronize()

        with self._on():
            return watts(busy, self._counter)

    def release(self):
        try:
            cupy.cuda.Device().synchronize()
            cupy.get_default_memory_pool().free_all_blocks()
            self.torch.cuda.empty_cache()
        except Exception as error:
            raise DeviceLostError(text_of(error)) from error
