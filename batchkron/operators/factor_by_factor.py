"""Direct solves, determinants and eigenpairs of products and sums, by factors.

"The sum" is the Kronecker sum A_1 ⊕ … ⊕ A_d; N = Π n_k.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from batchkron.arrays import as_array, is_scalar, to_host
from batchkron.operators.determinants import (
    repeated_phases,
    repeated_signs,
    repeated_sum,
    repetitions,
)
from batchkron.operators.hermitian import hermitian_part
from batchkron.operators.memory import refuse_without_memory
from batchkron.operators.scaling import balanced, exponent_of, norm, times_power_of_two
from batchkron.spec.identities import is_identity
from batchkron.spec.kron import Array, as_scalar, compute_dtype

if TYPE_CHECKING:
    from batchkron.operators.scipy_protocol import SciPyOperator


def right_hand_side(b: ArrayLike, size: int, module: Any = np) -> Array:
    """Return b, which is (size,) or (size, K), as an array of ``module``."""
    array = as_array(b, "b", module)
    array = array.astype(compute_dtype(array), copy=False)
    if array.ndim not in (1, 2) or array.shape[0] != size:
        raise ValueError(f"b has shape {array.shape}; expected ({size},) or ({size}, K)")
    return array


def checked_shifts(shifts: Sequence[complex] | Array) -> Array:
    """Return shifts as an array (S,)."""
    numbers = to_host(cast(ArrayLike, shifts), "shifts")
    if numbers.ndim != 1:
        raise ValueError(f"shifts has shape {numbers.shape}; expected (S,)")
    return numbers


def solution_dtype(factors: Sequence[Array], rhs: Array, shifts: Array) -> np.dtype[Any]:
    """Return the dtype of solutions of shifted sums; a shift does not raise the precision."""
    kind = np.result_type(rhs.dtype, *factors)
    return np.result_type(kind, np.complex64) if shifts.dtype.kind == "c" else kind


def square_sizes(factors: Sequence[Array]) -> list[int]:
    """Return the sizes of factors, which have to be square."""
    for k, factor in enumerate(factors):
        if factor.shape[-2] != factor.shape[-1]:
            raise ValueError(f"factors[{k}] has shape {factor.shape}; expected a square matrix")
    return [factor.shape[-1] for factor in factors]


def checked_time(t: object) -> complex:
    """Return the number t in exp(t A).

    Raises `TypeError` if it is not a number, for example because t and the vector were
    interchanged.
    """
    if is_scalar(t):
        return as_scalar(t, "t")
    raise TypeError(
        f"t has shape {np.shape(cast(ArrayLike, t))}; expected a number. The vector comes first: "
        "expm_apply(x, t) is exp(t A) x"
    )


@contextmanager
def _named(k: int, factor: Array) -> Iterator[None]:
    """Add the index k of the factor to LAPACK's error about a singular matrix."""
    try:
        yield
    except np.linalg.LinAlgError:
        raise np.linalg.LinAlgError(
            f"factors[{k}], of shape {factor.shape}, is singular, and so is the Kronecker product"
        ) from None


def inverses(factors: Sequence[Array]) -> list[Array]:
    """Return the inverse of each factor (..., n, n); raise LinAlgError if one is singular."""
    square_sizes(factors)
    found = []
    for k, factor in enumerate(balanced(factors)):
        with _named(k, factor):
            found.append(factor if is_identity(factor) else np.linalg.inv(factor))
    return found


def solve_product(factors: Sequence[Array], b: ArrayLike) -> Array:
    """Solve (A_1 ⊗ … ⊗ A_d) x = b with one LU factorisation per square factor.

    Raises LinAlgError if a factor is singular.
    """
    sizes = square_sizes(factors)
    rhs = right_hand_side(b, math.prod(sizes))
    x, before, after = rhs.astype(np.result_type(rhs, *factors)), 1, rhs.size
    for k, factor in enumerate(balanced(factors)):
        n = len(factor)
        after //= max(n, 1)
        if is_identity(factor):
            before *= n
            continue
        front = x.reshape(before, n, after).swapaxes(0, 1).reshape(n, before * after)
        with _named(k, factor):
            solved = np.linalg.solve(factor, front)
        x = solved.reshape(n, before, after).swapaxes(0, 1)
        before *= n
    return np.ascontiguousarray(x).reshape(rhs.shape)


def slogdet_product(factors: Sequence[Array]) -> tuple[Any, Any]:
    """Return the sign, or phase, of det (A_1 ⊗ … ⊗ A_d) = Π det A_k^(N / n_k), and log |det|."""
    counts = repetitions(square_sizes(factors))
    signs, logarithms = zip(*map(_slogdet, factors), strict=True)
    with np.errstate(over="ignore"):
        kind, logarithm = type(signs[0]), type(logarithms[0])(repeated_sum(logarithms, counts))
    vanishes = any(sign == 0 for sign, count in zip(signs, counts, strict=True) if count)
    if not np.iscomplexobj(signs[0]) or vanishes:
        return kind(repeated_signs(signs, counts)), logarithm
    # Determinants of Hermitian factors are real; powers of them would enlarge the rounding error.
    pairs = zip(signs, factors, strict=True)
    exact = [s.real if s == 1 or np.array_equal(A, A.conj().T) else s for s, A in pairs]
    turns = np.angle(np.array(exact, np.complex128)) / (2 * np.pi)
    return kind(np.exp(2j * np.pi * repeated_phases(turns, counts))), logarithm


