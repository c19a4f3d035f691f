"""Multiply by Kronecker-sparse matrices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from batchkron.spec.kron_sparse import Layout, check_layout
from batchkron.torch.call_modes import is_eager, is_transformed
from batchkron.torch.multilinear import Multilinear
from batchkron.torch.registration import register
from batchkron.torch.sparse_chain import chain_gradients, multiply_chain
from batchkron.torch.tensors import as_single, check_tensors, numbered

__all__ = ["check_chain", "kronecker_sparse", "multiply", "product"]


class KroneckerSparse(Multilinear):
    """F(x; v) = x (K_1 ⋯ K_L)ᵀ, or K_1 ⋯ K_L x of the layout "batch-last", of number 1."""

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
        multiply_chain(x, arguments, bool(numbers[0]), out, keep=False)

    def run_keeping(
        self,
        x: Tensor,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
        out: Tensor,
    ) -> list[Tensor]:
        return multiply_chain(x, arguments, bool(numbers[0]), out, keep=True)

    def adjoint(
        self,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
        x_shape: Sequence[int],
    ) -> tuple[list[Tensor], list[Tensor], list[int]]:
        return [one.conj().transpose(1, 2) for one in reversed(arguments)], [], list(numbers)

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
        given = x, gradient, arguments, needed, bool(numbers[0])
        return chain_gradients(*given, with_x=False, kept=[])[1]

    def all_gradients(
        self,
        x: Tensor,
        gradient: Tensor,
        arguments: Sequence[Tensor],
        needed: Sequence[bool],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
        with_x: bool,
        kept: Sequence[Tensor],
    ) -> tuple[Tensor | None, list[Tensor]]:
        given = x, gradient, arguments, needed, bool(numbers[0])
        return chain_gradients(*given, with_x=with_x, kept=kept)


multiply = register(KroneckerSparse())
"""The product with a chain: called with x, the chain, no lists, and [0], or [1] for batch-last."""


def kronecker_sparse(
    x: Tensor, values: Tensor | Sequence[Tensor], *, layout: Layout = "batch-first"
) -> Tensor:
    """Compute y = x Kᵀ, or K x, for a Kronecker-sparse matrix or a chain, with gradients.

    K has the support I_a ⊗ 1_{b×c} ⊗ I_d, and y[n, i, k, j] = Σ_l values[i, k, l, j] x[n, i, l, j].

    Parameters
    ----------
    x : Tensor, (..., a c d), or (a c d, ...) with "batch-last"
        The vectors that K multiplies; float32, float64, complex64 or complex128; float16
        and bfloat16, which on the CPU are computed in float32.
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
    if not isinstance(values, Iterable):
        raise TypeError(
            f"values is a {type(values).__name__}; expected a torch.Tensor, or a sequence of such"
        )
    chain = [values] if isinstance(values, Tensor) else list(values)
    half, (x, *chain) = as_single(x, *chain)
    if half is not None:
        return kronecker_sparse(x, chain, layout=layout).to(half)
    check_chain(x, chain, layout)
    return product(x, chain, layout == "batch-last")


def check_chain(x: Tensor, chain: Sequence[Tensor], layout: Layout) -> None:
    """Check that a chain multiplies vectors x.

    Raises `ValueError`, `TypeError` as `kronecker_sparse` says.
    """
    if not chain:
        raise ValueError("values is empty; a chain needs at least one matrix")
    check_layout(layout)
    check_tensors([x, *chain], numbered("x", rest="values"), half=True)
    axis = -1 if layout == "batch-first" else 0
    rows = x.shape[axis] if x.dim() else -1
    for k in reversed(range(len(chain))):
        if chain[k].dim() != 4:
            raise ValueError(
                f"values[{k}] has shape {tuple(chain[k].shape)}; expected 4 dimensions, "
                f"(a, b, c, d)"
            )
        a, b, c, d = chain[k].shape
        if rows != a * c * d:
            found = "no axis" if rows < 0 else f"{rows} elements along axis {axis}"
            raise ValueError(
                f"x has shape {tuple(x.shape)}, and {found} where it is multiplied by "
                f"values[{k}]; expected {a * c * d} for layout {layout!r}"
            )
        rows = a * b * d


def product(x: Tensor, chain: Sequence[Tensor], last: bool) -> Tensor:
    """Return K_1 ⋯ K_L x with gradients, of a chain that `check_chain` has accepted."""
    if is_eager(x, *chain) and not is_transformed():
        return multiply(x, chain, [], [int(last)])
    for values in reversed(chain):  # gradients of a traced chain would multiply x once more
        x = multiply(x, [values], [], [int(last)])
    return x
