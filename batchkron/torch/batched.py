"""Multiply by a batch list of Kronecker products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

import batchkron
from batchkron.torch.multilinear import Multilinear
from batchkron.torch.registration import register
from batchkron.torch.tensors import as_single, check_tensors, numbered, on_stream_of, view

__all__ = ["batched_kron"]


class _BatchedKron(Multilinear):
    """F(x; weights, pools) for the lists factor_ids, inputs, outputs, and a number of outputs."""

    name = "batched_kron"

    def shape(
        self, x: Tensor, arguments: Sequence[Tensor], numbers: Sequence[int]
    ) -> tuple[int, ...]:
        size = math.prod(pool.shape[1] for pool in arguments[1:])
        return (*x.shape[:-2], numbers[0], size)

    def run(
        self,
        x: Tensor,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
        out: Tensor,
    ) -> None:
        weights, *pools = arguments
        ids, inputs, outputs = lists
        out.zero_()
        with on_stream_of(x):
            matrices = [view(pool.contiguous()) for pool in pools]
            places = view(inputs.contiguous()), view(outputs.contiguous())
            vectors = view(x.contiguous())
            batchkron.batched_kron(
                matrices,
                view(ids.contiguous()),
                vectors,
                *places,
                view(out),
                weights=view(weights.contiguous()),
            )

    def adjoint(
        self,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
        x_shape: Sequence[int],
    ) -> tuple[list[Tensor], list[Tensor], list[int]]:
        weights, *pools = arguments
        ids, inputs, outputs = lists
        return [weights.conj(), *(p.mH for p in pools)], [ids, outputs, inputs], [x_shape[-2]]

    def gradients(
        self,
        x: Tensor,
        gradient: Tensor,
        arguments: Sequence[Tensor],
        needed: Sequence[bool],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
    ) -> list[Tensor]:
        """Gather the blocks and matrices of all products, contract them, and add up by pool."""
        weights, *pools = arguments
        ids, inputs, outputs = lists
        matrices = [pool[ids[:, k]] for k, pool in enumerate(pools)]
        before, after = _blocks(x, inputs), [_blocks(gradient, outputs)]
        target = after[0]
        for matrix in reversed(matrices[1:]):
            after.append(
                _mode(matrix.conj_physical().mT, after[-1], matrices[: len(matrices) - len(after)])
            )
        found = []
        for k, matrix in enumerate(matrices):
            if needed[k + 1]:
                found.append(
                    _added(pools[k], ids[:, k], weights, before, after.pop(), matrices[:k])
                )
            else:
                after.pop()
            if k < len(matrices) - 1 or needed[0]:
                before = _mode(matrix, before, matrices[:k])
        if needed[0]:
            found.insert(0, (before.conj_physical() * target).sum((1, 2)))
        return found


def _blocks(x: Tensor, places: Tensor) -> Tensor:
    """Return the blocks of x (..., blocks, size) at some places, (places, vectors, size)."""
    vectors = x.reshape(math.prod(x.shape[:-2]), x.shape[-2], x.shape[-1])
    return vectors[:, places].transpose(0, 1)


def _split(x: Tensor, rows: int, earlier: Sequence[Tensor]) -> Tensor:
    """Return x as (products, vectors and modes before, rows, modes behind)."""
    outer = x.shape[1] * math.prod(matrix.shape[1] for matrix in earlier)
    return x.reshape(len(x), outer, rows, x.numel() // max(1, len(x) * outer * rows))


def _mode(matrices: Tensor, x: Tensor, earlier: Sequence[Tensor]) -> Tensor:
    """Multiply one mode of each product's blocks x (products, vectors, size) by its matrix.

    ``earlier`` are the matrices (products, P, Q) of the modes before, which x has the sizes P of.
    """
    split = _split(x, matrices.shape[2], earlier)
    result = torch.einsum("bpq,blqr->blpr", matrices, split)
    size = x.shape[2] // max(1, matrices.shape[2]) * matrices.shape[1]
    return result.reshape(len(x), x.shape[1], size)


def _added(
    pool: Tensor,
    ids: Tensor,
    weights: Tensor,
    x: Tensor,
    gradient: Tensor,
    earlier: Sequence[Tensor],
) -> Tensor:
    """Return the gradient of a pool, the sum over the products that use each of its matrices."""
    _, rows, columns = pool.shape
    outputs, inputs = _split(gradient, rows, earlier), _split(x, columns, earlier)
    each = torch.einsum("blpr,blqr->bpq", outputs, inputs.conj_physical())
    each = each * weights.conj_physical()[:, None, None]
    return torch.zeros_like(pool, memory_format=torch.contiguous_format).index_add_(0, ids, each)


_multiply = register(_BatchedKron())


def batched_kron(
    pools: Tensor | Sequence[Tensor],
    factor_ids: Tensor | Sequence[Sequence[int]],
    x: Tensor,
    inputs: Tensor | Sequence[int],
    outputs: Tensor | Sequence[int],
    num_outputs: int | None = None,
    *,
    weights: Tensor | None = None,
) -> Tensor:
    """Compute y[outputs[b]] = Σ_b weights[b] (A_1b ⊗ … ⊗ A_db) x[inputs[b]], with gradients.

    Parameters
    ----------
    pools : sequence of Tensor, each (count_k, P_k, Q_k), or one such tensor for all modes
        The matrices of each mode, of the dtype of x and on its device.
    factor_ids : Tensor of int64, or nested list, (products, modes)
        Product b uses ``pools[k][factor_ids[b, k]]``.
    x : Tensor, (..., num_inputs, ΠQ)
        Input blocks; float32, float64, complex64 or complex128, on the CPU also float16 or
        bfloat16, which are computed in float32.
    inputs, outputs : Tensor of int64, or list, (products,)
        The block that each product reads, and the block that it is added to; both may repeat.
    num_outputs : int, optional
        Number of output blocks; the largest output + 1 by default, for which the call waits for
        the device.
    weights : Tensor, (products,), optional
        Scalar factor of each product, of the dtype of x; 1 by default.

    Returns
    -------
    Tensor, (..., num_outputs, ΠP)
        Blocks that no product is added to are zero.

    Raises
    ------
    ValueError
        If shapes do not fit.
    IndexError
        If an index is out of range; as in `batchkron.batched_kron`.
    TypeError
        If dtypes or devices differ, or the dtype has no kernels.

    Notes
    -----
    With the gradient G of y: ∂x is the list with inputs and outputs exchanged, adjoint matrices and
    conjugate weights. ∂weights[b] = Σ G[outputs[b]] conj((A_1b ⊗ …) x[inputs[b]]). The gradient of
    a pool's matrix is the sum, over the products that use it in mode k, of
    conj(weights[b]) G_b X_bᴴ, where X_b is x[inputs[b]] multiplied by the factors before mode k,
    and G_b is G[outputs[b]] multiplied by the adjoints of those after it. Blocks and matrices of
    all products are gathered for the gradients of weights and pools, which takes memory for some
    tensors of (products, vectors, ΠP) elements. On a CUDA device sums are in any order.

    Examples
    --------
    >>> import torch
    >>> from batchkron.torch import batched_kron
    >>> pool = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    >>> x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    >>> batched_kron(pool, [[0, 1], [1, 0]], x, [0, 0], [0, 0])
    tensor([[5., 5., 5., 5.]])
    """
    lists = [torch.as_tensor(given, device=x.device) for given in (factor_ids, inputs, outputs)]
    ids = lists[0]
    if ids.dim() != 2 or ids.shape[1] == 0:
        raise ValueError(f"factor_ids has shape {tuple(ids.shape)}; expected (products, modes)")
    matrices = [pools] * ids.shape[1] if isinstance(pools, Tensor) else list(pools)
    if len(matrices) != ids.shape[1]:
        raise ValueError(
            f"there are {len(matrices)} pools; expected one per column of factor_ids, "
            f"{ids.shape[1]}, or a single tensor for all modes"
        )
    for name, given in (("inputs", lists[1]), ("outputs", lists[2])):
        if given.dim() != 1 or len(given) != len(ids):
            raise ValueError(
                f"{name} has shape {tuple(given.shape)}; expected ({len(ids)},), one per row of "
                f"factor_ids"
            )
    scale = x.new_ones(len(ids)) if weights is None else weights
    half, (x, scale, *matrices) = as_single(x, scale, *matrices)
    if half is not None:
        return batched_kron(matrices, ids, x, inputs, outputs, num_outputs, weights=scale).to(half)
    check_tensors([x, scale, *matrices], numbered("x", "weights", rest="pools"))
    if scale.dim() != 1 or len(scale) != len(ids):
        raise ValueError(f"weights has shape {tuple(scale.shape)}; expected ({len(ids)},)")
    size = 1
    for k, pool in enumerate(matrices):
        if pool.dim() != 3:
            raise ValueError(
                f"pools[{k}] has shape {tuple(pool.shape)}; expected (count, rows, columns)"
            )
        size = size * pool.shape[2]
    if x.dim() < 2 or x.shape[-1] != size:
        raise ValueError(
            f"x has shape {tuple(x.shape)}; expected (..., blocks, {size}), because the matrices "
            f"have {size} columns together"
        )
    if num_outputs is None:
        known = torch.as_tensor(outputs)
        if known.is_meta:
            raise ValueError(
                "num_outputs is None; expected a number, because outputs is on the device meta and "
                "has no values"
            )
        num_outputs = int(known.max()) + 1 if len(ids) else 0
    return _multiply(x, [scale, *matrices], lists, [num_outputs])
