"""Multiply by a batch list of Kronecker products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from batchkron.jax.arrays import checked_arrays, in_front, numbered
from batchkron.jax.multilinear import Multilinear, register

__all__ = ["batched_kron"]

_HIGHEST = jax.lax.Precision.HIGHEST


class _BatchedKron(Multilinear):
    """The products of a list, added up.

    The operands are x (outer, num_inputs, ΠQ), weights (products,), the pools (count_k, P_k, Q_k),
    and the lists factor_ids (products, modes), inputs and outputs (products,). The parameter is
    num_outputs.
    """

    name = "batched_kron"
    lists = 3

    def shape(self, *shapes: tuple[int, ...], **parameters: Any) -> tuple[int, ...]:
        size = math.prod(pool[1] for pool in shapes[2:-3])
        return shapes[0][0], parameters["num_outputs"], size

    def transpose(
        self, k: int, cotangent: jax.Array, operands: Sequence[Any], **parameters: Any
    ) -> jax.Array:
        """Exchange inputs and outputs for x; else gather all products, and contract them.

        Calls check their lists, gathers do not: where a number is out of range, all is NaN.
        """
        x, weights, *pools, ids, inputs, outputs = operands
        if k == 0:
            turned = [pool.swapaxes(1, 2) for pool in pools]
            return _multiply(
                cotangent, weights, *turned, ids, outputs, inputs, num_outputs=x.aval.shape[1]
            )
        scale = _one_or_nan(
            [inputs, outputs, *ids.T],
            [x.shape[1], cotangent.shape[1], *(pool.aval.shape[0] for pool in pools)],
        ).astype(cotangent.dtype)
        before, after = _blocks(x, inputs), _blocks(cotangent, outputs)
        mode = len(pools) if k == 1 else k - 2
        matrices: list[Any] = [
            None if j == mode else pool[ids[:, j]] for j, pool in enumerate(pools)
        ]
        sizes = [(pool.aval if j == mode else pool).shape[1:] for j, pool in enumerate(pools)]
        rows, columns = [size[0] for size in sizes], [size[1] for size in sizes]
        for j in range(mode):
            before = _mode(matrices[j], before, math.prod(rows[:j]))
        if k == 1:
            return scale * jnp.einsum("blr,blr->b", before, after, precision=_HIGHEST)
        for j in range(len(pools) - 1, mode, -1):
            after = _mode(matrices[j].swapaxes(1, 2), after, math.prod(rows[:j]))
        outer = before.shape[1] * math.prod(rows[:mode])
        left = after.reshape(len(ids), outer, rows[mode], -1)
        right = before.reshape(len(ids), outer, columns[mode], -1)
        each = jnp.einsum("blpr,blqr->bpq", left, right, precision=_HIGHEST)
        each = each * weights[:, None, None]
        return scale * jnp.zeros(pools[mode].aval.shape, each.dtype).at[ids[:, mode]].add(each)

    def batch(
        self, size: int, operands: Sequence[Any], axes: Sequence[int | None], **parameters: Any
    ) -> tuple[jax.Array, int]:
        """More vectors of one list; or one list with all products, blocks and matrices."""
        count, modes = parameters["num_outputs"], len(operands) - 5
        x = in_front(operands[0], axes[0], size)
        _, outer, blocks, length = x.shape
        if all(axis is None for axis in axes[1:]):
            y = _multiply(x.reshape(size * outer, blocks, length), *operands[1:], **parameters)
            return y.reshape(size, outer, *y.shape[1:]), 0
        weights, *rest = (
            in_front(operand, axis, size)
            if axis is not None or k in (0, *range(modes + 1, modes + 4))
            else operand
            for k, (operand, axis) in enumerate(zip(operands[1:], axes[1:], strict=True))
        )
        pools, (ids, inputs, outputs) = rest[:modes], rest[modes:]
        columns = []
        for k, axis in enumerate(axes[2 : 2 + modes]):
            column = ids[:, :, k]
            if axis is not None:
                column = _shifted(column, pools[k].shape[1])
                pools[k] = pools[k].reshape(-1, *pools[k].shape[2:])
            columns.append(column.reshape(-1))
        y = _multiply(
            jnp.moveaxis(x, 0, 1).reshape(outer, size * blocks, length),
            weights.reshape(-1),
            *pools,
            jnp.stack(columns, 1),
            _shifted(inputs, blocks).reshape(-1),
            _shifted(outputs, count).reshape(-1),
            num_outputs=size * count,
        )
        return y.reshape(outer, size, count, y.shape[2]), 1


def _shifted(numbers: jax.Array, count: int) -> jax.Array:
    """Return numbers (systems, products) below ``count`` for lists that are joined to one.

    Those out of range stay so: they do not become numbers of another system.
    """
    steps = jnp.arange(len(numbers), dtype=numbers.dtype)[:, None] * count
    return jnp.where((numbers >= 0) & (numbers < count), numbers + steps, -1)


def _one_or_nan(lists: Sequence[jax.Array], limits: Sequence[int]) -> jax.Array:
    """Return 1, or NaN if a number of a list is negative or not below the list's limit.

    It is multiplied by: a NaN that is selected would have derivatives that are 0.
    """
    pairs = zip(lists, limits, strict=True)
    inside = [jnp.all((numbers >= 0) & (numbers < limit)) for numbers, limit in pairs]
    return jnp.where(jnp.stack(inside).all(), 1.0, math.nan)


def _blocks(x: jax.Array, places: jax.Array) -> jax.Array:
    """Return the blocks of x (vectors, blocks, size) at some places, (places, vectors, size)."""
    return x[:, places].swapaxes(0, 1)


def _mode(matrices: Any, x: jax.Array, outer: int) -> jax.Array:
    """Multiply one mode of each product's blocks x (products, vectors, size) by its matrix.

    ``outer`` is the product of the sizes of the modes before.
    """
    products, vectors, size = x.shape
    rows, columns = matrices.shape[1:]
    split = x.reshape(products, vectors * outer, columns, size // (outer * columns))
    result = jnp.einsum("bpq,blqr->blpr", matrices, split, precision=_HIGHEST)
    return result.reshape(products, vectors, size // columns * rows)


_product = register(_BatchedKron())


def _multiply(*operands: jax.Array, num_outputs: int) -> jax.Array:
    """Bind the primitive, but for results without elements and sums without terms."""
    shape = _BatchedKron().shape(*(one.shape for one in operands), num_outputs=num_outputs)
    if math.prod(shape) == 0 or any(one.size == 0 for one in operands):
        return jnp.zeros(shape, operands[0].dtype)
    y: jax.Array = _product.bind(*operands, num_outputs=num_outputs)
    return y


def _list(values: Any, name: str, limits: Sequence[int]) -> jax.Array:
    """Return numbers of a list as an array, after checking those that are known.

    Raises `TypeError`, `IndexError` as `batched_kron` documents.
    """
    numbers = values if isinstance(values, jax.Array) else np.asarray(values)
    if numbers.size == 0:
        return jnp.zeros(numbers.shape, np.int32)
    if numbers.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {numbers.dtype}; expected integers")
    if not isinstance(values, jax.core.Tracer):
        known = np.asarray(numbers)
        wrong = (known < 0) | (known >= np.array(limits))
        if wrong.any():
            at = tuple(int(k) for k in np.argwhere(wrong)[0])
            limit = limits[at[-1] if len(limits) > 1 else 0]
            place = ", ".join(map(str, at))
            raise IndexError(f"{name}[{place}] is {known[at]}; expected 0 to {limit - 1}")
    found = jnp.asarray(numbers)
    return found if found.dtype in (np.int32, np.int64) else found.astype(np.int32)


def batched_kron(
    pools: jax.Array | Sequence[jax.Array],
    factor_ids: jax.Array | Sequence[Sequence[int]],
    x: jax.Array,
    inputs: jax.Array | Sequence[int],
    outputs: jax.Array | Sequence[int],
    num_outputs: int | None = None,
    *,
    weights: jax.Array | None = None,
) -> jax.Array:
    """Compute y[outputs[b]] = Σ_b weights[b] (A_1b ⊗ … ⊗ A_db) x[inputs[b]].

    Parameters
    ----------
    pools : sequence of jax.Array, each (count_k, P_k, Q_k), or one such array for all modes
        The matrices of each mode, of the dtype of x.
    factor_ids : jax.Array of int32 or int64, or nested list, (products, modes)
        Product b uses ``pools[k][factor_ids[b, k]]``.
    x : jax.Array, (..., num_inputs, ΠQ)
        Input blocks; float32, float64, complex64 or complex128.
    inputs, outputs : jax.Array of int32 or int64, or list, (products,)
        The block that each product reads, and the block that it is added to; both may repeat.
    num_outputs : int, optional
        Number of output blocks; the largest output + 1 by default, which needs outputs that are
        known when the call is traced.
    weights : jax.Array, (products,), optional
        Scalar factor of each product, of the dtype of x; 1 by default.

    Returns
    -------
    jax.Array, (..., num_outputs, ΠP)
        Blocks that no product is added to are zero.

    Raises
    ------
    ValueError
        If shapes do not fit, or num_outputs is missing where outputs is traced.
    IndexError
        If an index is out of range. One that is traced is an error of JAX when the product is
        computed; gradients that are computed without it are NaN.
    TypeError
        If dtypes differ, the dtype has no kernels, or an index is no integer.

    Notes
    -----
    With the cotangent ȳ of y: x̄ is the list with inputs and outputs exchanged, and transposed
    matrices. That of weights[b] is Σ ȳ[outputs[b]] (A_1b ⊗ …) x[inputs[b]]. That of a pool's
    matrix is the sum, over the products that use it in mode k, of weights[b] ȳ_b x_bᵀ, where x_b is
    x[inputs[b]] multiplied by the factors before mode k, and ȳ_b is ȳ[outputs[b]] multiplied by
    the transposes of those after it. Blocks and matrices of all products are gathered for these
    two, which takes memory for some arrays of (products, vectors, ΠP) elements. Mapped by
    `jax.vmap` over more than x, the lists of all systems become one.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from batchkron.jax import batched_kron
    >>> pool = jnp.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    >>> x = jnp.array([[1.0, 2.0, 3.0, 4.0]])
    >>> batched_kron(pool, [[0, 1], [1, 0]], x, [0, 0], [0, 0])
    Array([[5., 5., 5., 5.]], dtype=float32)
    """
    shapes = [np.shape(given) for given in (factor_ids, inputs, outputs)]
    if len(shapes[0]) != 2 or shapes[0][1] == 0:
        raise ValueError(f"factor_ids has shape {shapes[0]}; expected (products, modes)")
    products, modes = shapes[0]
    shared = isinstance(pools, (jax.Array, np.ndarray))
    given = [pools] * modes if shared else list(pools)
    if len(given) != modes:
        raise ValueError(
            f"there are {len(given)} pools; expected one per column of factor_ids, {modes}, or a "
            f"single array for all modes"
        )
    for name, shape in (("inputs", shapes[1]), ("outputs", shapes[2])):
        if shape != (products,):
            raise ValueError(
                f"{name} has shape {shape}; expected ({products},), one per row of factor_ids"
            )
    operands = [x, *given] if weights is None else [x, *given, weights]
    names = numbered("x", *(f"pools[{k}]" for k in range(modes)), "weights", rest="")
    x, *matrices = checked_arrays(operands, names)
    scale = jnp.ones(products, x.dtype) if weights is None else matrices.pop()
    if scale.shape != (products,):
        raise ValueError(f"weights has shape {scale.shape}; expected ({products},)")
    for k, pool in enumerate(matrices):
        if pool.ndim != 3:
            raise ValueError(f"pools[{k}] has shape {pool.shape}; expected (count, rows, columns)")
    size = math.prod(pool.shape[2] for pool in matrices)
    if x.ndim < 2 or x.shape[-1] != size:
        raise ValueError(
            f"x has shape {x.shape}; expected (..., blocks, {size}), because the matrices have "
            f"{size} columns together"
        )
    if num_outputs is None:
        if isinstance(outputs, jax.core.Tracer):
            raise ValueError(
                "num_outputs is missing; it has to be given where outputs is traced, as by jax.jit"
            )
        num_outputs = int(np.max(outputs)) + 1 if products else 0
    vectors = x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
    y = _multiply(
        vectors,
        scale,
        *matrices,
        _list(factor_ids, "factor_ids", [len(pool) for pool in matrices]),
        _list(inputs, "inputs", [x.shape[-2]]),
        _list(outputs, "outputs", [num_outputs]),
        num_outputs=num_outputs,
    )
    return y.reshape(*x.shape[:-2], num_outputs, y.shape[2])
