"""Comparison of a batch list's compiled product with dense Kronecker products."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from batchkron.spec import Array, BatchSpec


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """What a validation found.

    Attributes
    ----------
    samples : int
        Output blocks compared.
    products : int
        Kronecker products formed densely for them.
    max_error : float
        Largest difference of an entry.
    max_error_over_bound : float
        Largest difference over its own rounding bound.
    ok : bool
        Whether every difference is within its bound.
    """

    samples: int
    products: int
    max_error: float
    max_error_over_bound: float

    @property
    def ok(self) -> bool:
        """Whether every difference is within its bound; never for NaN."""
        return self.max_error_over_bound <= 1


def validate_batch(
    spec: BatchSpec, apply: Callable[[Array], Array], samples: int | None, seed: int
) -> ValidationReport:
    """Compare ``apply`` on random input blocks with the sum of dense products, block by block.

    The bound of one entry is the textbook one of a sum of products (Higham, Accuracy and Stability
    of Numerical Algorithms, section 3.1): both sides may differ by γ Σ |w| |A_1 ⊗ … ⊗ A_d| |x|,
    γ = 2 eps (ΣQ_k + d + 2 + number of products of the block).

    Raises
    ------
    ValueError
        If ``samples`` is negative.
    TypeError
        If it is no whole number.
    """
    samples = None if samples is None else operator.index(samples)
    if samples is not None and samples < 0:
        raise ValueError(f"samples is {samples}; expected 0 or more, or None for every block")
    rng = np.random.default_rng(seed)
    shape = (spec.systems, spec.num_inputs, spec.input_size)
    x = rng.standard_normal(shape).astype(spec.dtype)
    if spec.dtype.kind == "c":
        x += 1j * rng.standard_normal(shape).astype(x.real.dtype)
    y = apply(x.reshape(spec.batch_shape + shape[1:]))
    y = y.reshape(spec.systems, spec.num_outputs, spec.output_size)
    blocks = np.arange(spec.num_outputs)
    if samples is not None and samples < spec.num_outputs:
        blocks = np.sort(rng.choice(blocks, samples, replace=False))
    order = np.argsort(spec.outputs, kind="stable")
    starts = np.searchsorted(spec.outputs[order], np.arange(spec.num_outputs + 1))
    eps, smallest = np.finfo(spec.dtype).eps, np.finfo(spec.dtype).smallest_normal
    steps = sum(pool.shape[3] for pool in spec.pools) + len(spec.pools) + 2
    products, max_error, max_ratio = 0, 0.0, 0.0
    for system, block in itertools.product(range(spec.systems), blocks):
        chosen = order[starts[block] : starts[block + 1]]
        expected, magnitude = _dense_block(spec, system, chosen, x[system])
        error = np.abs(y[system, block] - expected)
        bound = 2 * eps * (steps + len(chosen)) * magnitude + smallest * len(chosen)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(error == 0, 0.0, error / bound)
        products += len(chosen)
        max_error = float(np.max(error, initial=max_error))
        max_ratio = float(np.max(ratio, initial=max_ratio))
    return ValidationReport(len(blocks), products, max_error, max_ratio)


def _dense_block(spec: BatchSpec, system: int, chosen: Array, x: Array) -> tuple[Array, Array]:
    """Return one output block from dense products, and the sum of their absolute values."""
    total = np.zeros(spec.output_size, spec.dtype)
    magnitude = np.zeros(spec.output_size)
    pools = [pool[system % len(pool)] for pool in spec.pools]
    weights = spec.weights[system % len(spec.weights)]
    for b in chosen:
        factors = [pool[i] for pool, i in zip(pools, spec.factor_ids[b], strict=True)]
        dense = weights[b] * reduce(np.kron, factors)
        total += dense @ x[spec.inputs[b]]
        magnitude += np.abs(dense) @ np.abs(x[spec.inputs[b]])
    return total, magnitude
