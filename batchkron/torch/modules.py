"""Layers whose weight is a Kronecker product, or a chain of Kronecker-sparse matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from batchkron.spec.kron_sparse import Layout, Pattern, as_pattern, check_layout
from batchkron.torch.kron import kron_matmul
from batchkron.torch.nearest_product import nearest_product
from batchkron.torch.sparse import check_chain, kronecker_sparse
from batchkron.torch.sparse_chain import APPROXIMATE, Activation
from batchkron.torch.sparse_layer import layer
from batchkron.torch.tensors import as_single, in_autocast

__all__ = ["KroneckerLinear", "KroneckerSparseLinear"]


def _each(parameters: nn.ParameterList) -> list[Tensor]:
    """Return what a list has; `torch.compile` of some versions cannot unpack the list itself."""
    return [parameters[k] for k in range(len(parameters))]


def _sizes(name: str, given: Any) -> list[int]:
    """Return the sizes of factors; raise TypeError for a number, as `torch.nn.Linear` takes it."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        return list(given)
    raise TypeError(
        f"{name} is {given!r}; expected the sizes of the factors, of which {name} is the product: "
        "KroneckerLinear([4, 4], [4, 4]) takes the place of nn.Linear(16, 16), and "
        "KroneckerLinear.from_linear(linear, [4, 4], [4, 4]) that of a trained layer"
    )


