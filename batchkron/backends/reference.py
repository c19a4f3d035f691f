"""The reference backend: NumPy, obvious, any shape. Every other backend is tested against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchkron.spec import Array, BatchSpec, KronSpec

name = "reference"


@dataclass(frozen=True, slots=True)
class KronPlan:
    """y = alpha * (F_1 x ... x F_d) x + beta * y, one `numpy.tensordot` per mode."""

    spec: KronSpec

    def run(
        self,
        factors: Sequence[Array],
        x: Array,
        alpha: complex,
        beta: complex,
        y: Array | None,
        out: Array,
    ) -> None:
        """Write the result to ``out``; y may be ``out`` itself."""
        spec = self.spec
        tensor = x.reshape(spec.outer, *spec.inputs, spec.inner)
        for mode, factor in enumerate(factors, start=1):
            tensor = np.moveaxis(np.tensordot(factor, tensor, axes=(1, mode)), 0, mode)
        result = (alpha * tensor).reshape(out.shape)
        out[...] = result if beta == 0 or y is None else result + beta * y


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """y[outputs[b]] += weights[b] * (kron of factors) x[inputs[b]], one product at a time."""

    spec: BatchSpec

    def run(self, x: Array, y: Array, outer: int, inner: int, accumulate: bool) -> None:
        """Add to y, or overwrite it."""
        spec = self.spec
        source = x.reshape(outer, spec.num_inputs, spec.input_size, inner)
        target = y.reshape(outer, spec.num_outputs, spec.output_size, inner)
        if not accumulate:
            target[...] = 0
        for ids, i, o, weight in zip(
            spec.factor_ids, spec.inputs, spec.outputs, spec.weights, strict=True
        ):
            factors = [pool[id_] for pool, id_ in zip(spec.pools, ids, strict=True)]
            block = source[:, i].reshape(outer, *(f.shape[1] for f in factors), inner)
            for mode, factor in enumerate(factors, start=1):
                block = np.moveaxis(np.tensordot(factor, block, axes=(1, mode)), 0, mode)
            target[:, o] += weight * block.reshape(outer, spec.output_size, inner)


def kron_plan(spec: KronSpec) -> KronPlan:
    """Return the plan of a multiply by one Kronecker product."""
    return KronPlan(spec)


def batch_plan(spec: BatchSpec) -> BatchPlan:
    """Return the plan of a batch list."""
    return BatchPlan(spec)


def kron(factors: Sequence[Array], out: Array) -> None:
    """Write the explicit Kronecker product of matrices of one dtype to ``out``."""
    product = factors[0]
    for factor in factors[1:]:
        rows, columns = product.shape[0] * factor.shape[0], product.shape[1] * factor.shape[1]
        product = np.einsum("ij,kl->ikjl", product, factor).reshape(rows, columns)
    out[...] = product


def batched_gemm(
    a: Array,
    b: Array,
    c: Array,
    alpha: complex,
    transpose_b: bool,
    ids: tuple[Array, Array, Array],
) -> None:
    """Add alpha * a[i] b[j] to c[k] for all (i, j, k) of ``ids``; c holds beta * c on entry."""
    for i, j, k in zip(*ids, strict=True):
        c[k] += alpha * (a[i] @ (b[j].T if transpose_b else b[j]))
