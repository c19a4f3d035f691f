"""Functions on Kronecker products: multiply by one from either side, or compute it explicitly.

Also `batched_gemm`, a batch of small matrix multiplies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.array_kinds import any_foreign, common_kind, in_kind
from batchkron.arrays import array_module, is_plain
from batchkron.backends import backend_for, reserve, tuned_plans, tuning_for
from batchkron.functions.kron_fast_path import fast_multiply
from batchkron.spec.batch import batch_of_systems
from batchkron.spec.gemm import gemm_spec
from batchkron.spec.identities import Factor, IdentityFactor, is_identity, with_marks_as_matrices
from batchkron.spec.kron import (
    Array,
    KronCall,
    Precision,
    as_flag,
    as_scalar,
    check_output,
    is_finite,
    kron_call,
    times,
)


def gekmm(
    factors: Sequence[Factor],
    x: ArrayLike,
    *,
    alpha: complex = 1,
    beta: complex = 0,
    y: ArrayLike | None = None,
    out: Array | None = None,
    transpose: bool | Sequence[bool] = False,
    conj: bool | Sequence[bool] = False,
    precision: Precision | None = None,
    tune: bool = False,
) -> Array:
    """Compute alpha (A_1 ⊗ … ⊗ A_d) x + beta y.

    Parameters
    ----------
    factors : sequence of array_like, each (P_k, Q_k) or (..., P_k, Q_k), or of `Identity`
        The matrices A_1 … A_d; A_1 belongs to the slowest index, as in `scipy.linalg.kron`.
        Leading axes broadcast together, and with those of x. An ``Identity(n)`` among them is
        skipped; matrices are multiplied whatever their values.
    x : array_like, (ΠQ,) or (..., ΠQ, M)
        Vectors, as the right operand of `numpy.matmul`.
    alpha, beta : scalar
        Scale the product and y.
    y : array_like, (ΠP,) or (..., ΠP, M), optional
        Scaled by beta and added; needed if beta is not 0, and never written unless it is ``out``.
    out : ndarray, optional
        Array that the result is written to; may be ``y``, but must not overlap any other input.
    transpose, conj : bool or one bool per factor
        Use A_k^T, conj(A_k), or with both A_k^H.
    precision : {None, "tf32x3", "tf32"}
        How float32 may be multiplied on a GPU: None, in full; "tf32x3", on matrix units, as three
        products of parts of 11 bits; "tf32", on matrix units, with numbers rounded to 11 bits
        (error bounds: docs/background/precision.md). Other dtypes, and the CPU, compute in
        full.
    tune : bool
        On a CUDA device, search the fastest kernels for this shape, which takes up to two minutes;
        their choice is stored for all processes, so that later calls do not search. No effect on
        the CPU.

    Returns
    -------
    ndarray, (ΠP,) or (..., ΠP, M)
        The result, ``out`` if given. Its dtype is `numpy.result_type` of the operands, with
        integers as float64 and float16 as float32.

    Raises
    ------
    ValueError
        If shapes do not fit, beta is given without y, ``out`` is read-only or overlaps an input or
        itself, or the precision is another one.
    TypeError
        If a dtype has no kernels, an array is masked, ``out`` has another dtype than the result,
        or ``transpose``, ``conj`` or ``tune`` is not a bool.

    Notes
    -----
    Each factor is applied by one sliced multiply, algorithm 1 of FastKron (Jangda and Yadav, PPoPP
    2024). Rectangular factors are applied in the order that takes the fewest multiply-adds. On the
    CPU pairs of 2 × 2 factors are multiplied with each other first, factors 1 × 1 with their
    neighbours, and in operators the scalars of multiples of the identity: where such products leave
    the range of the dtype, so does the result. Scale factors with entries as small or as large.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> A, B = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> bk.gekmm([A, B], [1.0, 2.0, 3.0, 4.0])
    array([10.,  7., 22., 15.])
    """
    if transpose is False and conj is False and tune is False:
        result = fast_multiply(factors, x, True, alpha, beta, y, out, precision)
        if result is not None:
            return result
    scales: dict[str, Any] = {"alpha": alpha, "beta": beta}
    options: dict[str, Any] = {"transpose": transpose, "conj": conj, "precision": precision}
    return _multiply(factors, x, True, y, out, tune, **scales, **options)


def gemkm(
    x: ArrayLike,
    factors: Sequence[Factor],
    *,
    alpha: complex = 1,
    beta: complex = 0,
    y: ArrayLike | None = None,
    out: Array | None = None,
    transpose: bool | Sequence[bool] = False,
    conj: bool | Sequence[bool] = False,
    precision: Precision | None = None,
    tune: bool = False,
) -> Array:
    """Compute alpha x (A_1 ⊗ … ⊗ A_d) + beta y.

    Parameters
    ----------
    x : array_like, (ΠP,) or (..., M, ΠP)
        Vectors, as the left operand of `numpy.matmul`.
    factors : sequence of array_like, each (P_k, Q_k) or (..., P_k, Q_k), or of `Identity`
        The matrices A_1 … A_d; A_1 belongs to the slowest index, as in `scipy.linalg.kron`.
        Leading axes broadcast together, and with those of x. An ``Identity(n)`` among them is
        skipped, as in `gekmm`.
    alpha, beta : scalar
        Scale the product and y.
    y : array_like, (ΠQ,) or (..., M, ΠQ), optional
        Scaled by beta and added; needed if beta is not 0, and never written unless it is ``out``.
    out : ndarray, optional
        Array that the result is written to; may be ``y``, but must not overlap any other input.
    transpose, conj : bool or one bool per factor
        Use A_k^T, conj(A_k), or with both A_k^H.
    precision : {None, "tf32x3", "tf32"}
        As in `gekmm`.
    tune : bool
        On a CUDA device, search the fastest kernels for this shape, which takes up to two minutes;
        their choice is stored for all processes, so that later calls do not search. No effect on
        the CPU.

    Returns
    -------
    ndarray, (ΠQ,) or (..., M, ΠQ)
        The result, ``out`` if given; dtype as in `gekmm`.

    Raises
    ------
    ValueError
        If shapes do not fit, beta is given without y, ``out`` is read-only or overlaps an input or
        itself, or the precision is another one.
    TypeError
        If a dtype has no kernels, an array is masked, ``out`` has another dtype than the result,
        or ``transpose``, ``conj`` or ``tune`` is not a bool.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> A, B = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> bk.gemkm([1.0, 2.0, 3.0, 4.0], [A, B])
    array([14., 10., 20., 14.])
    """
    if transpose is False and conj is False and tune is False:
        result = fast_multiply(factors, x, False, alpha, beta, y, out, precision)
        if result is not None:
            return result
    scales: dict[str, Any] = {"alpha": alpha, "beta": beta}
    options: dict[str, Any] = {"transpose": transpose, "conj": conj, "precision": precision}
    return _multiply(factors, x, False, y, out, tune, **scales, **options)


def _multiply(
    factors: Sequence[Factor],
    x: ArrayLike,
    left: bool,
    y: ArrayLike | None,
    out: Array | None,
    tune: bool,
    **options: Any,
) -> Array:
    """Return the result of gekmm (``left``) or gemkm for arguments of any kind."""
    if any_foreign(factors, x, y, out):
        kind = common_kind(factors=factors, x=x, y=y, out=out)
        named: dict[str, Any] = {"y": y, "out": out, "tune": tune, **options}
        if left:
            return in_kind(gekmm, kind, factors, x, **named)  # type: ignore[no-any-return]
        return in_kind(gemkm, kind, x, factors, **named)  # type: ignore[no-any-return]
    tuning = tuning_for(tune)
    call = kron_call(factors, x, left=left, y=y, **options)
    if tuning is None:
        return _run(call, out)
    with tuned_plans(tuning):
        return _run(call, out)


def _run(call: KronCall, out: Array | None) -> Array:
    """Compute the result of a validated call into ``out`` or a new array."""
    dtype, chosen = call.spec.dtype, backend_for(array_module(call.x))
    if out is None:
        target = chosen.empty(call.shape, dtype)
    else:
        others = list(call.given)
        if call.y is not None and call.y is not out and call.beta != 0:
            others.append(call.y)
        check_output(out, call.shape, dtype, others)
        target = out if is_plain(out) else chosen.empty(call.shape, dtype)
    y = target if call.y is out and target is out else call.y
    if not is_finite(call.alpha, dtype):
        product = times(call.alpha, _run(replace(call, alpha=1.0, beta=0.0, y=None), None))
        target[...] = product if y is None or call.beta == 0 else product + times(call.beta, y)
    elif call.systems:
        _run_systems(call, y, target)
    else:
        plan = chosen.kron_plan(call.spec)
        plan.run(call.factors, call.x, call.alpha, call.beta, y, target)
    if out is None or target is out:
        return target
    out[...] = target
    return out


def _run_systems(call: KronCall, y: Array | None, target: Array) -> None:
    """Run a call whose factors have leading axes; each entry of these axes is a system."""
    spec, module = call.spec, array_module(call.x)
    batch = batch_of_systems(call)
    chosen = backend_for(module)
    plan = chosen.batch_plan(batch)
    reserve(plan, batch.systems, spec.inner)
    accumulate = call.beta != 0 and y is not None
    if accumulate:
        module.multiply(y, call.beta, out=target)
    plan.run(call.x, target, batch.systems, spec.inner, call.alpha, accumulate)


def kron(*factors: Factor | Sequence[Factor], out: Array | None = None) -> Array:
    """Compute the matrix A_1 ⊗ … ⊗ A_d explicitly.

    Parameters
    ----------
    *factors : array_like, each (P_k, Q_k), or `Identity`
        The matrices, or one sequence of them.
    out : ndarray, (ΠP, ΠQ), optional
        Array that the result is written to.

    Returns
    -------
    ndarray, (ΠP, ΠQ)
        The product, ``out`` if given; dtype as in `gekmm`.

    Raises
    ------
    ValueError
        If there is no factor, one is not a matrix, or ``out`` has another shape, is read-only or
        overlaps a factor or itself.
    TypeError
        If a dtype has no kernels, an array is masked, or ``out`` has another dtype than the result.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> bk.kron([[1, 2]], np.eye(2))
    array([[1., 0., 2., 0.],
           [0., 1., 0., 2.]])
    """
    given: Any = factors[0] if _is_sequence_of_matrices(factors) else factors
    chosen = backend_for(array_module(*given))
    result: Array | None = chosen.fast_path("kron")(given, out)
    if result is not None:
        return result
    if any_foreign(given, out):
        kind = common_kind(factors=given, out=out)
        return in_kind(kron, kind, *given, out=out)  # type: ignore[no-any-return]
    if any(isinstance(factor, IdentityFactor) for factor in given):
        module = array_module(*given)
        given = with_marks_as_matrices(given)
        given = [module.asarray(one) if is_identity(one) else one for one in given]
    return chosen.kron(given, out)


def _is_sequence_of_matrices(arguments: Sequence[Any]) -> bool:
    """Whether the only argument is itself a sequence of matrices."""
    if len(arguments) != 1:
        return False
    only = arguments[0]
    if hasattr(only, "ndim"):
        return bool(only.ndim == 3)
    return isinstance(only, Sequence) and len(only) > 0 and _rank(only[0]) == 2


def _rank(value: Any) -> int:
    return int(value.ndim) if hasattr(value, "ndim") else np.ndim(value)


def batched_gemm(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike | None = None,
    *,
    alpha: complex = 1,
    beta: complex = 0,
    transpose_b: bool = False,
    a_ids: ArrayLike | None = None,
    b_ids: ArrayLike | None = None,
    c_ids: ArrayLike | None = None,
) -> Array:
    """Compute c[c_ids[i]] = beta c[c_ids[i]] + alpha Σ a[a_ids[i]] b[b_ids[i]] for small matrices.

    Each output is scaled by beta once; products with the same ``c_ids`` entry are added up.

    Parameters
    ----------
    a : array_like, (count_a, m, k)
        Left matrices.
    b : array_like, (count_b, k, n), or (count_b, n, k) with ``transpose_b``
        Right matrices.
    c : array_like, (count_c, m, n), optional
        Scaled by beta and added; needed if beta is not 0, and never written.
    alpha, beta : scalar
        Scale the products and c.
    transpose_b : bool
        Multiply by the transposes of b.
    a_ids, b_ids, c_ids : array_like of int, (products,), optional
        The matrices that product i reads, and the one that it is added to; each defaults to
        0, 1, 2, …

    Returns
    -------
    ndarray, (count_c, m, n)
        A new array; count_c is that of ``c`` if given, else the largest ``c_ids`` entry + 1. The
        dtype is as in `gekmm`.

    Raises
    ------
    ValueError
        If shapes or numbers of products do not fit, or beta is given without c.
    IndexError
        If an id is out of range; the text names the first.
    TypeError
        If a dtype has no kernels, an array is masked, or ``transpose_b`` is not a bool.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> a, b = np.array([[[1.0, 2.0]], [[3.0, 4.0]]]), np.array([[[1.0], [1.0]]])
    >>> bk.batched_gemm(a, b, b_ids=[0, 0], c_ids=[0, 0])
    array([[[10.]]])
    """
    if c is None and a_ids is None and b_ids is None and c_ids is None:
        fast = backend_for(array_module(a)).fast_path("batched_gemm")
        products: Array | None = fast(a, b, alpha, beta, transpose_b)
        if products is not None:
            return products
    if any_foreign(a, b, c):
        kind = common_kind(a=a, b=b, c=c)
        ids: dict[str, Any] = {"a_ids": a_ids, "b_ids": b_ids, "c_ids": c_ids}
        scales: dict[str, Any] = {"alpha": alpha, "beta": beta, "transpose_b": transpose_b}
        return in_kind(batched_gemm, kind, a, b, c, **scales, **ids)  # type: ignore[no-any-return]
    alpha, beta = as_scalar(alpha, "alpha"), as_scalar(beta, "beta")
    transpose_b = as_flag(transpose_b, "transpose_b")
    given = a, b, c, alpha, beta, transpose_b, (a_ids, b_ids, c_ids)
    left, right, previous, chosen, shape = gemm_spec(*given)
    module, dtype = array_module(left), left.dtype
    if previous is None or beta == 0:
        result: Array = module.zeros(shape, dtype)
    else:
        result = module.empty(shape, dtype)
        module.multiply(previous, beta, out=result, dtype=dtype)
    multiply = backend_for(module).batched_gemm
    if is_finite(alpha, dtype):
        multiply(left, right, result, alpha, transpose_b, chosen)
    else:
        product: Array = module.zeros(shape, dtype)
        multiply(left, right, product, 1.0, transpose_b, chosen)
        result += times(alpha, product)
    return result
