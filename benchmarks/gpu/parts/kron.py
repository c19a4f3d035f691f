"""Kron-Matmuls, also of random shapes, next to other libraries, and the gain of fusing factors."""

import math
from functools import cache, partial

import cupy
import numpy as np

import batchkron as bk
from benchmarks.core import device_timing
from benchmarks.gpu.cases.cases import kron_bytes, kron_floor, precision_floor
from benchmarks.gpu.data import KronSubject, buffers_of, contender_of, given, subject_of
from benchmarks.gpu.peers import cublas, jax_chain, torch_chain
from benchmarks.gpu.peers.chains import chain, places, run_all
from benchmarks.gpu.report import Cell


def kron_cells(choice):
    case = choice.case
    part, dtype = choice.part, choice.dtype
    subject = subject_of(choice)
    if subject is None:
        yield Cell(part, case.name, dtype, {"reason": "not measured: no row fits in memory"})
        return
    shape = subject.shape
    cell = Cell(part, case.name, dtype, subject.time_of(subject.calls))
    cell.goal, cell.recorded = case.figures[dtype]
    if shape.rows < case.shape.rows:
        cell.note = f"{shape.rows} rows, as many as fit in memory"
    cell.add_rates(tflops=shape.flops)
    if part == "precision":
        cell.floor = precision_floor(shape, dtype)
        cell.peers["full"] = subject.time_of(partial(subject.calls, full=True), "float32")
    else:
        cell.floor = kron_floor(shape, dtype)
        cell.peers |= subject.times_of(peers_of(subject))
        cell.add_rates(terabytes_per_second=kron_bytes(shape, dtype))
    yield cell


def peers_of(subject):
    """What makes each peer, or the reason for there being none."""
    placed = [cupy.asarray(factor) for factor in subject.factors]
    chains = subject.shape, placed, subject.pairs, buffers_of(subject.shape, subject.dtype)
    return {
        "cuBLAS": lambda: (cublas.kron_calls(*chains), cublas.library().on),
        "torch": torch_chain.missing()
        or (lambda: (torch_chain.kron_calls(*chains), torch_chain.on)),
    }


def single_calls(shape, factors, pairs):
    """One call of `gekmm` with a single factor for each mode."""
    buffers, steps = buffers_of(shape, factors[0].dtype.name), chain(shape, "in place")

    def bound(x, y):
        calls = []
        for step, arrays in zip(steps, places(len(steps), x, y, buffers), strict=True):
            last = step.form == "right"
            batch, others = (step.others, 1) if last else (step.batch, step.others)
            view, into = (
                one.reshape(-1)[: batch * size * others].reshape(batch, size, others)
                for one, size in zip(arrays, (step.C, step.K), strict=True)
            )
            calls.append(partial(bk.gekmm, [factors[step.mode]], view, out=into))
        return partial(run_all, calls)

    return [bound(x, y) for x, y in pairs]


def ablation_cells(choice):
    (shape, published), dtype = choice.case, choice.dtype
    subject = KronSubject(shape, dtype)
    placed, pairs = [cupy.asarray(factor) for factor in subject.factors], subject.pairs
    as_columns = [(x.reshape(shape.rows, -1, 1), y.reshape(shape.rows, -1, 1)) for x, y in pairs]
    fused = subject.time_of(subject.calls)
    function = subject.time_of(lambda: [partial(bk.gekmm, placed, x, out=y) for x, y in as_columns])
    single = subject.time_of(partial(single_calls, shape, placed, pairs))
    cell = Cell("ablation", shape.name, dtype, fused)
    cell.floor = kron_floor(shape, dtype)
    cell.peers = {"gekmm, fused": function, "one factor a kernel": single}
    cell.more = {"published_factor": published}
    for name, one in (("factor", fused), ("factor_of_functions", function)):
        if "microseconds" in one and "microseconds" in single:
            cell.more[name] = single["microseconds"] / one["microseconds"]
    yield cell


class RandomSubject(KronSubject):
    """A Kron-Matmul whose entries may all be small by chance."""

    def error(self):
        """The largest error, relative to the largest entry or to a typical one."""
        # root mean square of an entry for standard normal x: a few may all be small by chance
        root = math.prod(float(np.linalg.norm(A) / len(A) ** 0.5) for A in self.factors)
        scale = max(float(np.abs(self.expected).max()), root)
        return float(np.abs(self.found - self.expected).max() / scale)


def random_cells(choice):
    """One shape: both ways of calling us, in a graph and eagerly, and all peers."""
    shape, dtype = choice.case.shape, choice.dtype
    subject = RandomSubject(shape, dtype)
    transposed = [cupy.asarray(np.ascontiguousarray(factor.T)) for factor in subject.factors]

    def function():
        return [partial(bk.gemkm, x, transposed, out=y) for x, y in subject.pairs]

    cell = Cell("random", shape.name, dtype, in_both_ways(subject, subject.calls))
    cell.floor = kron_floor(shape, dtype)
    cell.more["function"] = in_both_ways(subject, function)
    for name, make in peers_of(subject).items():
        cell.peers[name] = given(make) or in_both_ways(subject, make)
    cell.peers["JAX"] = by_jax(subject)
    yield cell


def in_both_ways(subject, make):
    """Its time, and that of an eager call of the variant that is the fastest in a graph."""

    @cache
    def contender():
        return contender_of(make())

    found = device_timing.measured(contender, subject.dtype, subject.out, subject.error)
    if "microseconds" in found:
        try:
            calls, on = contender()
            time = device_timing.eager_microseconds(
                calls[found["variant"]], on, found["microseconds"]
            )
            found["eager_microseconds"] = time
        except Exception as problem:
            found["eager_reason"] = f"{type(problem).__name__}: {problem}"[:200]
    return found


def by_jax(subject):
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
        if not wrong <= device_timing.TOLERANCE[subject.dtype]:
            return {"reason": f"wrong result, relative error {wrong:.1e}"}
        first = device_timing.call_microseconds(chain.run, 1, 1, chain.wait)
        time = device_timing.call_microseconds(
            chain.run, device_timing.eager_rounds(first), device_timing.REPLAYS, chain.wait
        )
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