def _slogdet(factor: Array) -> tuple[Any, Any]:
    if is_identity(factor):
        return factor.dtype.type(1), factor.real.dtype.type(0)
    return np.linalg.slogdet(factor)


def logarithm_of(sign: Any, logarithm: Any) -> Any:
    """Return log det from the determinant's sign (or phase) and the logarithm of its modulus."""
    if np.iscomplexobj(sign):
        return logarithm + 1j * np.angle(sign)
    return np.float64(np.nan if sign < 0 else logarithm)


def hermitian_eigenpairs(factors: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Return eigenvalues (..., n) and eigenvectors (..., n, n) of each Hermitian factor."""
    square_sizes(factors)

    def pair(k: int, factor: Array) -> tuple[Array, Array]:
        if is_identity(factor):
            return np.ones(len(factor), factor.real.dtype), factor
        part = hermitian_part(factor, f"factors[{k}] is not Hermitian")
        return np.linalg.eigh(part.astype(factor.dtype))

    pairs = [pair(k, factor) for k, factor in enumerate(factors)]
    return [values for values, _ in pairs], [vectors for _, vectors in pairs]


def eigenpairs(factors: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Return eigenvalues and eigenvectors of each square factor; real if all of them are real."""
    square_sizes(factors)
    pairs = [
        (np.ones(len(factor), factor.dtype), factor)
        if is_identity(factor)
        else np.linalg.eig(factor)
        for factor in factors
    ]
    return [np.asarray(values) for values, _ in pairs], [np.asarray(v) for _, v in pairs]


def singular_values(factor: Array) -> tuple[Array, Array, Array]:
    """Return U (P, k), s (k,) and Vᴴ (k, Q) of a factor (P, Q) with k = min(P, Q)."""
    if is_identity(factor):
        return factor, np.ones(len(factor), factor.real.dtype), factor
    return np.linalg.svd(factor, full_matrices=False)


def apply_diagonalised(vectors: SciPyOperator[Any], values: Array, x: ArrayLike) -> Array:
    """Compute V diag(values) V^H x."""
    module = vectors._arrays
    rhs = right_hand_side(x, vectors.shape[0], module)
    scaled = (vectors.H @ rhs).T * values
    result: Array = vectors @ module.ascontiguousarray(scaled.T)
    return result


def solve_triangular_sum(triangles: Sequence[Array], b: Array) -> Array:
    """Solve (T_1 ⊕ … ⊕ T_d) x = b for b (N, K) and upper triangular T_k, all real or all complex.

    If d = 2 the T_k may also be quasi-triangular (real Schur forms).
    """
    if len(triangles) != 2 or b.size == 0:
        return _solve_triangular(triangles, b, 0.0)
    # LAPACK's trsyl replaces pivots near the smallest normal number by that number, even if all
    # entries of the triangles are as small; so the triangles are scaled to size 1 first.
    unit = math.ldexp(1.0, max(map(exponent_of, triangles)))
    first, second = (t / t.real.dtype.type(unit) for t in triangles)
    (solve,) = scipy.linalg.get_lapack_funcs(("trsyl",), (first, second, b))
    turned = second.conj() if second.dtype.kind == "c" else second
    x = np.empty(b.shape, np.result_type(first, second, b))
    for k in range(b.shape[1]):
        right = b[:, k].reshape(len(first), len(second))
        tran = "C" if turned.dtype.kind == "c" else "T"
        solution, scale, replaced = solve(first, turned, right, tranb=tran)
        if replaced and second.dtype.kind == "c":  # pivots that are small beside the others
            return _solve_triangular(triangles, b, 0.0)
        x[:, k] = (solution / scale / solution.real.dtype.type(unit)).ravel()
    return x


def _solve_triangular(triangles: Sequence[Array], b: Array, shift: complex) -> Array:
    """Solve (T_1 ⊕ … ⊕ T_d + shift) x = b by back substitution along the first mode."""
    if len(triangles) == 1:
        shifted = triangles[0] + shift * np.eye(len(triangles[0]), dtype=triangles[0].dtype)
        return np.asarray(scipy.linalg.solve_triangular(shifted, b))
    first, rest = triangles[0], triangles[1:]
    blocks = b.reshape(len(first), len(b) // len(first), b.shape[1])
    x = np.empty_like(blocks)
    for i in range(len(first) - 1, -1, -1):
        known = np.tensordot(first[i, i + 1 :], x[i + 1 :], axes=1)
        x[i] = _solve_triangular(rest, blocks[i] - known, shift + first[i, i])
    return x.reshape(b.shape)


def trace_of_sum(factors: Sequence[Array]) -> Any:
    """Return Σ_k (N / n_k) tr A_k, in the dtype of the factors (..., n_k, n_k); (...) for many."""
    wide = [A.astype(np.result_type(A.dtype, np.float64), copy=False) for A in factors]
    exponent = max(map(exponent_of, wide))  # repeated traces may overflow where the sum does not
    scaled = [times_power_of_two(A, -exponent) for A in wide]
    traces = [np.trace(A, axis1=-2, axis2=-1) for A in scaled]
    zero = np.zeros(np.broadcast_shapes(*map(np.shape, traces)), wide[0].dtype)
    with np.errstate(over="ignore"):
        total = repeated_sum(traces, repetitions([A.shape[-1] for A in factors]), zero)
        total = times_power_of_two(total, exponent)
        return total.astype(factors[0].dtype)[()]


def outer_sum(values: Sequence[Array], arrays: int = 1) -> Array:
    """Return all sums with one entry of each array (..., n_k), as (..., Π n_k), first slowest.

    Raises `MemoryError` if the memory cannot hold so many arrays of the result's size.
    """
    systems = np.broadcast_shapes(*(entries.shape[:-1] for entries in values))
    count = math.prod([*systems, *(entries.shape[-1] for entries in values)])
    item_bytes = np.result_type(*values).itemsize
    refuse_without_memory(count, arrays, item_bytes, "eigenvalues or diagonal entries of the sum")
    total = np.zeros(1, values[0].dtype)
    for entries in values:
        sums = total[..., :, None] + entries[..., None, :]
        total = sums.reshape(*sums.shape[:-2], sums.shape[-2] * sums.shape[-1])
    return total


def is_singular_sum(
    factors: Sequence[Array], values: Sequence[Array], total: Array, shift: complex = 0
) -> Array:
    """Return whether an eigenvalue of a shifted sum is zero up to rounding; (...) for many sums.

    ``values`` (..., n_k) are the factors' eigenvalues, ``total`` their `outer_sum`.

    An eigenvalue of A_k has an error of about eps ‖A_k‖, those of a triangular matrix, which are
    its diagonal, have none.
    """
    sizes = np.abs(total + shift) if shift else np.abs(total)
    norms = [norm(factor) for factor in factors]
    precision = max(float(np.finfo(factor.dtype).eps) for factor in factors)
    smallest = sizes.min(axis=-1, initial=np.inf)
    singular = np.asarray(smallest <= precision * (sum(norms[1:], norms[0]) + abs(shift)))
    exact = [_is_triangular(factor) for factor in factors]
    if not singular.any() or not any(one.any() for one in exact):
        return singular
    errors = [
        np.where(known[..., None], np.abs(found), size[..., None])
        for known, found, size in zip(exact, values, norms, strict=True)
    ]
    bounds = precision * (outer_sum(errors) + abs(shift))
    return np.asarray((sizes <= bounds).any(axis=-1))


def _is_triangular(factor: Array) -> Array:
    """Return whether matrices (..., n, n) are upper or lower triangular."""
    axes = (-2, -1)
    return np.asarray(~np.triu(factor, 1).any(axis=axes) | ~np.tril(factor, -1).any(axis=axes))


def slogdet_sum(factors: Sequence[Array]) -> tuple[Any, Any]:
    """Return the sign, or phase, of det (A_1 ⊕ … ⊕ A_d) and log |det|; (...) for many sums."""
    spectra = [np.linalg.eigvals(factor) for factor in factors]
    values = outer_sum(spectra, arrays=3)  # beside it there are moduli and their logarithms
    singular = is_singular_sum(factors, spectra, values)
    with np.errstate(divide="ignore"):
        logarithm = np.log(np.abs(values)).sum(axis=-1)
    if all(factor.dtype.kind == "f" for factor in factors):
        # conjugate pairs are there twice, so that they do not change the parity
        odd = np.count_nonzero((values.imag == 0) & (values.real < 0), axis=-1) % 2
        sign: Array = np.where(odd, -1.0, 1.0)
    else:
        sign = np.exp(1j * np.angle(values).sum(axis=-1, dtype=np.float64)).astype(values.dtype)
    return np.where(singular, 0, sign)[()], np.where(singular, -np.inf, logarithm)[()]


def logdet_sum(factors: Sequence[Array]) -> Any:
    """Return log det (A_1 ⊕ … ⊕ A_d) from the eigenvalues of the sum; (...) for many sums."""
    sign, logarithm = slogdet_sum(factors)
    if np.iscomplexobj(sign):
        return np.where(sign == 0, -np.inf, logarithm + 1j * np.angle(sign))[()]
    return np.where(sign < 0, np.nan, logarithm)[()]
