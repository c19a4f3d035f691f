"""Blocks of vectors as rows (k, N): products with operators, inner products, orthonormal rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.array_kinds import native
from batchkron.arrays import array_module, is_sparse, to_host
from batchkron.attributes import attribute
from batchkron.operators import Operator

from .krylov.systems.foreign_arrays import refuse_foreign
from .products import Vector, as_product, norms_of, ranks_of, working_dtype

__all__ = [
    "Multiplied",
    "combine",
    "combine_complex",
    "gram",
    "orthonormalise",
    "scaled",
    "square_operator",
    "start_array",
    "take_out",
]


class Multiplied:
    """Products of an operator (N, N) with rows, counted one by one; None is the identity."""

    def __init__(self, operator: Any, name: str, like: Vector) -> None:
        refuse_foreign(operator, name, vectors=like)
        self.is_identity, self.products = operator is None, 0
        self._product = None if operator is None else as_product(operator, name, like)

    def __call__(self, rows: Vector) -> Vector:
        """Return the operator times each row (k, N)."""
        if self._product is None:
            return rows
        self.products += len(rows)
        out: Vector = array_module(rows).empty_like(rows)
        if len(rows):
            self._product(array_module(rows).ascontiguousarray(rows), out)
        return out


def gram(left: Vector, right: Vector) -> NDArray[Any]:
    """Return the inner products left_i* right_j, on the host."""
    return np.asarray(to_host(left.conj() @ right.T, "inner products"))


def combine(coefficients: NDArray[Any], rows: Vector) -> Vector:
    """Return coefficients (r, k), of the host, times rows (k, N)."""
    combined: Vector = array_module(rows).asarray(coefficients.astype(rows.dtype)) @ rows
    return combined


def combine_complex(weights: NDArray[Any], rows: Vector) -> Vector:
    """Return combinations of rows as `combine` does, complex where the weights are."""
    if weights.dtype.kind == "c" and rows.dtype.kind != "c":
        combined: Vector = combine(weights.real, rows) + 1j * combine(weights.imag, rows)
        return combined
    return combine(weights, rows)


def take_out(known: Vector, row: Vector) -> NDArray[Any]:
    """Take the part in orthonormal rows out of a row (1, N), twice; return its coefficients."""
    total = np.zeros(len(known), np.result_type(row.dtype, np.float64))
    for _ in range(2):
        products = gram(known, row)[:, 0]
        row -= combine(products[None], known)
        total += products
    return total


def scaled(rows: Vector, factors: NDArray[Any]) -> Vector:
    """Return rows times a number each, of the host."""
    product: Vector = rows * array_module(rows).asarray(factors.astype(rows.dtype))[:, None]
    return product


def orthonormalise(
    rows: Vector, images: Vector, known: Vector, known_images: Vector
) -> tuple[Vector, Vector]:
    """Return an orthonormal basis of rows, orthogonal to known orthonormal rows, and its images.

    The inner product is x* B y, and images are B times rows; without a B, images are the rows
    themselves. Directions that are rounding, or whose x* B x is not positive, are left out, so that
    the basis may be smaller.

    Each turn projects, and then takes the eigenvectors of the Gram matrix of rows that are scaled
    to length 1 (A. Stathopoulos and K. Wu, SIAM J. Sci. Comput. 23 (2002), method SVQB); the third
    is for rows that are nearly dependent.
    """
    eps, plain = float(np.finfo(rows.dtype).eps), images is rows
    for turn in range(3):
        rows, images = _of_length_one(rows, images)
        if not len(rows):
            break
        overlap = gram(known_images, rows)
        rows = rows - combine(overlap.T, known) if len(known) else rows
        images = rows if plain else images - combine(overlap.T, known_images)
        matrix = gram(rows, images)
        matrix = (matrix + matrix.conj().T) / 2
        left = np.diag(matrix).real  # squares of what the projection leaves
        kept = np.flatnonzero(left > ((100 * eps) ** 2 if turn == 0 else 0.01))
        matrix, unit = matrix[np.ix_(kept, kept)], 1.0 / np.sqrt(left[kept])
        values, vectors = np.linalg.eigh(unit[:, None] * matrix * unit)
        large = values > 10 * eps * len(rows)
        weights = np.zeros((int(large.sum()), len(rows)), matrix.dtype)
        weights[:, kept] = (vectors[:, large] / np.sqrt(values[large])).T * unit
        rows = combine(weights, rows)
        images = rows if plain else combine(weights, images)
        change = np.abs(overlap).max(initial=0.0) + np.abs(values - 1.0).max(initial=0.0)
        if change <= 100 * eps:
            break
    return rows, images


def _of_length_one(rows: Vector, images: Vector) -> tuple[Vector, Vector]:
    """Return rows scaled to x* B x = 1, without those that are zero or not finite, and images."""
    rows, images = _divided(rows, images, norms_of(rows))
    if images is rows:
        return rows, images
    squares = to_host((rows.conj() * images).sum(axis=1).real, "squares")
    return _divided(rows, images, np.sqrt(np.maximum(squares, 0.0)))


def _divided(rows: Vector, images: Vector, lengths: NDArray[Any]) -> tuple[Vector, Vector]:
    """Return rows and images divided by lengths, those whose length is positive and finite."""
    kept, plain = np.flatnonzero(np.isfinite(lengths) & (lengths > 0)), images is rows
    if len(kept) < len(lengths):
        place = array_module(rows).asarray(kept)
        rows, images = rows[place], images[place]
    with np.errstate(over="ignore"):
        factors = 1.0 / lengths[kept]
    rows = scaled(rows, factors)
    return rows, rows if plain else scaled(images, factors)


def square_operator(A: Any, name: str = "A") -> int:
    """Return N of an operator (N, N) on one process; raise ValueError or TypeError of others."""
    shape = attribute(A, "shape")
    if shape is None:
        raise TypeError(f"{name} is a {type(A).__name__} without a shape; expected an operator")
    if len(shape) != 2 or shape[0] != shape[1] or attribute(A, "batch_shape", ()):
        raise ValueError(f"{name} has shape {tuple(shape)}; expected one square operator (N, N)")
    if ranks_of(A) is not None:
        raise TypeError(f"{name} is distributed; this method has no sums over ranks")
    return int(shape[0])


def start_array(A: Any, given: Any, name: str, count: int, seed: Any, *more: Any) -> Vector:
    """Return vectors (count, N) to begin with where A works: given ones, or random ones."""
    size = square_operator(A)
    dtype = working_dtype(A, *more)
    if given is None:
        rng = np.random.default_rng(seed)
        rows = rng.standard_normal((count, size))
        if dtype.kind == "c":
            rows = rows + 1j * rng.standard_normal((count, size))
        rows = rows.astype(dtype)
        on_device = attribute(A, "device", "cpu") == "cuda"
        module = _module_of(A)
        if not on_device and module is np:
            return rows
        from batchkron.operators import on_device as placed

        return placed(rows, "cuda")
    vectors = native(given, name)
    module = array_module(vectors)
    vectors = module.asarray(vectors)
    vectors = vectors[:, None] if vectors.ndim == 1 else vectors
    if vectors.ndim != 2 or vectors.shape[0] != size:
        raise ValueError(f"{name} has shape {vectors.shape}; expected ({size}, K) or ({size},)")
    dtype = np.result_type(dtype, working_dtype(vectors))
    return module.ascontiguousarray(vectors.T.astype(dtype))  # type: ignore[no-any-return]


def _module_of(A: Any) -> Any:
    """Return NumPy, or CuPy for arrays and sparse arrays on a device."""
    if isinstance(A, Operator):
        return array_module(A._arrays.empty(0))
    return array_module(A.data) if is_sparse(A) else array_module(A)
