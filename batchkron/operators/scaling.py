"""Matrices taken apart into a power of two and entries of size 1, which rounds nothing.

Squares, norms and products of such entries stay in the range of their dtype, whatever the scales of
the matrices; where scales cancel, their exponents are added as integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from batchkron.operators.memory import refuse_without_memory
from batchkron.spec.identities import is_identity, multiple_of_identity
from batchkron.spec.kron import Array

__all__ = [
    "balanced",
    "exponent_of",
    "exponents_of",
    "kernel_factors",
    "multiplied",
    "norm",
    "outer_product",
    "times_power_of_two",
    "unit_exponent",
]


def exponents_of(matrices: Array) -> Array:
    """Return e of each matrix (..., P, Q) whose largest part of an entry is in [2^e, 2^(e+1)).

    Parts are real and imaginary ones. It is 0 for a matrix that is empty, zero or not finite.
    """
    sizes = _sizes(matrices, (-2, -1))
    regular = np.isfinite(sizes) & (sizes > 0)
    return np.where(regular, np.frexp(np.where(regular, sizes, 1))[1] - 1, 0)


def exponent_of(array: Any) -> int:
    """Return the exponent of `exponents_of` for all entries of an array of any shape."""
    if is_identity(array):
        return 0
    size = float(_sizes(np.asarray(array), None))
    return math.frexp(size)[1] - 1 if math.isfinite(size) and size > 0 else 0


def unit_exponent(array: Array) -> int:
    """Return `exponent_of`, but 0 for arrays of ordinary size, which are taken as they are.

    Ordinary are sizes of at most an eighth of the dtype's exponents: 1e±38, in single precision
    1e±4. Norms of such matrices, and products of a few, are in the range of the dtype.
    """
    exponent = exponent_of(array)
    return 0 if abs(exponent) <= np.finfo(array.dtype).maxexp // 8 else exponent


def times_power_of_two(array: Any, exponent: int | Array) -> Any:
    """Compute 2^exponent · array, without rounding where the result is a normal number.

    An array of exponents is broadcast to the array. Results out of range are infinite or 0.
    """
    array = np.asarray(array)
    if np.ndim(exponent) == 0 and exponent == 0:
        return array[()]
    with np.errstate(over="ignore", under="ignore"):
        if not _is_complex(array):
            return np.ldexp(array, exponent)
        found = np.empty(np.broadcast_shapes(array.shape, np.shape(exponent)), array.dtype)
        found.real, found.imag = np.ldexp(array.real, exponent), np.ldexp(array.imag, exponent)
        return found[()]


def norm(matrices: Array) -> Array:
    """Return the Frobenius norm of each matrix (..., P, Q), in double precision."""
    exponents = exponents_of(matrices)
    scaled = times_power_of_two(matrices, -exponents[..., None, None])
    axes = None if matrices.ndim == 2 else (-2, -1)  # one matrix: faster, other bits
    sizes = np.linalg.norm(scaled, axis=axes).astype(np.float64)
    return np.asarray(times_power_of_two(sizes, exponents))


def outer_product(values: Sequence[Array], exponent: int = 0) -> Array:
    """Return 2^exponent times all products with one entry of each array (n_k,), first slowest."""
    count, item_bytes = math.prod(map(len, values)), np.result_type(*values).itemsize
    refuse_without_memory(count, 1, item_bytes, "values or diagonal entries of the product")
    product = np.ones(1, values[0].dtype)
    for one in values:
        own = exponent_of(one)
        exponent += own
        product = np.multiply.outer(product, times_power_of_two(one, -own)).reshape(-1)
    return np.asarray(times_power_of_two(product, exponent))


def balanced(factors: Sequence[Array]) -> list[Array]:
    """Return factors with the same Kronecker product, of equal scales if some are far from 1.

    Then no product of some of the factors, nor of their inverses, leaves the range of the dtype
    where that of all does not. Factors of ordinary scales are returned as they are, and so are
    identities.
    """
    exponents = [exponent_of(factor) for factor in factors]
    if sum(map(abs, exponents)) <= np.finfo(factors[0].dtype).maxexp // 4:
        return list(factors)
    shares = _shares(factors, exponents)
    return [
        np.asarray(times_power_of_two(factor, share - own))
        for factor, own, share in zip(factors, exponents, shares, strict=True)
    ]


def kernel_factors(factors: Sequence[Array]) -> list[Any]:
    """Return matrices with the same Kronecker product as kernels take them: balanced.

    Identities and their multiples c I are ints, their sizes. Each c becomes part of the first of
    the others; if there are none, of one more factor of shape (1, 1).
    """
    scales = [multiple_of_identity(factor) for factor in factors]
    numbers = [np.full((1, 1), scale) for scale in scales if scale is not None and scale != 1]
    others = [factor for factor, scale in zip(factors, scales, strict=True) if scale is None]
    if not others:
        others = [np.ones((1, 1), factors[0].dtype)]
    given = balanced([*numbers, *others])
    matrices = given[len(numbers) :]
    if numbers:
        number = outer_product([one[0] for one in given[: len(numbers)]])
        with np.errstate(over="ignore", under="ignore"):
            matrices[0] = matrices[0] * number
    found = iter(matrices)
    sizes = [next(found) if s is None else len(f) for s, f in zip(scales, factors, strict=True)]
    return [*found, *sizes]


def multiplied(left: Sequence[Array], right: Sequence[Array]) -> list[Array] | None:
    """Return factors of (A_1 ⊗ … ⊗ A_d) (B_1 ⊗ … ⊗ B_d): A_k B_k unless one is out of range.

    Then the A_k B_k are scaled to equal sizes. None if these are out of range, too.
    """
    found, exponents = [], []
    for a, b in zip(left, right, strict=True):
        if is_identity(a) or is_identity(b):
            found.append(b if is_identity(a) else a)
            exponents.append(exponent_of(found[-1]))
            continue
        units = unit_exponent(a), unit_exponent(b)
        product = times_power_of_two(a, -units[0]) @ times_power_of_two(b, -units[1])
        found.append(product)
        exponents.append(sum(units) + exponent_of(product) if product.any() else 0)
    kind = np.finfo(found[0].dtype)
    reach = kind.maxexp - kind.nmant - 4  # smaller entries have room for their digits
    if max(map(abs, exponents)) > reach:
        exponents = _shares(found, exponents)
    if max(map(abs, exponents)) > reach:
        return None
    return [
        times_power_of_two(one, wanted - exponent_of(one))
        for one, wanted in zip(found, exponents, strict=True)
    ]


def _shares(factors: Sequence[Array], exponents: Sequence[int]) -> list[int]:
    """Return exponents of the same sum, equal ones but for identities, which keep 0."""
    scaled = [not is_identity(factor) for factor in factors]
    shares = iter(_shared([e for e, one in zip(exponents, scaled, strict=True) if one]))
    return [next(shares) if one else 0 for one in scaled]


def _shared(exponents: Sequence[int]) -> list[int]:
    """Return exponents of the same sum that differ by at most 1."""
    share, rest = divmod(sum(exponents), len(exponents))
    return [share + (k < rest) for k in range(len(exponents))]


def _sizes(array: Array, axes: tuple[int, int] | None) -> Array:
    """Return the largest part of an entry along axes."""
    largest = np.abs(array.real).max(axis=axes, initial=0)
    if not _is_complex(array):
        return np.asarray(largest)
    return np.asarray(np.maximum(largest, np.abs(array.imag).max(axis=axes, initial=0)))


def _is_complex(array: Array) -> bool:
    return array.dtype.kind == "c"
