"""The contenders on a CUDA device: ours on CuPy's arrays, the paper's baselines in torch."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import cupy
import numpy as np

import batchkron as bk
from benchmarks.core.device_timing import elapsed
from benchmarks.core.energy import EnergyError, energy_counter, watts
from benchmarks.core.records import machine
from benchmarks.core.timing import OURS
from benchmarks.gpu.compiling import compile_program, outcomes, sparse_programs
from benchmarks.gpu.peers import torch_chain
from benchmarks.gpu.peers.torch_sparse import MAKERS
from benchmarks.papers.compiling import (
    BlockKind,
    NotCompiledError,
    block_kernels,
    block_kind,
    compile_blocks,
    not_compiled,
    shape_of,
)
from benchmarks.papers.measuring import Bench, DeviceLostError, Problem, text_of
from benchmarks.papers.results import Cell, Key

GRAPH_SECONDS = 4e-3  # about the length of a graph
MAX_CALLS = 64  # in a graph
REPLAYS = 5
BUSY_SECONDS = 2e-2  # of replays before the device is waited for, when energy is measured
COMPILE_SECONDS = 90.0  # of all kernels that are compiled at the same time
LARGE_SECONDS = 45.0  # of those of Triton for large blocks, which may not end
MAX_SMALL = 128  # rows of a block that is not large
MAX_FAILING = 2.0  # seconds of a failing multiply by BSR, after which it is not tried again

Call = Callable[[], Any]


class CudaBench(Bench):
    """Runs contenders on one stream, captured in graphs of torch where that is possible."""

    module = cupy

    def __init__(self, energy: bool, commit: str | None, processes: int) -> None:
        if reason := torch_chain.missing():
            raise RuntimeError(reason)
        warnings.filterwarnings("ignore", module="torch")  # one for each shape of BSR
        self.torch = torch_chain.torch
        self.machine = machine("cuda", commit)
        self._processes = processes
        self._compiled: set[object] = set()
        self._given_up: dict[BlockKind, str] = {}  # why BSR matrices are not multiplied
        self._values: tuple[Any, Any] = (None, None)  # of the last problem: host, device
        self._stream = cupy.cuda.Stream(non_blocking=True)
        device = cupy.cuda.Device().id
        self._counter = None
        if energy:
            self._counter = energy_counter(cupy.cuda.runtime.deviceGetPCIBusId(device))

    def _on(self) -> ExitStack:
        """Both libraries on the stream of all measurements, without gradients."""
        stack = ExitStack()
        stack.enter_context(self.torch.no_grad())
        stack.enter_context(self._stream)
        stack.enter_context(torch_chain.on(self._stream))
        return stack

    def compile(self, keys: Sequence[Key], cells: Iterable[Cell], seconds: float) -> bool:
        """Compile what cells need; False if so many seconds are too few.

        The cells of earlier runs say which kernels are not tried again.
        """
        if not self._processes:
            return True
        for key in not_compiled(cells):
            self._give_up(key, "not in an earlier run")
        begun = time.perf_counter()
        try:
            is_done = self._compile(keys, seconds)
        except Exception as error:  # what is not compiled ahead is compiled where it is measured
            print(f"not compiled ahead: {text_of(error)}")
            is_done = True
        print(f"compiled ahead: {time.perf_counter() - begun:.0f} s", flush=True)
        return is_done

    def _compile(self, keys: Sequence[Key], seconds: float) -> bool:
        known = self._compiled
        programs = [one for one in sparse_programs(map(shape_of, keys)) if one not in known]
        blocks = {
            kernel: key
            for kernel, key in block_kernels(keys).items()
            if kernel not in known and kernel[0] not in self._given_up
        }
        small: dict[object, Callable[[], None]] = {}
        large: dict[object, Callable[[], None]] = {}
        for kernel, key in blocks.items():
            group = large if kernel[0][0] > MAX_SMALL else small
            group[kernel] = partial(compile_blocks, key)
        small |= {one: partial(compile_program, one) for one in programs}
        if small or large:
            needed = COMPILE_SECONDS + LARGE_SECONDS
            if seconds < needed:
                print(f"{seconds:.0f} s are left, but to compile may take {needed:.0f}")
                return False
            print(f"{len(programs)} kernels, and {len(blocks)} of Triton", flush=True)
        # apart, since a process that dies takes all jobs with it
        for jobs, limit in ((small, COMPILE_SECONDS), (large, LARGE_SECONDS)):
            said = outcomes(list(jobs.values()), self._processes, limit)
            for what, one in zip(jobs, said, strict=True):
                if one:
                    print(f"not compiled: {what}: {one}"[:300])
                # to fail on large blocks may take as long each time
                is_lost = one is None or one.startswith("BrokenProcessPool") or jobs is large
                if one != "" and is_lost and what in blocks:
                    self._give_up(blocks[what], one or f"not in {limit:.0f} s")
        known |= {*programs, *blocks}
        return True

    def _give_up(self, key: Key, why: str) -> None:
        """Let BSR matrices with blocks as those of a cell fail from now on."""
        kind = block_kind(key)
        if kind is not None and kind not in self._given_up:
            self._given_up[kind] = why
            print(f"no more multiplies by BSR with blocks {kind}: {why}", flush=True)

    def _by_blocks(self, given: Problem, make: Callable[[], Call]) -> Call:
        """Make the multiply by a BSR matrix; if it takes long to fail, it is the last of its kind.

        Raises
        ------
        NotCompiledError
            If there has been such a one.
        """
        kind = block_kind(given.key)
        if kind in self._given_up:
            raise NotCompiledError(self._given_up[kind])
        call, begun = make(), time.perf_counter()
        try:
            self.run(call)
        except Exception as error:
            if time.perf_counter() - begun > MAX_FAILING:
                self._give_up(given.key, text_of(error))
            raise
        return call

    def _placed(self, values: Any) -> Any:
        """Return the values on the device, copied once for all problems that share them."""
        if self._values[0] is not values:
            self._values = values, cupy.asarray(values)
        return self._values[1]

    def prepare(self, given: Problem) -> Mapping[str, Callable[[], Call]]:
        """Return what makes each contender."""
        _, _, dtype, layout = given.key
        few, repeated = cupy.asarray(given.few), cupy.asarray(given.repeated)
        if layout == "batch-first":
            source = cupy.take(few, repeated, axis=0)
        else:
            source = cupy.take(cupy.ascontiguousarray(few.T), repeated, axis=1)
        values = torch_chain.tensor(self._placed(given.values))
        x = torch_chain.tensor(source)

        def ours() -> Call:
            op = bk.KroneckerSparse(given.values, layout=layout).to("cuda")  # type: ignore[arg-type]
            return partial(op.apply, source, out=cupy.full(given.shape, np.nan, dtype))

        def bound(make: Any) -> Call:
            with self._on():
                return make(self.torch, values, x, layout)  # type: ignore[no-any-return]

        def ours_bound() -> Call:
            with self._on():
                return ours()

        cupy.cuda.Device().synchronize()
        makers = {OURS: ours_bound, **{name: partial(bound, make) for name, make in MAKERS.items()}}
        makers["bsr"] = partial(self._by_blocks, given, makers["bsr"])
        return makers

    def run(self, call: Call) -> Any:
        """Return the result of a call."""
        with self._on():
            result = call()
            self._stream.synchronize()
        return result

    def vectors(self, result: Any, given: Problem) -> Any:
        """Return the sampled vectors of a result, one in each row, in double precision."""
        first = given.key[3] == "batch-first"
        sampled = given.sampled.tolist()
        found = result[sampled] if first else result[:, sampled].T
        if isinstance(result, cupy.ndarray):
            return found.get().astype(np.float64)
        return found.double().cpu().numpy()

    def once(self, call: Call) -> float:
        """Return the seconds of one call."""
        with self._on():
            self._stream.synchronize()
            return 1e-6 * elapsed(self._stream, call)

    def repeated(self, call: Call) -> float:
        """Return the median seconds of a call over replays of a graph, or over eager calls."""
        seconds = self.once(call)
        calls = self._calls(seconds)
        work = self._work(call, calls)
        with self._on():
            work()
            times = [elapsed(self._stream, work) for _ in range(REPLAYS)]
        return 1e-6 * statistics.median(times) / calls

    @staticmethod
    def _calls(seconds: float) -> int:
        """How many calls of so many seconds are in a graph."""
        return max(1, min(MAX_CALLS, int(GRAPH_SECONDS / max(seconds, 1e-6))))

    def _work(self, call: Call, calls: int) -> Call:
        """Return what replays a graph of short calls; long ones are called one after another."""

        def eager() -> None:
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
        return graph.replay  # type: ignore[no-any-return]

    def watts(self, call: Call, seconds: float) -> float:
        """Return the power while calls of so many seconds follow each other."""
        if self._counter is None:
            raise EnergyError("not measured: give --energy")
        calls = self._calls(seconds)
        work = self._work(call, calls)
        rounds = max(1, int(BUSY_SECONDS / (calls * seconds)))

        def busy() -> None:
            for _ in range(rounds):
                work()
            self._stream.synchronize()

        with self._on():
            return watts(busy, self._counter)

    def release(self) -> None:
        """Free what contenders took.

        Raises
        ------
        DeviceLostError
            If the device works no more, as after an access to memory of others.
        """
        try:
            cupy.cuda.Device().synchronize()
            cupy.get_default_memory_pool().free_all_blocks()
            self.torch.cuda.empty_cache()
        except Exception as error:
            raise DeviceLostError(text_of(error)) from error
