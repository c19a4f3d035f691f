"""Calls of gekmm, gemkm, kron, batched_gemm, SegmentedModeMultiply and linear_combination."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from inputs import DTYPES, Call, Inputs, title

import batchkron as bk

# (rows, columns) of each factor, and how many vectors are multiplied; None is one without an axis
_PRODUCTS: dict[str, tuple[list[tuple[int, int]], int | None]] = {
    "1x1": ([(1, 1)], 3),
    "one factor": ([(7, 7)], 5),
    "one large factor": ([(200, 190)], 3),
    "rows and columns": ([(1, 9), (9, 1), (1, 4)], 6),
    "two": ([(4, 4)] * 2, 33),
    "two large": ([(64, 48), (31, 96)], 10),
    "two of 128": ([(128, 128)] * 2, 2),
    "primes": ([(3, 3), (5, 5), (7, 7)], 13),
    "large primes": ([(37, 37), (41, 41)], 3),
    "one vector": ([(8, 8)] * 4, None),
    "many vectors": ([(3, 3)] * 3, 2003),
    "few vectors": ([(16, 16)] * 3, 1),
    "a million elements": ([(16, 16)] * 3, 257),
    "rectangular": ([(2, 3), (4, 1), (3, 5), (5, 2)], 9),
    "growing": ([(5, 2), (6, 3), (7, 4)], 8),
    "shrinking": ([(2, 5), (3, 6), (4, 7)], 8),
    "five": ([(2, 2)] * 5, 17),
    "five of six": ([(6, 6)] * 5, 2),
    "six": ([(2, 3)] * 6, 6),
    "seven": ([(3, 2), *[(2, 2)] * 6], 3),
    "eight": ([(2, 2)] * 8, 5),
    "eight mixed": ([(2, 1), (1, 3), (2, 2), (3, 2), (2, 3), (1, 1), (2, 2), (3, 2)], 4),
    "no vectors": ([(3, 3)] * 2, 0),
}
_SIZES = [(1, 1, 1), (2, 3, 2), (3, 3, 3), (5, 7, 2), (8, 8, 8), (16, 16, 16), (40, 33, 29)]


def calls() -> Iterator[Call]:
    """Yield the calls of functions."""
    for dtype in DTYPES:
        for name in _PRODUCTS:
            yield Call(f"gekmm {name} {dtype}", partial(_gekmm, name, dtype))
            yield Call(f"gemkm {name} {dtype}", partial(_gemkm, name, dtype))
        for run in (_scaled_sums, _transposed, _strided, _stacks, _systems, _odd_scalars):
            yield Call(f"gekmm, gemkm {title(run)} {dtype}", partial(run, dtype))
        yield Call(f"kron {dtype}", partial(_kron, dtype))
        yield Call(f"batched_gemm {dtype}", partial(_batched_gemm, dtype))
        yield Call(f"SegmentedModeMultiply {dtype}", partial(_segmented, dtype))
        yield Call(f"linear_combination {dtype}", partial(_linear_combination, dtype))
    yield Call("gekmm, gemkm float16", _float16)
    yield Call("gemkm precisions", _precisions)
    yield Call("gekmm, gemkm mixed dtypes", _mixed_dtypes)
    yield Call("gekmm, gemkm foreign layouts", _foreign_layouts, anywhere=False)


def _factors(given: Inputs, shapes: list[tuple[int, int]], dtype: str) -> list[Any]:
    return [given.array(*shape, dtype=dtype) for shape in shapes]


def _gekmm(name: str, dtype: str, given: Inputs) -> Any:
    shapes, count = _PRODUCTS[name]
    size = math.prod(q for _, q in shapes)
    x = given.array(*((size,) if count is None else (size, count)), dtype=dtype)
    return bk.gekmm(_factors(given, shapes, dtype), x)


def _gemkm(name: str, dtype: str, given: Inputs) -> Any:
    shapes, count = _PRODUCTS[name]
    size = math.prod(p for p, _ in shapes)
    x = given.array(*((size,) if count is None else (count, size)), dtype=dtype)
    return bk.gemkm(x, _factors(given, shapes, dtype))


def _scalars(dtype: str) -> tuple[complex, complex]:
    return (0.3 + 0.2j, -1.5j) if dtype.startswith("c") else (0.3, -1.5)


def _scaled_sums(dtype: str, given: Inputs) -> Any:
    """Alpha A x + beta y: into a new array, into y, into another one."""
    factors, (alpha, beta) = _factors(given, [(4, 3), (5, 6)], dtype), _scalars(dtype)
    x, y = given.array(18, 7, dtype=dtype), given.array(20, 7, dtype=dtype)
    fresh = bk.gekmm(factors, x, alpha=alpha, beta=beta, y=y)
    other = bk.gekmm(factors, x, alpha=alpha, beta=1, y=y, out=given.array(20, 7, dtype=dtype))
    scaled = bk.gekmm(factors, x, alpha=alpha)
    rows = bk.gemkm(given.array(7, 20, dtype=dtype), factors, alpha=alpha, beta=beta, y=x.T)
    written = bk.gekmm(factors, x, beta=beta, y=y, out=y)
    return fresh, other, scaled, rows, written


def _transposed(dtype: str, given: Inputs) -> Any:
    """Take factors transposed or conjugated in each way."""
    factors, results = _factors(given, [(4, 4), (3, 3), (5, 5)], dtype), []
    x = given.array(60, 11, dtype=dtype)
    for transpose in (False, True, [True, False, True]):
        for conj in (False, True, [False, True, True]):
            results.append(bk.gekmm(factors, x, transpose=transpose, conj=conj))
            results.append(bk.gemkm(x.T, factors, transpose=transpose, conj=conj))
    return results


def _strided(dtype: str, given: Inputs) -> Any:
    """Multiply inputs and into outputs that are not contiguous."""
    factors = [given.array(8, 12, dtype=dtype)[::2, ::3], given.array(5, 3, dtype=dtype).T]
    x, y = given.array(40, 46, dtype=dtype)[::2, ::2], given.array(24, 12, dtype=dtype)[::2].T
    wide = given.array(24, 46, dtype=dtype)
    bk.gekmm(factors, x, out=wide[::2, ::2])
    rows = bk.gemkm(y, factors)
    negative = bk.gekmm(factors, x[::-1, ::-1])
    return bk.gekmm(factors, x), wide, rows, negative


def _stacks(dtype: str, given: Inputs) -> Any:
    """Multiply vectors with leading axes."""
    factors = _factors(given, [(3, 2), (4, 5)], dtype)
    x, y = given.array(2, 3, 10, 4, dtype=dtype), given.array(3, 2, 5, 12, dtype=dtype)
    return bk.gekmm(factors, x), bk.gemkm(y, factors)


def _systems(dtype: str, given: Inputs) -> Any:
    """Multiply by factors with leading axes, one system each."""
    factors = [given.array(3, 1, 4, 2, dtype=dtype), given.array(5, 3, 3, dtype=dtype)]
    alpha, beta = _scalars(dtype)
    x, y = given.array(3, 5, 6, 4, dtype=dtype), given.array(3, 5, 12, 4, dtype=dtype)
    rows = bk.gemkm(given.array(3, 5, 2, 12, dtype=dtype), factors)
    return bk.gekmm(factors, x), bk.gekmm(factors, x, alpha=alpha, beta=beta, y=y), rows


def _odd_scalars(dtype: str, given: Inputs) -> Any:
    """Take infinite and vanishing scalars, and NaN in an array."""
    factors, x = _factors(given, [(2, 2), (3, 3)], dtype), given.array(6, 4, dtype=dtype)
    y = given.array(6, 4, dtype=dtype)
    x[2, 1] = np.nan
    results = [bk.gekmm(factors, x, alpha=alpha, beta=2, y=y) for alpha in (0, 1, -1)]
    with np.errstate(invalid="ignore"):
        infinite = bk.gekmm(factors, y, alpha=math.inf)
    return [*(np.nan_to_num(result, nan=77) for result in results), np.isinf(infinite)]


def _float16(given: Inputs) -> Any:
    """Compute half precision, which is done in single."""
    factors, x = _factors(given, [(4, 4), (5, 3)], "float16"), given.array(12, 9, dtype="float16")
    products = bk.gekmm(factors, x), bk.gemkm(x.T, [f.T for f in factors]), bk.kron(factors)
    return products, bk.batched_gemm(given.array(3, 2, 4, dtype="float16"), x.reshape(3, 4, 9))


def _precisions(given: Inputs) -> Any:
    """Multiply what a device may multiply on its matrix units."""
    factors, x = _factors(given, [(32, 32)] * 3, "float32"), given.array(8, 32768, dtype="float32")
    return [bk.gemkm(x, factors, precision=name) for name in (None, "tf32x3", "tf32")]


def _mixed_dtypes(given: Inputs) -> Any:
    """Multiply each pair of dtypes of factors and vectors, integers too."""
    kinds = (*DTYPES, "float16", "int64")
    results = []
    for left in kinds:
        for right in kinds:
            factors = [given.array(3, 3, dtype=left), given.array(4, 2, dtype=left)]
            results.append(bk.gekmm(factors, given.array(6, 5, dtype=right)))
    return results


def _foreign_layouts(given: Inputs) -> Any:
    """Take another byte order, lists, read-only arrays, Fortran order."""
    factors, x = _factors(given, [(3, 4), (5, 2)], "float64"), given.host(8, 6)
    swapped = [f.astype(">f8") for f in factors]
    fortran = np.asfortranarray(x)
    fortran.setflags(write=False)
    return bk.gekmm(swapped, x.astype(">f8")), bk.gekmm([f.tolist() for f in factors], fortran)


def _kron(dtype: str, given: Inputs) -> Any:
    results = []
    for shapes in (
        [(3, 4)],
        [(1, 2), (2, 1)],
        [(5, 5)] * 3,
        [(7, 3), (2, 11), (3, 5)],
        [(2, 2)] * 8,
    ):
        results.append(bk.kron(_factors(given, shapes, dtype)))
    factors = _factors(given, [(40, 3), (6, 50)], dtype)
    results.append(bk.kron(*factors, out=given.array(240, 150, dtype=dtype)))
    return results


def _batched_gemm(dtype: str, given: Inputs) -> Any:
    """Multiply plainly, with ids that accumulate, and with transposed right matrices."""
    results, (alpha, beta) = [], _scalars(dtype)
    for m, k, n in _SIZES:
        a, b = given.array(5, m, k, dtype=dtype), given.array(5, k, n, dtype=dtype)
        c, ids = given.array(4, m, n, dtype=dtype), [given.integers(h, 30) for h in (5, 5, 4)]
        names = {"a_ids": ids[0], "b_ids": ids[1], "c_ids": ids[2]}
        turned = b.swapaxes(1, 2).copy()
        results.append(bk.batched_gemm(a, b))
        results.append(bk.batched_gemm(a, b, c, alpha=alpha, beta=beta, **names))
        results.append(bk.batched_gemm(a, turned, transpose_b=True, alpha=alpha, **names))
    return results


def _segmented(dtype: str, given: Inputs) -> Any:
    """Multiply blocks of several shapes, add to others, replace the matrices."""
    results, (alpha, _) = [], _scalars(dtype)
    starts = np.array([0, 3, 3, 10, 11, 40])
    for before, p, q, behind in [
        (1, 1, 1, 1),
        (1, 3, 3, 9),
        (9, 3, 3, 1),
        (2, 4, 5, 3),
        (4, 8, 8, 8),
    ]:
        matrices = given.host(6, p, q, dtype=dtype)
        made = bk.SegmentedModeMultiply(
            matrices,
            starts,
            given.integers(6, 40),
            given.integers(7, 40),
            before=before,
            behind=behind,
            num_inputs=7,
        )
        sweep, x = given.place(made), given.array(7, before * q * behind, dtype=dtype)
        results.append(sweep.apply(x))
        results.append(sweep.apply(x, alpha=alpha))
        y = given.array(5, before * p * behind, dtype=dtype)
        results.append(sweep.accumulate(x, y, alpha=alpha))
        sweep.update(given.host(6, p, q, dtype=dtype))
        results.append(sweep.apply(given.array(7, before * q * behind, dtype=dtype)))
    return results


def _linear_combination(dtype: str, given: Inputs) -> Any:
    """Add one to nine vectors, into one of them, strided, and long."""
    results = []
    for count in range(1, 10):
        vectors = [given.array(103, dtype=dtype) for _ in range(count)]
        scales = given.host(count).tolist()
        results.append(bk.linear_combination(scales, vectors, given.array(103, dtype=dtype)))
        results.append(bk.linear_combination(scales, vectors, vectors[-1]))
    pairs = [given.array(30, 4, dtype=dtype)[::2, ::2] for _ in range(3)]
    results.append(bk.linear_combination([1.0, -0.5, 3.0], pairs, pairs[1]))
    long = [given.array(400_003, dtype=dtype) for _ in range(3)]
    results.append(bk.linear_combination([1.0, 0.0, -0.7], long, long[0]))
    return results
