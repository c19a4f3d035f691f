"""Validation of batch lists: every index is checked once, when an operator is built.

A batch list is the set of products y[outputs[b]] += weights[b] (⊗_k pools[k][ids[b, k]])
x[inputs[b]]. A "system" is one of several independent operators that share these lists of indices
but have matrices and weights of their own, along leading axes of the pools and the weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.arrays import array_module, as_array, as_list, to_host
from batchkron.spec.kron import Accumulation, Array, BatchSpec, KronCall, as_flag, compute_dtype

MAX_POOL_MATRICES = 2**31 - 1  # matrices of one pool, so that the backends' ids fit into int32
MAX_BLOCKS = 2**40  # input or output blocks: far more than memories hold, far from int64's range


def batch_spec(
    pools: Sequence[ArrayLike] | Array,
    factor_ids: ArrayLike,
    inputs: ArrayLike,
    outputs: ArrayLike,
    *,
    weights: ArrayLike | None,
    num_inputs: int | None,
    num_outputs: int | None,
    accumulation: Accumulation,
    skip_identities: bool,
) -> BatchSpec:
    """Validate a batch list and copy it.

    Raises `ValueError`, `TypeError`, `IndexError` as `batchkron.BatchedKron` documents.
    """
    skip_identities = as_flag(skip_identities, "skip_identities")
    if accumulation not in get_args(Accumulation):
        raise ValueError(
            f"accumulation is {accumulation!r}; expected one of {', '.join(get_args(Accumulation))}"
        )
    ids = index_array(factor_ids, "factor_ids", 2)
    modes = ids.shape[1]
    if modes == 0:
        raise ValueError("factor_ids has no columns; expected one per mode, at least one")
    arrays = pool_arrays(pools, modes)
    source = index_array(inputs, "inputs", 1)
    target = index_array(outputs, "outputs", 1)
    for name, array in (("inputs", source), ("outputs", target)):
        if len(array) != len(ids):
            raise ValueError(
                f"{name} has {len(array)} entries; expected one per row of factor_ids, {len(ids)}"
            )
    scale = np.ones(len(ids)) if weights is None else to_host(weights, "weights")
    _check_weights(scale, len(ids))
    dtype = compute_dtype(*arrays) if weights is None else compute_dtype(*arrays, scale)
    _check_factor_ids(ids, arrays)
    batch_shape = _batch_shape(arrays, scale)
    ready = pool_values(arrays, batch_shape, dtype)
    return BatchSpec(
        pools=ready,
        factor_ids=ids,
        inputs=source,
        outputs=target,
        weights=weight_values(scale, batch_shape, dtype),
        num_inputs=_checked_count(source, num_inputs, "inputs"),
        num_outputs=_checked_count(target, num_outputs, "outputs"),
        batch_shape=batch_shape,
        accumulation=accumulation,
        dtype=dtype,
        identity=tuple(identity_flags(pool) & skip_identities for pool in ready),
    )


def one_product_spec(
    factors: Sequence[Array], blocks: int, batch_shape: tuple[int, ...] | None = None
) -> BatchSpec:
    """Return the batch list that applies one Kronecker product per system to ``blocks`` blocks.

    ``factors[k]`` is (..., P_k, Q_k), all of one dtype. The leading axes broadcast together to the
    shape of the systems, ``batch_shape`` if that is given.

    Raises `ValueError` if the leading axes do not broadcast together.
    """
    pools = [factor[..., None, :, :] for factor in factors]
    dtype = factors[0].dtype
    if batch_shape is None:
        batch_shape = _batch_shape(pools, np.ones(1), "factors")
    every = np.arange(blocks)
    return BatchSpec(
        pools=pool_values(pools, batch_shape, dtype),
        factor_ids=np.zeros((blocks, len(pools)), np.int64),
        inputs=every,
        outputs=every,
        weights=np.ones((1, blocks), dtype),
        num_inputs=blocks,
        num_outputs=blocks,
        batch_shape=batch_shape,
        accumulation="auto",
        dtype=dtype,
        identity=tuple(np.zeros(1, bool) for _ in pools),
    )


def one_sum_spec(factors: Sequence[Array]) -> BatchSpec:
    """Return the batch list of one Kronecker sum A_1 ⊗ I … ⊗ I + … + I ⊗ … I ⊗ A_d per system.

    ``factors[k]`` is (..., n_k, n_k), all of one dtype; the leading axes broadcast together to the
    shape of the systems. The list has one product for each factor.

    Raises `ValueError` if the leading axes do not broadcast together.
    """
    modes = len(factors)
    batch_shape = batch_shape_of(factors)
    dtype = factors[0].dtype
    pools = []
    for factor in factors:
        identity = np.broadcast_to(np.eye(factor.shape[-1], dtype=dtype), factor.shape)
        pools.append(np.stack([identity, factor], axis=-3))
    zeros = np.zeros(modes, np.int64)
    return BatchSpec(
        pools=pool_values(pools, batch_shape, dtype),
        factor_ids=np.eye(modes, dtype=np.int64),
        inputs=zeros,
        outputs=zeros,
        weights=np.ones((1, modes), dtype),
        num_inputs=1,
        num_outputs=1,
        batch_shape=batch_shape,
        accumulation="auto",
        dtype=dtype,
        identity=tuple(np.array([True, False]) for _ in pools),
    )


def batch_shape_of(factors: Sequence[Array]) -> tuple[int, ...]:
    """Return the shape to which the leading axes of factors (..., P_k, Q_k) broadcast.

    Raises `ValueError` if they do not broadcast together.
    """
    return _batch_shape([factor[..., None, :, :] for factor in factors], np.ones(1), "factors")


def batch_of_systems(call: KronCall) -> BatchSpec:
    """Return the batch list of one call of gekmm or gemkm whose factors have leading axes.

    Each entry of the leading axes is a system, with ``outer / systems`` blocks.
    """
    factors = [
        factor.reshape(factor.shape[-2:]) if math.prod(factor.shape[:-2]) == 1 else factor
        for factor in call.factors
    ]
    systems = math.prod(call.systems)
    blocks = call.spec.outer // systems if systems else 0
    return one_product_spec(factors, blocks, call.systems)


def _check_weights(weights: Array, products: int) -> None:
    """Check that the last axis of the weights has one entry per product."""
    if weights.ndim == 0 or weights.shape[-1] != products:
        raise ValueError(
            f"weights has shape {weights.shape}; expected (products,) = ({products},), or that "
            f"with leading axes for several systems"
        )


def _batch_shape(
    pools: Sequence[Array], weights: Array, names: str = "pools and weights"
) -> tuple[int, ...]:
    """Broadcast the leading axes of pools and weights."""
    shapes = [pool.shape[:-3] for pool in pools] + [weights.shape[:-1]]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(
            f"the leading axes of {names}, {', '.join(map(str, shapes))}, do not broadcast together"
        ) from None


def module_of_batch(pools: Sequence[ArrayLike] | Array, weights: ArrayLike | None) -> Any:
    """Return the module of the pools' arrays, NumPy or CuPy.

    Raises `TypeError` if some are on a device and some are not, or only the weights are.
    """
    given = [pools] if hasattr(pools, "ndim") else pools
    module = array_module(*given)
    named: list[tuple[str, object]] = [(f"pools[{k}]", pool) for k, pool in enumerate(given)]
    if module is np:
        named.append(("weights", weights))
    for name, value in named:
        if isinstance(value, np.ndarray) or hasattr(value, "__cuda_array_interface__"):
            as_array(cast(Array, value), name, module)
    return module


def pool_values(
    pools: Sequence[Array], batch_shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[Array, ...]:
    """Copy pools to shape (systems or 1, count, P, Q), C-contiguous.

    The first axis has length 1 if all systems share the matrices. An array that is the pool of
    several modes is copied once.
    """
    copies: dict[int, Array] = {}
    for pool in pools:
        if id(pool) not in copies:
            shape = pool.shape[-3:] if pool.ndim == 3 else batch_shape + pool.shape[-3:]
            module = array_module(pool)
            values = module.array(module.broadcast_to(pool, shape), dtype=dtype, order="C")
            systems = math.prod(shape[:-3])
            copies[id(pool)] = values.reshape(systems, *pool.shape[-3:])
    return tuple(copies[id(pool)] for pool in pools)


def weight_values(weights: Array, batch_shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Copy weights to shape (systems, products), or (1, products) if all systems share them."""
    shape = weights.shape if weights.ndim == 1 else (*batch_shape, weights.shape[-1])
    values = np.array(np.broadcast_to(weights, shape), dtype=dtype, order="C")
    systems = 1 if weights.ndim == 1 else math.prod(batch_shape)
    return values.reshape(systems, weights.shape[-1])


