"""Multiply by Kronecker-sparse matrices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import batchkron
from batchkron.spec.kron_sparse import Layout, check_layout
from batchkron.torch.multilinear import Multilinear, register
from batchkron.torch.tensors import check_tensors, numbered, on_stream_of, view

__all__ = ["kronecker_sparse"]

_LAYOUTS: tuple[Layout, Layout] = ("batch-first", "batch-last")


class _KroneckerSparse(Multilinear):
    """F(x; v) = x Kᵀ, or K x if the structure's number is 1, of the layout "batch-last"."""

    name = "kronecker_sparse"

    def shape(
        self, x: Tensor, arguments: Sequence[Tensor], numbers: Sequence[int]
    ) -> tuple[int, ...]:
        a, b, _, d = arguments[0].shape
        rows = a * b * d
        return (rows, *x.shape[1:]) if numbers[0] else (*x.shape[:-1], rows)

    def run(
        self,
        x: Tensor,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
        out: Tensor,
    ) -> None:
        layout = _LAYOUTS[numbers[0]]
        with on_stream_of(x):
            batchkron.kronecker_sparse_multiply(
                view(arguments[0]), view(x), layout=layout, out=view(out)
            )

    def adjoint(
        self,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
        x_shape: Sequence[int],
    ) -> tuple[list[Tensor], list[Tensor], list[int]]:
        return [arguments[0].conj().transpose(1, 2)], [], list(numbers)

    def batch_axis(self, numbers: Sequence[int]) -> int:
        return -1 if numbers[0] else 0

    def gradients(
        self,
        x: Tensor,
        gradient: Tensor,
        arguments: Sequence[Tensor],
        needed: Sequence[bool],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
    ) -> list[Tensor]:
        """∂v[i, k, l, j] = Σ_n G[n, i, k, j] conj(x[n, i, l, j])."""
        a, b, c, d = arguments[0].shape
        if numbers[0]:
            inputs, outputs = x.reshape(a, c, d, -1), gradient.reshape(a, b, d, -1)
            return [torch.einsum("ikjn,iljn->iklj", outputs, inputs.conj_physical()).contiguous()]
        count = x.numel() // max(1, a * c * d)
        inputs, outputs = x.reshape(count, a, c, d), gradient.reshape(count, a, b, d)
        return [torch.einsum("nikj,nilj->iklj", outputs, inputs.conj_physical()).contiguous()]


_multiply = register(_KroneckerSparse())


def kronecker_sparse(
    x: Tensor, values: Tensor | Sequence[Tensor], *, layout: Layout = "batch-first"
) -> Tensor:
    """Compute y = x Kᵀ, or K x, for a Kronecker-sparse matrix or a chain, with gradients.

    K has the support I_a ⊗ 1_{b×c} ⊗ I_d, and y[n, i, k, j] = Σ_l values[i, k, l, j] x[n, i, l, j].

    Parameters
    ----------
    x : Tensor, (..., a c d), or (a c d, ...) with "batch-last"
        The vectors that K multiplies; float32, float64, complex64 or complex128, on a CUDA device
        also float16 and bfloat16.
    values : Tensor, (a, b, c, d), or a sequence of such
        The entries K[i b d + k d + j, i c d + l d + j] = values[i, k, l, j]. A sequence is the
        chain K = K_1 K_2 … K_L, of which K_L is applied first.
    layout : {"batch-first", "batch-last"}
        Whether the elements of a vector are the last or the first axis of x and y.

    Returns
    -------
    Tensor, (..., a b d), or (a b d, ...) with "batch-last"

    Raises
    ------
    ValueError
        If a shape does not fit, there is no matrix, or the layout is another one.
    TypeError
        If dtypes or devices differ, or the dtype has no kernels.

    Notes
    -----
    With the gradient G of y: ∂x = G conj(K), a product with the pattern (a, c, b, d);
    ∂values[i, k, l, j] = Σ_n G[n, i, k, j] conj(x[n, i, l, j]). The matrix is definition 2.1 of
    Gonon, Zheng, Carrivain and Le, "Fast inference with Kronecker-sparse matrices" (2024).

    Examples
    --------
    >>> import torch
    >>> from batchkron.torch import kronecker_sparse
    >>> values = torch.arange(1.0, 5.0).reshape(1, 2, 2, 1)
    >>> kronecker_sparse(torch.tensor([[1.0, 1.0], [0.0, 1.0]]), values)
    tensor([[3., 7.],
            [2., 4.]])
    """
    chain = [values] if isinstance(values, Tensor) else list(values)
    if not chain:
        raise ValueError("values is empty; a chain needs at least one matrix")
    check_layout(layout)
    check_tensors([x, *chain], numbered("x", rest="values"), half=True)
    axis, last = (-1, 0) if layout == "batch-first" else (0, 1)
    for k in reversed(range(len(chain))):
        if chain[k].dim() != 4:
            raise ValueError(
                f"values[{k}] has shape {tuple(chain[k].shape)}; expected 4 dimensions, "
                f"(a, b, c, d)"
            )
        a, _, c, d = chain[k].shape
        if x.dim() == 0 or x.shape[axis] != a * c * d:
            raise ValueError(
                f"x has shape {tuple(x.shape)} where it is multiplied by values[{k}]; expected "
                f"{a * c * d} elements along axis {axis} for layout {layout!r}"
            )
        x = _multiply(x, [chain[k]], [], [last])
    return x
