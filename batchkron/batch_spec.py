"""Validation of batch lists: every index checked once, when an operator is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.spec import Accumulation, Array, BatchSpec, as_host_array, compute_dtype

LARGEST_POOL = 2**31 - 1


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
) -> BatchSpec:
    """Validate a batch list and copy it.

    Raises
    ------
    ValueError, TypeError, IndexError
        As `batchkron.BatchedKron` documents.
    """
    if accumulation not in get_args(Accumulation):
        raise ValueError(
            f"accumulation is {accumulation!r}; expected one of {', '.join(get_args(Accumulation))}"
        )
    ids = index_array(factor_ids, "factor_ids", 2)
    modes = ids.shape[1]
    if modes == 0:
        raise ValueError("factor_ids has no columns; expected one per mode, at least one")
    arrays = _pool_arrays(pools, modes)
    source = index_array(inputs, "inputs", 1)
    target = index_array(outputs, "outputs", 1)
    for name, array in (("inputs", source), ("outputs", target)):
        if len(array) != len(ids):
            raise ValueError(
                f"{name} has {len(array)} entries; expected one per row of factor_ids, {len(ids)}"
            )
    scale = None if weights is None else as_host_array(weights, "weights")
    if scale is not None and scale.shape != (len(ids),):
        raise ValueError(f"weights has shape {scale.shape}; expected ({len(ids)},)")
    dtype = compute_dtype(*arrays, *([] if scale is None else [scale]))
    _check_factor_ids(ids, arrays)
    return BatchSpec(
        pools=_copied(arrays, dtype),
        factor_ids=ids,
        inputs=source,
        outputs=target,
        weights=np.ones(len(ids), dtype) if scale is None else np.array(scale, dtype),
        num_inputs=_checked_count(source, num_inputs, "inputs"),
        num_outputs=_checked_count(target, num_outputs, "outputs"),
        accumulation=accumulation,
        dtype=dtype,
        identity=_identity_flags(arrays),
    )


def _copied(arrays: list[Array], dtype: np.dtype[Any]) -> tuple[Array, ...]:
    """Copy the pools, one array that serves several modes only once."""
    copies: dict[int, Array] = {}
    for array in arrays:
        if id(array) not in copies:
            copies[id(array)] = np.array(array, dtype=dtype, order="C")
    return tuple(copies[id(array)] for array in arrays)


def _identity_flags(arrays: list[Array]) -> tuple[NDArray[np.bool_], ...]:
    """Say for every matrix of every pool whether it is exactly the identity."""
    flags: dict[int, NDArray[np.bool_]] = {}
    for array in arrays:
        if id(array) not in flags:
            count, rows, columns = array.shape
            flags[id(array)] = (
                (array == np.eye(rows)).all(axis=(1, 2))
                if rows == columns
                else np.zeros(count, bool)
            )
    return tuple(flags[id(array)] for array in arrays)


def _pool_arrays(pools: Sequence[ArrayLike] | Array, modes: int) -> list[Array]:
    """Return one array per mode; a single array serves all modes."""
    if hasattr(pools, "ndim"):
        arrays = [as_host_array(cast(Array, pools), "pools")] * modes
    else:
        seen: dict[int, Array] = {}
        for k, pool in enumerate(pools):
            if id(pool) not in seen:
                seen[id(pool)] = as_host_array(pool, f"pools[{k}]")
        arrays = [seen[id(pool)] for pool in pools]
    if len(arrays) != modes:
        raise ValueError(
            f"there are {len(arrays)} pools; expected one per column of factor_ids, {modes}, "
            f"or a single array for all modes"
        )
    for k, array in enumerate(arrays):
        if array.ndim != 3:
            raise ValueError(
                f"pools[{k}] has shape {array.shape}; expected 3 dimensions, (count, rows, columns)"
            )
        if len(array) > LARGEST_POOL:
            raise ValueError(f"pools[{k}] has {len(array)} matrices; at most {LARGEST_POOL}")
    return arrays


def index_array(values: ArrayLike, name: str, rank: int) -> NDArray[np.int64]:
    """Return a fresh int64 array of ``rank`` dimensions; an empty list counts as integers."""
    array = as_host_array(values, name)
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
    """Name the first row whose factor id is not in its pool."""
    for k, pool in enumerate(pools):
        wrong = (ids[:, k] < 0) | (ids[:, k] >= len(pool))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise IndexError(
                f"factor_ids[{row}, {k}] is {ids[row, k]}; expected 0 to {len(pool) - 1}, "
                f"because pools[{k}] has {len(pool)} matrices"
            )


def _checked_count(indices: NDArray[np.int64], count: int | None, name: str) -> int:
    """Return the number of blocks, after checking that all indices are below it."""
    if count is not None and (isinstance(count, bool) or not isinstance(count, (int, np.integer))):
        raise TypeError(f"num_{name} is {count!r}; expected an integer")
    if count is not None and count < 0:
        raise ValueError(f"num_{name} is {count}; expected 0 or more")
    limit = (int(indices.max()) + 1 if len(indices) else 0) if count is None else int(count)
    wrong = (indices < 0) | (indices >= limit)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise IndexError(
            f"{name}[{row}] is {indices[row]}; expected 0 to {limit - 1}"
            + ("" if count is None else f", because num_{name} is {limit}")
        )
    return limit
