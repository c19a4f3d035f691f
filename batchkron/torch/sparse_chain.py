"""Chains of Kronecker-sparse matrices: products and gradients that record none themselves.

On a device all launches of a chain of real matrices are one call from Python, with addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

import batchkron
from batchkron.spec.kron_sparse import Layout
from batchkron.torch.products import computed, launched
from batchkron.torch.sparse_sums import sums_by_products
from batchkron.torch.tensors import are_filled, on_stream_of, view

if TYPE_CHECKING:
    from batchkron.backends.cuda.interface.device import ChainLayout, Ending, Place

__all__ = [
    "APPROXIMATE",
    "Activation",
    "LayerEnd",
    "broadcast",
    "chain_gradients",
    "multiply_chain",
]

Activation = Literal["gelu", "gelu-tanh"]
"""x Φ(x) with the distribution function Φ of the normal distribution, or Φ by a tanh."""
APPROXIMATE: dict[Activation, str] = {"gelu": "none", "gelu-tanh": "tanh"}
"""What torch's GELU calls them."""

_LAYOUTS: tuple[Layout, Layout] = ("batch-first", "batch-last")
_WORD = 16  # bytes to which kernels ask addresses to be aligned, at most
_NAMES = {  # of the dtypes whose chains have one call
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}


@dataclass(frozen=True, slots=True)
class LayerEnd:
    """What follows the product of a layer: z = K_1 ⋯ K_L x + bias, y = activation(z).

    ``bias`` (Tensor or None, (features,)): of the dtype of x, on its device.
    ``activation`` ({None, "gelu", "gelu-tanh"}): None only with a bias.
    ``before``: where z is written, like y; None if it is not wanted, or there is no activation.
    """

    bias: Tensor | None
    activation: Activation | None
    before: Tensor | None

    def write(self, y: Tensor, last: bool) -> None:
        """Do in the memory of y, which is K_1 ⋯ K_L x, what no kernel has done."""
        if self.bias is not None:
            y += broadcast(self.bias, y, last)
        if self.before is not None:
            self.before.copy_(y)
        if self.activation is not None:
            torch.ops.aten.gelu_(y, approximate=APPROXIMATE[self.activation])

    @property
    def addresses(self) -> tuple[int, int]:
        """Addresses of bias and z, 0 for what there is not."""
        return (
            0 if self.bias is None else self.bias.data_ptr(),
            0 if self.before is None else self.before.data_ptr(),
        )


def broadcast(bias: Tensor, y: Tensor, last: bool) -> Tensor:
    """Return a bias that can be added to vectors y."""
    return bias.reshape(-1, *[1] * (y.dim() - 1)) if last else bias


def multiply_chain(
    x: Tensor,
    chain: Sequence[Tensor],
    last: bool,
    out: Tensor,
    *,
    keep: bool,
    end: LayerEnd | None = None,
) -> list[Tensor]:
    """Write K_1 ⋯ K_L x to ``out``, and return what `chain_gradients` makes use of, if ``keep``.

    ``x`` (Tensor, (..., a c d) of K_L, or with ``last`` (a c d, ...)).
    ``chain`` (sequence of Tensor, (a, b, c, d)): the values of K_1, …, K_L.
    ``last``: whether vectors lie along the last axis.
    ``out``: contiguous; it overlaps no other tensor.
    ``end``: what follows; ``out`` is its y. Of real dtypes.
    """
    if x.is_cuda and x.dtype in _NAMES:
        return _multiply_on_device(x, chain, last, out, keep, end)
    kept: list[Tensor] = []
    for k in reversed(range(1, len(chain))):
        x = _product(x, chain[k], last)
        kept.append(x)
    _write_product(x, chain[0], last, out)
    if end is not None:
        end.write(out, last)
    return kept[::-1] if keep else []


def chain_gradients(
    x: Tensor,
    gradient: Tensor,
    chain: Sequence[Tensor],
    needed: Sequence[bool],
    last: bool,
    *,
    with_x: bool,
    kept: Sequence[Tensor],
) -> tuple[Tensor | None, list[Tensor]]:
    """Return the gradients of x, if wanted, and of the values that are needed, in new memory.

    With G_1 = G, the gradient of K_1 ⋯ K_L x, and x_L = x: ∂v_k is that of the values of K_k x_k,
    x_{k-1} = K_k x_k and G_{k+1} = K_kᴴ G_k.

    ``x``, ``chain``, ``last``: as for `multiply_chain`; nothing is empty.
    ``gradient``: G.
    ``needed``: at least one is True, or ``with_x``.
    ``kept``: x_1, …, x_{L-1} as `multiply_chain` returned them; they are computed again if it is
      empty.
    """
    if x.is_cuda and x.dtype in _NAMES:
        return _gradients_on_device(x, gradient, chain, needed, last, with_x, kept)
    inputs = [*kept, x]
    if not kept:
        for values in reversed(chain[1:]):
            inputs.insert(0, _product(inputs[0], values, last))
    wanted = [k for k in range(len(chain)) if needed[k]]
    found = []
    for k in range(len(chain) if with_x else wanted[-1] + 1):
        if needed[k]:
            found.append(sums_by_products(inputs[k], gradient, chain[k].shape, last))
        if with_x or k < wanted[-1]:
            adjoint = chain[k].conj_physical().transpose(1, 2)
            gradient = _product(gradient, adjoint, last)
    return gradient if with_x else None, found