def identity_flags(pool: Array) -> NDArray[np.bool_]:
    """Return, for each matrix of a pool, whether it is exactly the identity in all systems."""
    _, count, rows, columns = pool.shape
    if rows != columns or len(pool) == 0:
        return np.zeros(count, bool)
    return np.asarray((pool == np.eye(rows)).all(axis=(0, 2, 3)))


def pool_arrays(pools: Sequence[ArrayLike] | Array, modes: int) -> list[Array]:
    """Return one array per mode, in main memory; a single array is the pool of all modes."""
    if not hasattr(pools, "ndim"):
        pools = as_list(pools, "pools")
    if hasattr(pools, "ndim"):
        arrays = [to_host(cast(Array, pools), "pools")] * modes
    else:
        seen: dict[int, Array] = {}
        for k, pool in enumerate(pools):
            if id(pool) not in seen:
                seen[id(pool)] = to_host(pool, f"pools[{k}]")
        arrays = [seen[id(pool)] for pool in pools]
    if len(arrays) != modes:
        raise ValueError(
            f"there are {len(arrays)} pools; expected one per column of factor_ids, {modes}, "
            f"or a single array for all modes"
        )
    for k, array in enumerate(arrays):
        if array.ndim < 3:
            raise ValueError(
                f"pools[{k}] has shape {array.shape}; expected 3 dimensions, "
                f"(count, rows, columns), or those after leading axes for several systems"
            )
        if array.shape[-3] > MAX_POOL_MATRICES:
            raise ValueError(
                f"pools[{k}] has {array.shape[-3]} matrices; expected at most {MAX_POOL_MATRICES}"
            )
    return arrays


