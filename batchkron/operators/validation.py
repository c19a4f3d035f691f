"""Comparison of an operator's compiled products with dense Kronecker products."""

from __future__ import annotations

import operator as standard
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import to_host
from batchkron.operators.algebra import Operator
from batchkron.operators.block_operator import BlockOperator
from batchkron.spec.kron import Array, BatchSpec

Ids = NDArray[np.int64]

_VECTORS = 5  # vectors multiplied at once: one more than the float64 lanes of a 256-bit register
_REAL_ALPHA, _COMPLEX_ALPHA = -0.625, -0.625 + 0.375j  # values of alpha, exact in float32


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """The result of a validation.

    Attributes
    ----------
    samples : int
        Number of output blocks compared.
    products : int
        Number of Kronecker products formed densely for them.
    max_error : float
        Largest absolute difference of an entry.
    max_error_over_bound : float
        Largest ratio of a difference to its rounding error bound.
    worst : str
        The product with the largest ratio: "A x", "A X", "y + A x", "y + alpha A x",
        "Y + alpha A X", "A^T x" or "A^T X".
    ok : bool
        Whether every difference is within its bound.
    """

    samples: int
    products: int
    max_error: float
    max_error_over_bound: float
    worst: str = "A x"

    @property
    def ok(self) -> bool:
        """Whether every difference is within its bound; False if one is NaN."""
        return self.max_error_over_bound <= 1


Apply: TypeAlias = Callable[[Array], Array]
Ways: TypeAlias = tuple[Apply, Callable[[Array, Array, complex], Array], Apply]
"""Functions that apply an operator to blocks of one or several vectors, as NumPy arrays: x (...,
*batch_shape, num_inputs, ΠQ) to A x; ``accumulate(x, y, alpha)``, which returns y + alpha A x and
may overwrite y; and w (..., *batch_shape, num_outputs, ΠP) to A^T w."""

# A x, and |A| |x| with absolute values in all sums, (vectors, systems, rows, ΠP), in the blocks
# that are compared; the input blocks that products read, ascending; A^T w and |A^T| |w| in these.
_Dense = tuple[tuple[Array, Array], Ids, tuple[Array, Array]]
# What differs most of a product, its largest difference, and the largest ratio to its bound.
_Difference = tuple[str, float, float]


def ways_to_apply(op: Operator, inputs: tuple[int, int], outputs: tuple[int, int]) -> Ways:
    """Return functions on blocks for an operator that takes blocks or flat vectors."""
    arrays = op._arrays

    def given(op: Operator, x: Array) -> Array:
        flat = (*x.shape[:-2], x.shape[-2] * x.shape[-1])
        shape = x.shape if isinstance(op, BlockOperator) else flat
        return arrays.array(x.reshape(shape))  # type: ignore[no-any-return]

    def apply(op: Operator, x: Array, shape: tuple[int, int]) -> Array:
        vector = given(op, x)
        y = op.matvec(vector) if vector.ndim == 1 else op.apply(vector)
        return to_host(y, "y").reshape(x.shape[:-2] + shape)

    def accumulate(x: Array, y: Array, alpha: complex) -> Array:
        sum_ = op.accumulate(given(op, x), given(op, y), alpha=alpha)
        return to_host(sum_, "y").reshape(y.shape)

    return lambda x: apply(op, x, outputs), accumulate, lambda w: apply(op.T, w, inputs)


def validate_batch(
    spec: BatchSpec, compared: Ways | Apply, samples: int | None, seed: int
) -> ValidationReport:
    """Compare an operator with the dense products of its batch list, see `validate_blocks`."""
    rows = chosen_blocks(spec.num_outputs, samples, seed)
    return validate_blocks(_ending_in(spec, rows), compared, rows, spec.num_outputs, seed)