class KroneckerLinear(nn.Module):
    """The layer y = x Wᵀ + bias with W = A_1 ⊗ … ⊗ A_d, in the place of `torch.nn.Linear`.

    Parameters
    ----------
    in_features : sequence of int
        The factors' columns, n_1 … n_d; the layer takes Π n_k features.
    out_features : sequence of int
        The factors' rows, m_1 … m_d; the layer returns Π m_k features.
    bias : bool
        Whether the layer adds a learned bias.
    device, dtype
        Of the parameters, as for `torch.nn.Linear`.

    Attributes
    ----------
    factors : nn.ParameterList of Tensor, each (m_k, n_k)
        The matrices A_k; A_1 belongs to the slowest index. At first uniform, such that entries of W
        have the variance of those of `torch.nn.Linear`, 1/(3 Π n_k).
    bias : Tensor, (Π m_k,), or None
        At first uniform in ±1/sqrt(Π n_k), as in `torch.nn.Linear`.
    in_features, out_features : int
        Π n_k and Π m_k.
    relative_error : float or None
        ‖weight - W‖ / ‖weight‖ in Frobenius norms for a layer of `from_linear`, when it is made.

    Raises
    ------
    TypeError
        If the features are a number, as for `torch.nn.Linear`, and no sequence.
    ValueError
        If there is no factor, the numbers of factors differ, or a size is less than 1.

    Notes
    -----
    A forward pass is one call of `batchkron.torch.kron_matmul`. In a region of `torch.autocast` it
    is in float32, as there are no kernels for fewer bits; so it is on the CPU for a layer of
    float16 or bfloat16, whose results have this dtype.

    Examples
    --------
    >>> import torch
    >>> from batchkron.torch import KroneckerLinear
    >>> layer = KroneckerLinear([4, 8], [2, 8])
    >>> layer.extra_repr()
    'in_features=32, out_features=16, factors=2x4 ⊗ 8x8, bias=True'
    >>> layer(torch.ones(5, 32)).shape
    torch.Size([5, 16])
    >>> sum(p.numel() for p in layer.parameters())  # torch.nn.Linear(32, 16) has 528
    88
    """

    def __init__(
        self,
        in_features: Sequence[int],
        out_features: Sequence[int],
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        columns, rows = _sizes("in_features", in_features), _sizes("out_features", out_features)
        if not columns or len(columns) != len(rows):
            raise ValueError(
                f"in_features has {len(columns)} sizes and out_features {len(rows)}; expected one "
                f"for each factor, at least one"
            )
        if min(*columns, *rows) < 1:
            raise ValueError(f"sizes are {columns} and {rows}; expected 1 or more")
        self.in_features, self.out_features = math.prod(columns), math.prod(rows)
        made = {"device": device, "dtype": dtype}
        self.factors = nn.ParameterList(
            nn.Parameter(torch.empty(m, n, **made)) for m, n in zip(rows, columns, strict=True)
        )
        if bias:
            self.bias = nn.Parameter(torch.empty(self.out_features, **made))
        else:
            self.register_parameter("bias", None)
        self.relative_error: float | None = None
        self.reset_parameters()

    @classmethod
    def from_linear(
        cls, linear: nn.Linear, in_features: Sequence[int], out_features: Sequence[int]
    ) -> KroneckerLinear:
        """Return the layer whose weight is nearest to that of a trained layer.

        Its bias, dtype and device are those of the layer. For two factors it is the nearest one in
        the Frobenius norm, for more one that alternating least squares find.

        Parameters
        ----------
        linear : torch.nn.Linear
            The trained layer, whose sizes are Π n_k and Π m_k.
        in_features, out_features : sequence of int
            As for `KroneckerLinear`.

        Returns
        -------
        KroneckerLinear
            Its ``relative_error`` says how far its weight is from that of the layer: near 1 where
            the trained weight has no such structure, so that the layer has to be trained again.

        Raises
        ------
        TypeError
            If ``linear`` is no `torch.nn.Linear`.
        ValueError
            If the products of the sizes are not those of the layer, else as for `KroneckerLinear`.

        Notes
        -----
        C. F. Van Loan and N. Pitsianis, "Approximation with Kronecker products", 1993.

        Examples
        --------
        >>> import torch
        >>> from batchkron.torch import KroneckerLinear
        >>> trained = torch.nn.Linear(4, 6)
        >>> _ = trained.weight.data.copy_(torch.kron(torch.ones(2, 2), torch.eye(3, 2)))
        >>> layer = KroneckerLinear.from_linear(trained, [2, 2], [2, 3])
        >>> round(layer.relative_error, 6)
        0.0
        """
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"linear is a {type(linear).__name__}; expected a torch.nn.Linear")
        weight, bias = linear.weight, linear.bias
        made = cls(in_features, out_features, bias is not None, weight.device, weight.dtype)
        if (made.out_features, made.in_features) != tuple(weight.shape):
            raise ValueError(
                f"the sizes are those of a weight {(made.out_features, made.in_features)}, but "
                f"that of linear is {tuple(weight.shape)}; expected factors of {weight.shape[1]} "
                f"in_features and {weight.shape[0]} out_features"
            )
        with torch.no_grad():
            factors, made.relative_error = nearest_product(
                weight, [tuple(factor.shape) for factor in made.factors]
            )
            for factor, found in zip(made.factors, factors, strict=True):
                factor.copy_(found)
            if made.bias is not None:
                made.bias.copy_(bias)
        return made

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        with torch.no_grad():
            share = (1 / 3) ** (1 / (2 * len(self.factors)))  # of the deviation of an entry of W
            for factor in self.factors:
                bound = math.sqrt(3 / factor.shape[1]) * share
                factor.uniform_(-bound, bound)
            if self.bias is not None:
                bound = 1 / math.sqrt(self.in_features)
                self.bias.uniform_(-bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Return x Wᵀ + bias for x (..., in_features)."""
        given = in_autocast(x, *_each(self.factors), half=False)
        x, factors = given[0], given[1:]
        y = kron_matmul(x, [factor.mT for factor in factors])
        return y if self.bias is None else y + self.bias

    def dense_weight(self) -> Tensor:
        """Return W, (out_features, in_features)."""
        weight = self.factors[0]
        for factor in list(self.factors)[1:]:
            weight = torch.kron(weight, factor)
        return weight

    def extra_repr(self) -> str:
        """Return the sizes, as `torch.nn.Linear` shows them."""
        shapes = " ⊗ ".join(f"{m}x{n}" for m, n in (factor.shape for factor in self.factors))
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"factors={shapes}, bias={self.bias is not None}"
        )


class KroneckerSparseLinear(nn.Module):
    """The layer y = x Wᵀ + bias with W = K_1 ⋯ K_L, a chain of Kronecker-sparse matrices.

    It takes the place of `torch.nn.Linear`, and of a `torch.nn.GELU` behind it.

    Parameters
    ----------
    patterns : sequence of four int, or of such
        The pattern (a, b, c, d) of each matrix from the left, with a b d rows and a c d columns;
        K_L is applied first. One pattern alone is a chain of one. `batchkron.kronecker_sparse` has
        chains that are known by a name, and lists those of a size.
    bias : bool
        Whether the layer adds a learned bias.
    layout : {"batch-first", "batch-last"}
        Whether features are the last axis, as for `torch.nn.Linear`, or the first one.
    activation : {None, "gelu", "gelu-tanh"}
        What is applied to y: nothing, `torch.nn.GELU`, or that with ``approximate="tanh"``. In
        eager calls on a device the last kernel adds the bias and applies it before it writes y.
    device, dtype
        Of the parameters, as for `torch.nn.Linear`.

    Attributes
    ----------
    values : nn.ParameterList of Tensor, each (a, b, c, d)
        The entries that may be non-zero, at first uniform in ±1/sqrt(c).
    bias : Tensor, (out_features,), or None
        At first uniform in ±1/sqrt(in_features).
    in_features, out_features : int
    patterns : list of Pattern
    layout : str
    activation : str or None

    Raises
    ------
    ValueError
        If there is no pattern, one is not four positive integers, the sizes of two neighbours do
        not fit, or the layout or the activation is another one.
    TypeError
        In a call with an activation, if x is complex.

    Notes
    -----
    A forward pass is one node of autograd. It keeps x, the vectors between the matrices if
    gradients of values are wanted, and with an activation what that is applied to. In a region of
    `torch.autocast` x and the parameters are converted to its dtype, as by `torch.nn.Linear`; on a
    CPU, where kernels have 32 bits or more, to float32.

    The entries' first distribution is that of Gonon, Zheng, Carrivain and Le, "Fast inference with
    Kronecker-sparse matrices" (2024), section 4.

    Examples
    --------
    >>> import torch
    >>> from batchkron.torch import KroneckerSparseLinear
    >>> layer = KroneckerSparseLinear([(1, 4, 4, 2), (2, 4, 4, 1)])
    >>> layer.in_features, layer.out_features, [tuple(v.shape) for v in layer.values]
    (8, 8, [(1, 4, 4, 2), (2, 4, 4, 1)])
    >>> layer(torch.ones(3, 8)).shape
    torch.Size([3, 8])
    """

    def __init__(
        self,
        patterns: Sequence[Any],
        bias: bool = True,
        layout: Layout = "batch-first",
        device: Any = None,
        dtype: Any = None,
        activation: Activation | None = None,
    ) -> None:
        super().__init__()
        self.layout, self.activation = check_layout(layout), activation
        if activation not in (None, *APPROXIMATE):
            raise ValueError(f"activation is {activation!r}; expected None, 'gelu' or 'gelu-tanh'")
        given = list(patterns)
        if given and all(isinstance(entry, int) for entry in given):
            given = [given]
        self.patterns: list[Pattern] = [
            as_pattern(pattern, f"patterns[{k}]") for k, pattern in enumerate(given)
        ]
        if not self.patterns:
            raise ValueError("patterns is empty; a chain needs at least one matrix")
        for k, (left, right) in enumerate(pairwise(self.patterns)):
            if left.shape[1] != right.shape[0]:
                raise ValueError(
                    f"patterns[{k}] is {tuple(left)} and patterns[{k + 1}] {tuple(right)}: "
                    f"{left.shape[1]} columns, but {right.shape[0]} rows"
                )
        self.out_features, self.in_features = self.patterns[0].shape[0], self.patterns[-1].shape[1]
        made = {"device": device, "dtype": dtype}
        self.values = nn.ParameterList(
            nn.Parameter(torch.empty(*pattern, **made)) for pattern in self.patterns
        )
        if bias:
            self.bias = nn.Parameter(torch.empty(self.out_features, **made))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        with torch.no_grad():
            for values in self.values:
                bound = 1 / math.sqrt(values.shape[2])
                values.uniform_(-bound, bound)
            if self.bias is not None:
                bound = 1 / math.sqrt(self.in_features)
                self.bias.uniform_(-bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Return W applied to the features of x, plus the bias, and the activation of that."""
        count = len(self.values)
        added = [] if self.bias is None else [self.bias]
        half, (x, *given) = as_single(*in_autocast(x, *_each(self.values), *added, half=True))
        chain, bias = given[:count], given[count] if added else None
        check_chain(x, chain, self.layout)
        if self.activation is not None and x.is_complex():
            raise TypeError(f"x has dtype {x.dtype}; {self.activation!r} is for real numbers")
        y = layer(x, chain, bias, self.activation, self.layout == "batch-last")
        return y if half is None else y.to(half)

    def dense_weight(self) -> Tensor:
        """Return W, (out_features, in_features)."""
        identity = torch.eye(
            self.in_features, dtype=self.values[0].dtype, device=self.values[0].device
        )
        return kronecker_sparse(identity, list(self.values), layout="batch-last")

    def extra_repr(self) -> str:
        """Return sizes and patterns, as `torch.nn.Linear` shows its sizes."""
        activation = "" if self.activation is None else f", activation={self.activation!r}"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"patterns={[tuple(pattern) for pattern in self.patterns]}, "
            f"bias={self.bias is not None}, layout={self.layout!r}{activation}"
        )