def index_array(values: ArrayLike, name: str, rank: int) -> NDArray[np.int64]:
    """Return a new int64 array of ``rank`` dimensions; an empty list is taken for integers."""
    array = to_host(values, name)
    if array.size == 0 and array.dtype == np.float64:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {array.dtype}; expected integers")
    if array.ndim != rank:
        shape = "(products, modes)" if rank == 2 else "(products,)"
        raise ValueError(f"{name} has shape {array.shape}; expected {shape}")
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise IndexError(f"{name} has an entry beyond the range of int64")
    return np.array(array, dtype=np.int64, order="C")


def _check_factor_ids(ids: NDArray[np.int64], pools: list[Array]) -> None:
    """Raise IndexError for the first row with a factor id that its pool does not have."""
    for k, pool in enumerate(pools):
        count = pool.shape[-3]
        wrong = (ids[:, k] < 0) | (ids[:, k] >= count)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise IndexError(
                f"factor_ids[{row}, {k}] is {ids[row, k]}; expected 0 to {count - 1}, "
                f"because pools[{k}] has {count} matrices"
            )


def _checked_count(indices: NDArray[np.int64], count: int | None, name: str) -> int:
    """Return the number of blocks, after checking that all indices are below it."""
    if count is not None and (isinstance(count, bool) or not isinstance(count, (int, np.integer))):
        raise TypeError(f"num_{name} is {count!r}; expected an integer")
    if count is not None and count < 0:
        raise ValueError(f"num_{name} is {count}; expected 0 or more")
    limit = (int(indices.max()) + 1 if len(indices) else 0) if count is None else int(count)
    if limit > MAX_BLOCKS:
        raise ValueError(f"num_{name} would be {limit}; expected at most {MAX_BLOCKS} blocks")
    wrong = (indices < 0) | (indices >= limit)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise IndexError(
            f"{name}[{row}] is {indices[row]}; expected 0 to {limit - 1}"
            + ("" if count is None else f", because num_{name} is {limit}")
        )
    return limit


def transposed(spec: BatchSpec) -> BatchSpec:
    """Return the list of A^T."""
    pools = tuple(np.ascontiguousarray(pool.swapaxes(-1, -2)) for pool in spec.pools)
    return replace(
        spec,
        pools=pools,
        inputs=spec.outputs,
        outputs=spec.inputs,
        num_inputs=spec.num_outputs,
        num_outputs=spec.num_inputs,
    )


def conjugated(spec: BatchSpec) -> BatchSpec:
    """Return the list of conj(A)."""
    pools = tuple(pool.conj() for pool in spec.pools)
    return replace(spec, pools=pools, weights=spec.weights.conj())


def of_dtype(spec: BatchSpec, dtype: np.dtype[Any]) -> BatchSpec:
    """Return the list of A in another dtype."""
    pools = tuple(pool.astype(dtype) for pool in spec.pools)
    return replace(spec, pools=pools, weights=spec.weights.astype(dtype), dtype=dtype)