def chosen_blocks(count: int, samples: int | None, seed: int) -> Ids:
    """Return the output blocks to check, ascending: random ones of ``count``, or all."""
    blocks = np.arange(count)
    if samples is None:
        return blocks
    samples = standard.index(samples)
    if samples < 1:
        raise ValueError(f"samples is {samples}; expected 1 or more, or None for every block")
    if samples >= count:
        return blocks
    return np.sort(np.random.default_rng([seed, 1]).choice(blocks, samples, replace=False))


def _ending_in(spec: BatchSpec, rows: Ids) -> BatchSpec:
    """Return the list of the products of some output blocks, with these as its only outputs."""
    if len(rows) == spec.num_outputs:
        return spec
    kept = np.isin(spec.outputs, rows)
    return replace(
        spec,
        factor_ids=spec.factor_ids[kept],
        inputs=spec.inputs[kept],
        outputs=np.searchsorted(rows, spec.outputs[kept]),
        weights=spec.weights[:, kept],
        num_outputs=len(rows),
    )


def validate_blocks(
    spec: BatchSpec,
    compared: Ways | Apply,
    rows: Ids,
    num_outputs: int,
    seed: int,
) -> ValidationReport:
    """Compare output blocks of an operator on random vectors with sums of dense products.

    Compared are products of one vector and of several, with `apply`, with `accumulate` and with the
    transpose; for a callable only its product A x of one vector.

    The bound of one entry is the textbook one of a sum of products (Higham, Accuracy and Stability
    of Numerical Algorithms, section 3.1): both sides may differ by γ Σ |w| |A_1 ⊗ … ⊗ A_d| |x|,
    γ = 2 eps (ΣQ_k + d + 2 + number of products of the block); y + alpha A x by
    (γ + 4 eps) (|y| + |alpha| Σ …).

    ``spec``: the products of the blocks that are compared.
    ``rows`` (ndarray of int64): for each output block of ``spec``, its index among the operator's.
    ``num_outputs``: number of output blocks of the operator.
    ``seed``: seed of the random vectors.
    """
    rng = np.random.default_rng(seed)
    x = _random(rng, spec, spec.num_inputs, spec.input_size)
    w = np.zeros((*x.shape[:2], num_outputs, spec.output_size), spec.dtype)
    w[:, :, rows] = _random(rng, spec, len(rows), spec.output_size)
    dense = _dense_products(spec, x, w[:, :, rows])
    found = [*_forward(spec, compared, rows, dense, x, w)]
    if isinstance(compared, tuple):
        found += [*_transposed(spec, compared[-1], dense, w)]
    ratios = [ratio for _, _, ratio in found]
    return ValidationReport(
        len(rows),
        spec.systems * len(spec.inputs),
        float(np.max([error for _, error, _ in found])),
        float(np.max(ratios)),
        found[int(np.argmax(ratios))][0],  # argmax returns the first NaN, if there is one
    )


def _random(rng: np.random.Generator, spec: BatchSpec, blocks: int, size: int) -> Array:
    """Return random vectors, (vectors, systems, blocks, size)."""
    shape = (_VECTORS, spec.systems, blocks, size)
    x = rng.standard_normal(shape).astype(spec.dtype)
    if spec.dtype.kind == "c":
        x += 1j * rng.standard_normal(shape).astype(x.real.dtype)
    return x


def _dense_products(spec: BatchSpec, x: Array, w: Array) -> _Dense:
    """Return A x and A^T w; each dense product is formed only once."""
    inputs, places = np.unique(spec.inputs, return_inverse=True)
    real = spec.dtype.type(0).real.dtype
    product = np.zeros((*x.shape[:2], spec.num_outputs, spec.output_size), spec.dtype)
    transpose = np.zeros((*x.shape[:2], len(inputs), spec.input_size), spec.dtype)
    product_size, transpose_size = (np.zeros(y.shape, real) for y in (product, transpose))
    for system in range(spec.systems):
        pools = [pool[system % len(pool)] for pool in spec.pools]
        weights = spec.weights[system % len(spec.weights)]
        for b, (weight, ids) in enumerate(zip(weights, spec.factor_ids, strict=True)):
            matrix = weight * reduce(np.kron, [p[i] for p, i in zip(pools, ids, strict=True)])
            size = np.abs(matrix)
            to, place = (slice(None), system, spec.outputs[b]), (slice(None), system, places[b])
            source, target = x[:, system, spec.inputs[b]], w[to]
            product[to] += source @ matrix.T
            product_size[to] += np.abs(source) @ size.T
            transpose[place] += target @ matrix
            transpose_size[place] += np.abs(target) @ size
    return (product, product_size), inputs, (transpose, transpose_size)


