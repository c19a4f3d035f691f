"""Kron-Matmuls next to cuBLAS and torch, and the gain of fusing their factors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import cupy
import numpy as np

import batchkron as bk
from benchmarks.core.device_timing import Call, Contender, measured
from benchmarks.gpu.cases.cases import KronCase
from benchmarks.gpu.cases.floors import kron_bytes, kron_floor, precision_floor
from benchmarks.gpu.data import buffers_of, factors_of, that_fits, vectors_of
from benchmarks.gpu.peers import cublas, torch_chain
from benchmarks.gpu.peers.chains import chain
from benchmarks.gpu.report.report import Cell
from benchmarks.shapes import KronMatmul

OURS = "batchkron"


def kron_cells(case: KronCase, dtype: str, part: str = "kron") -> Iterator[Cell]:
    """One case in one dtype."""
    shape = that_fits(case.shape, dtype)
    if shape is None:
        yield Cell(part, case.name, dtype, {"reason": "not measured: no row fits in memory"})
        return
    factors = factors_of(shape, dtype)
    op = bk.KroneckerProduct(factors)
    pairs = vectors_of(shape, dtype)
    x, out = pairs[-1]
    row = shape.rows // 2
    expected = op.apply(x[row].get())

    def error() -> float:
        return float(np.abs(out[row].get() - expected).max() / np.abs(expected).max())

    def ours() -> Contender:
        return Contender(OURS, {"": operator_calls(op, pairs)})

    cell = Cell(part, case.name, dtype, measured(ours, dtype, out, error))
    cell.figures = case.figures[dtype]
    cell.floor = kron_floor(shape, dtype)
    if shape.rows < case.shape.rows:
        cell.note = f"{shape.rows} rows, as many as fit in memory"
    for name, make in peers_of(shape, factors, pairs).items():
        cell.peers[name] = make if isinstance(make, dict) else measured(make, dtype, out, error)
    if cell.microseconds:
        cell.more["tflops"] = shape.flops / cell.microseconds / 1e6
        cell.more["terabytes_per_second"] = kron_bytes(shape, dtype) / cell.microseconds / 1e6
    yield cell


def operator_calls(op: bk.KroneckerProduct, pairs: Sequence[Any]) -> list[Call]:
    """A call of the operator on the device for each pair of input and output."""
    apply = op.to("cuda").apply
    return [partial(apply, x, out=y) for x, y in pairs]


def peers_of(
    shape: KronMatmul, factors: Sequence[Any], pairs: Sequence[Any]
) -> dict[str, Callable[[], Contender] | dict[str, Any]]:
    """What makes the chain of each other library, or the "reason" for there being none."""
    placed = [cupy.asarray(factor) for factor in factors]
    chains = placed, pairs, buffers_of(shape, factors[0].dtype.name)

    def by_cublas() -> Contender:
        return Contender("cuBLAS", cublas.kron_calls(shape, *chains), cublas.library().on)

    def by_torch() -> Contender:
        return Contender("torch", torch_chain.kron_calls(shape, *chains), torch_chain.on)

    absent = torch_chain.missing()
    return {"cuBLAS": by_cublas, "torch": {"reason": absent} if absent else by_torch}


def precision_cells(case: KronCase, precision: str) -> Iterator[Cell]:
    """One case in float32 on matrix units, next to full precision."""
    shape = that_fits(case.shape, "float32")
    if shape is None:
        yield Cell("precision", case.name, precision, {"reason": "not measured: no row fits"})
        return
    factors = factors_of(shape, "float32")
    pairs = vectors_of(shape, "float32")
    x, out = pairs[-1]
    row = shape.rows // 2
    expected = bk.KroneckerProduct(factors).apply(x[row].get().astype(np.float64))

    def error() -> float:
        return float(np.abs(out[row].get() - expected).max() / np.abs(expected).max())

    def ours(given: str | None) -> Contender:
        apply = bk.KroneckerProduct(factors, precision=given).to("cuda").apply
        return Contender(OURS, {"": [partial(apply, x, out=y) for x, y in pairs]})

    cell = Cell(
        "precision", case.name, precision, measured(partial(ours, precision), precision, out, error)
    )
    cell.peers["full"] = measured(partial(ours, None), "float32", out, error)
    cell.figures = case.figures[precision]
    cell.floor = precision_floor(shape, precision)
    if shape.rows < case.shape.rows:
        cell.note = f"{shape.rows} rows, as many as fit in memory"
    if cell.microseconds:
        cell.more["tflops"] = shape.flops / cell.microseconds / 1e6
    yield cell


def single_calls(shape: KronMatmul, factors: Sequence[Any], pairs: Sequence[Any]) -> list[Any]:
    """One call of `gekmm` with a single factor for each mode."""
    buffers = buffers_of(shape, factors[0].dtype.name)
    steps = chain(shape, "in place")

    def bound(x: Any, y: Any) -> Any:
        calls, source = [], x
        for number, step in enumerate(steps):
            last_mode = step.form == "right"
            batch, others = (step.others, 1) if last_mode else (step.batch, step.others)
            target = y if number == len(steps) - 1 else buffers[number % 2]
            view = source.reshape(-1)[: batch * step.C * others].reshape(batch, step.C, others)
            into = target.reshape(-1)[: batch * step.K * others].reshape(batch, step.K, others)
            calls.append(partial(bk.gekmm, [factors[step.mode]], view, out=into))
            source = target

        def run() -> None:
            for call in calls:
                call()

        return run

    return [bound(x, y) for x, y in pairs]


def ablation_cells(shape: KronMatmul, published: float | None, dtype: str) -> Iterator[Cell]:
    """The product by all factors at once, next to one factor a kernel."""
    factors = factors_of(shape, dtype)
    op = bk.KroneckerProduct(factors)
    device, placed = op.to("cuda"), [cupy.asarray(factor) for factor in factors]
    pairs = vectors_of(shape, dtype)
    x, out = pairs[-1]
    row = shape.rows // 2
    expected = op.apply(x[row].get())

    def error() -> float:
        return float(np.abs(out[row].get() - expected).max() / np.abs(expected).max())

    as_columns = [(x.reshape(shape.rows, -1, 1), y.reshape(shape.rows, -1, 1)) for x, y in pairs]
    contenders = (
        Contender(OURS, {"": [partial(device.apply, x, out=y) for x, y in pairs]}),
        Contender("fused", {"": [partial(bk.gekmm, placed, x, out=y) for x, y in as_columns]}),
        Contender("one factor a kernel", {"": single_calls(shape, placed, pairs)}),
    )
    fused, function, single = (
        measured(lambda one=one: one, dtype, out, error) for one in contenders
    )
    cell = Cell("ablation", shape.name, dtype, fused)
    cell.floor = kron_floor(shape, dtype)
    cell.peers = {"gekmm, fused": function, "one factor a kernel": single}
    cell.more = {"published_factor": published}
    if "microseconds" in fused and "microseconds" in single:
        cell.more["factor"] = single["microseconds"] / fused["microseconds"]
    if "microseconds" in function and "microseconds" in single:
        cell.more["factor_of_functions"] = single["microseconds"] / function["microseconds"]
    yield cell
