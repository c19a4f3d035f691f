"""The contenders on a CUDA device: ours on CuPy's arrays, the paper's baselines in torch."""

import math
import warnings
from contextlib import contextmanager
from functools import partial

import cupy
import numpy as np

import batchkron as bk
from benchmarks.core.device_timing import count_energy, first_time, power, timed
from benchmarks.core.records import machine
from benchmarks.core.timing import OURS
from benchmarks.gpu.cases.sparse_cases import SparseCase, shape_of
from benchmarks.gpu.compiling import compile_programs, sparse_programs
from benchmarks.gpu.peers import torch_chain
from benchmarks.gpu.peers.torch_sparse import MAKERS
from benchmarks.papers.results import Bench, DeviceLostError, text_of

MAX_BLOCK = 128  # rows of a block; Triton takes minutes for a larger one, which was never the best


def has_large_blocks(key):
    """Whether torch would compile a multiply by BSR with Triton: squares of a power of two."""
    (_, b, c, _), _, dtype, _ = key
    side = math.gcd(b, c)
    return side > MAX_BLOCK and side & (side - 1) == 0 and dtype != "float64"


@contextmanager
def on(stream):
    with torch_chain.torch.no_grad(), torch_chain.on(stream):
        yield


class CudaBench(Bench):
    """Runs contenders on one stream, in graphs where that is possible."""

    module = cupy

    def __init__(self, energy, commit, processes):
        if reason := torch_chain.missing():
            raise RuntimeError(reason)
        warnings.filterwarnings("ignore", module="torch")  # one for each shape of BSR
        self.machine = machine("cuda", commit)
        self._processes = processes
        self._compiled = set()
        self._values = (None, None)  # of the last problem: host, device
        if energy:
            count_energy()

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

        def theirs(make):
            with torch_chain.torch.no_grad():
                return make(torch_chain.torch, values, x, layout)

        def refused():
            raise RuntimeError(f"not measured: blocks of more than {MAX_BLOCK} rows")

        makers = {OURS: ours, **{name: partial(theirs, make) for name, make in MAKERS.items()}}
        return makers | ({"bsr": refused} if has_large_blocks(given.key) else {})

    def run(self, call):
        made = []
        first_time([lambda: made.append(call())], on)
        return made[0]

    def vectors(self, result, given):
        first = given.key[3] == "batch-first"
        sampled = given.sampled.tolist()
        found = result[sampled] if first else result[:, sampled].T
        if isinstance(result, cupy.ndarray):
            return found.get().astype(np.float64)
        return found.double().cpu().numpy()

    def once(self, call):
        return 1e-6 * first_time([call], on)

    def repeated(self, call):
        return 1e-6 * timed([call], on)

    def watts(self, call, seconds):
        return power([call], on, 1e6 * seconds)

    def release(self):
        try:
            cupy.cuda.Device().synchronize()
            cupy.get_default_memory_pool().free_all_blocks()
            torch_chain.torch.cuda.empty_cache()
        except Exception as error:
            raise DeviceLostError(text_of(error)) from error