def _forward(
    spec: BatchSpec,
    compared: Ways | Apply,
    rows: Ids,
    dense: _Dense,
    x: Array,
    w: Array,
) -> Iterator[_Difference]:
    """Compare A x, and w + alpha A x."""
    counts = np.bincount(spec.outputs, minlength=len(rows))
    steps = sum(pool.shape[3] for pool in spec.pools) + len(spec.pools) + 2

    def difference(worst: str, y: Array, expected: Array, size: Array, more: int) -> _Difference:
        y = y.reshape(*expected.shape[:-2], w.shape[-2], w.shape[-1])
        return _compare(worst, y[..., rows, :], expected, size, steps + more, counts)

    apply = compared[0] if isinstance(compared, tuple) else compared
    product, size = dense[0]
    yield difference("A x", apply(_shaped(spec, x[0])), product[0], size[0], 0)
    if not isinstance(compared, tuple):
        return
    yield difference("A X", apply(_shaped(spec, x)), product, size, 0)
    alpha = _COMPLEX_ALPHA if spec.dtype.kind == "c" else _REAL_ALPHA
    for worst, factor, at in (
        ("y + A x", 1.0, 0),
        ("y + alpha A x", alpha, 0),
        ("Y + alpha A X", alpha, slice(None)),
    ):
        y = compared[1](_shaped(spec, x[at]), _shaped(spec, w[at].copy()), factor)
        before = w[at][..., rows, :]
        expected = before + spec.dtype.type(factor) * product[at]
        yield difference(worst, y, expected, np.abs(before) + abs(factor) * size[at], 2)


def _transposed(spec: BatchSpec, apply: Apply, dense: _Dense, w: Array) -> Iterator[_Difference]:
    """Compare A^T w, which is zero in blocks that no product reads."""
    _, inputs, products = dense
    counts = np.bincount(np.searchsorted(inputs, spec.inputs), minlength=len(inputs))
    steps = sum(pool.shape[2] for pool in spec.pools) + len(spec.pools) + 2
    for worst, at in (("A^T x", 0), ("A^T X", slice(None))):
        expected, size = (each[at] for each in products)
        z = apply(_shaped(spec, w[at]))
        z = z.reshape(*expected.shape[:-2], spec.num_inputs, spec.input_size)
        yield _compare(worst, z[..., inputs, :], expected, size, steps, counts)
        z[..., inputs, :] = 0
        rest = np.abs(z).max(initial=0.0)
        yield worst, rest, 0.0 if rest == 0 else rest * np.inf


def _shaped(spec: BatchSpec, x: Array) -> Array:
    """Return vectors (..., systems, blocks, size) with the axes of batch_shape."""
    return x.reshape(x.shape[:-3] + spec.batch_shape + x.shape[-2:])


def _compare(
    worst: str, y: Array, expected: Array, size: Array, steps: int, counts: Ids
) -> _Difference:
    """Compare blocks (..., blocks, size); block i is a sum of ``counts[i]`` products."""
    eps, smallest = np.finfo(y.dtype).eps, np.finfo(y.dtype).smallest_normal
    error = np.abs(y - expected)
    bound = 2 * eps * (steps + counts[:, None]) * size + smallest * counts[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(error == 0, 0.0, error / bound)
    return worst, np.max(error, initial=0.0), np.max(ratio, initial=0.0)