def _product(x: Tensor, values: Tensor, last: bool) -> Tensor:
    a, b, _, d = values.shape
    rows = a * b * d
    out = x.new_empty((rows, *x.shape[1:]) if last else (*x.shape[:-1], rows))
    _write_product(x, values, last, out)
    return out


def _write_product(x: Tensor, values: Tensor, last: bool, out: Tensor) -> None:
    with on_stream_of(x):
        layout = _LAYOUTS[last]
        batchkron.kronecker_sparse_multiply(view(values), view(x), layout=layout, out=view(out))


def _layout(x: Tensor, chain: Sequence[Tensor], last: bool, count: int) -> ChainLayout:
    """Return the layout of vectors x and of values, as plans need to know them."""
    from batchkron.backends.cuda.interface.device import ChainLayout

    factors = [(v.shape, v.stride(), v.data_ptr() % _WORD) for v in chain]
    odd = x.data_ptr() | _WORD
    return ChainLayout(_NAMES[x.dtype], tuple(factors), count, last, odd & -odd)


def _count(x: Tensor, last: bool) -> int:
    """Return the number of vectors; x is not empty."""
    return x.numel() // x.shape[0 if last else -1]


def _multiply_on_device(
    x: Tensor,
    chain: Sequence[Tensor],
    last: bool,
    out: Tensor,
    keep: bool,
    end: LayerEnd | None = None,
) -> list[Tensor]:
    from batchkron.backends.cuda.interface.device import chain_product

    if not are_filled(x, *chain):
        out.zero_()
        if end is not None:
            end.write(out, last)
        return []
    x, chain = computed(x).contiguous(), [computed(values) for values in chain]
    ending: Ending = "none" if end is None else end.activation or "bias"
    plan = chain_product(_layout(x, chain, last, _count(x, last)), keep, ending, x.get_device())
    kept = x.new_empty(plan.kept // x.itemsize)
    memory = x.new_empty(plan.workspace // x.itemsize)
    addresses = (
        *[one.data_ptr() for one in (x, out, kept, memory)],
        *((0, 0) if end is None else end.addresses),
        *[values.data_ptr() for values in chain],
    )
    launched(x, lambda stream: plan.sequence(stream, addresses, b""))
    if end is not None and not plan.has_ended:
        end.write(out, last)
    return [kept] if keep else []


def _kept_on_device(x: Tensor, chain: Sequence[Tensor], layout: ChainLayout, last: bool) -> Tensor:
    """Return what a product keeps, without the product with K_1."""
    from batchkron.backends.cuda.interface.device import chain_product

    kept = x.new_empty(layout.places[-1] // x.itemsize)
    if len(chain) > 1:
        others = _layout(x, chain[1:], last, layout.count)
        plan = chain_product(others, True, "none", x.get_device())
        memory = x.new_empty(plan.workspace // x.itemsize)
        begin = kept.data_ptr()
        places = x.data_ptr(), begin, begin + layout.places[1], memory.data_ptr(), 0, 0
        addresses = (*places, *[values.data_ptr() for values in chain[1:]])
        launched(x, lambda stream: plan.sequence(stream, addresses, b""))
    return kept


def _gradients_on_device(
    x: Tensor,
    gradient: Tensor,
    chain: Sequence[Tensor],
    needed: Sequence[bool],
    last: bool,
    with_x: bool,
    kept: Sequence[Tensor],
) -> tuple[Tensor | None, list[Tensor]]:
    from batchkron.backends.cuda.interface import device as plans

    x, gradient = computed(x).contiguous(), computed(gradient).contiguous()
    chain = [computed(values) for values in chain]
    layout = _layout(gradient, chain, last, _count(x, last))
    held = kept[0] if kept else _kept_on_device(x, chain, layout, last)
    plan = plans.chain_gradients(layout, tuple(needed), with_x, x.get_device())
    memory = x.new_empty(plan.workspace // x.itemsize)
    of_x = x.new_empty(x.shape) if with_x else None
    found: dict[int, Tensor] = {
        k: x.new_empty(values.shape)
        for k, values in enumerate(chain)
        if needed[k] and k not in plan.by_caller
    }
    if plan.sequence is not None:
        sequence = plan.sequence
        addresses = (
            *[one.data_ptr() for one in (x, gradient, held, memory)],
            0 if of_x is None else of_x.data_ptr(),
            *[values.data_ptr() for values in chain],
            *[found[k].data_ptr() if k in found else 0 for k in range(len(chain))],
        )
        launched(x, lambda stream: sequence(stream, addresses, b""))
    for k, places in plan.by_caller.items():
        a, b, c, d = chain[k].shape
        sizes = [layout.count, a * c * d], [layout.count, a * b * d]
        given, of_result = (
            _at(place, (x, gradient, held, memory), size[::-1] if last else size)
            for place, size in zip(places, sizes, strict=True)
        )
        found[k] = sums_by_products(given, of_result, chain[k].shape, last)
    return of_x, [found[k] for k in sorted(found)]


def _at(place: Place, tensors: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
    """Return vectors that begin at a place in one of the tensors."""
    tensor = tensors[place.number]
    first = place.offset // tensor.itemsize
    return tensor.view(-1)[first : first + shape[0] * shape[1]].view(*shape)
