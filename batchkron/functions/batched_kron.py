"""A batch list of Kronecker products that is used once, without an operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from numpy.typing import ArrayLike

from batchkron.array_kinds import any_foreign, common_kind, in_kind
from batchkron.arrays import array_module, as_array, is_plain
from batchkron.backends import backend_for
from batchkron.spec.batch import batch_spec, module_of_batch
from batchkron.spec.kron import Array, BatchSpec, check_output, compute_dtype, ready


def batched_kron(
    pools: Sequence[ArrayLike] | Array,
    factor_ids: ArrayLike,
    x: ArrayLike,
    inputs: ArrayLike,
    outputs: ArrayLike,
    y: Array,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """Add y[outputs[b]] += weights[b] (A_1b ⊗ … ⊗ A_db) x[inputs[b]] for all b, A_kb from a pool.

    For lists that are used once or twice: building a `BatchedKron` and applying it takes longer, up
    to 20 times where each product has matrices of its own. A list that is applied often is faster
    as an operator, which also skips factors that are identities.

    Parameters
    ----------
    pools : sequence of array_like (count_k, P_k, Q_k), or one such array for all modes
        The matrices of each mode. Leading axes are allowed as in `BatchedKron`.
    factor_ids : array_like of int, (products, modes)
        Product b uses ``pools[k][factor_ids[b, k]]``.
    x : array_like, (..., num_inputs, ΠQ)
        Input blocks.
    inputs, outputs : array_like of int, (products,)
        The block that each product reads, and the block that it is added to; both may repeat, in
        any order.
    y : ndarray, (..., num_outputs, ΠP)
        Output blocks, to which products are added in place. It must have the dtype of the other
        arrays together, `numpy.result_type` after integers have become float64 and float16 float32,
        and must not overlap x.
    weights : array_like, (products,), optional
        Scalar factor of each product; 1 by default.

    Returns
    -------
    ndarray
        y itself.

    Raises
    ------
    ValueError
        If shapes do not fit together, or y is read-only or overlaps x or itself.
    IndexError
        If an index is out of range; the text names it.
    TypeError
        If a dtype has no kernels, indices are not integers, or y has another dtype than the result.
    OverflowError
        If there are 2^31 input blocks or more.

    Notes
    -----
    On the CPU the list is sorted by output, by counting, in memory that later calls use again; the
    products of an output are then added by one thread in the order of the list. So the bits
    do not depend on the number of threads. Nothing is written to y if an argument is refused.

    On a device, CuPy arrays that need no conversion take one launch, which adds products
    atomically, in any order. A product with a number out of range is left out there, and the next
    call with CuPy arrays raises the IndexError: no call waits for the device.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> pool = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    >>> y = np.zeros((1, 4))
    >>> bk.batched_kron(pool, [[0, 1], [1, 0]], np.array([[1.0, 2.0, 3.0, 4.0]]), [0, 0], [0, 0], y)
    array([[5., 5., 5., 5.]])
    """
    fast = backend_for(array_module(y)).fast_path("batched_kron")
    if fast(pools, factor_ids, x, inputs, outputs, y, weights):
        return y
    if any_foreign(pools, x, y, weights):
        kind = common_kind(pools=pools, x=x, y=y, weights=weights)
        lists = factor_ids, x, inputs, outputs, y
        return in_kind(batched_kron, kind, pools, *lists, weights=weights)  # type: ignore[no-any-return]
    if not hasattr(pools, "ndim"):
        pools = list(pools)
    module = module_of_batch(pools, weights)
    blocks = as_array(x, "x", module)
    target = as_array(y, "y", module)
    for name, array in (("x", blocks), ("y", target)):
        if array.ndim < 2:
            raise ValueError(
                f"{name} has shape {array.shape}; expected (..., blocks, elements of a block)"
            )
    spec = batch_spec(
        pools,
        factor_ids,
        inputs,
        outputs,
        weights=weights,
        num_inputs=blocks.shape[-2],
        num_outputs=target.shape[-2],
        accumulation="auto",
        skip_identities=False,
    )
    return _add(spec, blocks, y)


def _add(spec: BatchSpec, x: Array, y: Array) -> Array:
    """Add the products of a validated list to y, after checking x and y."""
    leading, systems = x.shape[:-2], spec.batch_shape
    if x.shape[-1] != spec.input_size:
        raise ValueError(
            f"x has shape {x.shape}; expected blocks of {spec.input_size} elements, the product of "
            f"the matrices' columns"
        )
    if leading[len(leading) - len(systems) :] != systems:
        raise ValueError(
            f"x has shape {x.shape}; expected (..., {', '.join(map(str, systems))}, blocks, "
            f"elements), because pools or weights have these leading axes"
        )
    dtype = compute_dtype(x, *spec.pools, spec.weights)
    shape = (*leading, spec.num_outputs, spec.output_size)
    check_output(y, shape, dtype, (x,), "y")
    pools = tuple(pool.astype(dtype, copy=False) for pool in spec.pools)
    weights = spec.weights.astype(dtype, copy=False)
    list_ = replace(spec, pools=pools, weights=weights, dtype=dtype)
    plan = backend_for(array_module(x)).batch_plan(list_)
    target = y if is_plain(y) else ready(y, dtype)
    plan.run(ready(x, dtype), target, math.prod(leading), 1, 1.0, True)
    if target is not y:
        y[...] = target
    return y
