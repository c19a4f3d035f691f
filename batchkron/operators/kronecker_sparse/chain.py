"""A product of Kronecker-sparse matrices as a linear operator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from batchkron.array_kinds import native, native_entries
from batchkron.arrays import to_host
from batchkron.attributes import has_attribute
from batchkron.backends import get_num_threads
from batchkron.operators.algebra import ComposedOperator
from batchkron.operators.kronecker_product import KroneckerProduct
from batchkron.operators.kronecker_sparse.laid_out import LaidOutOperator
from batchkron.operators.kronecker_sparse.merged import MergedProduct, merge
from batchkron.operators.kronecker_sparse.operator import KroneckerSparse
from batchkron.spec.kron import Array, check_replacement
from batchkron.spec.kron_sparse import Layout, Pattern, check_layout, pattern_of

# Bytes of the vectors of each thread that go through all factors together, so that those between
# the factors stay in the L2 cache: best of 256 KiB to 2 MiB for butterflies of 1024 elements
# (Sapphire Rapids with other programs, 2026-11). And the least number of vectors, as the values are
# read for each part again; chosen by hand.
_PART_BYTES = 256 << 10
_MIN_PART = 32
# Multiply-adds that take as long as reading or writing an element, from which follows which factors
# are multiplied out. On a CPU by chains of 1024 elements of factors 2 x 2 to 32 x 32 (Zen 5, one
# thread, 2026-11), on a device by the estimates of the kernels for an H100.
_ADDS_OF_AN_ELEMENT = {"batch-first": 20.0, "batch-last": 4.0, "device": 20.0}


class KroneckerSparseChain(LaidOutOperator, ComposedOperator, is_chain=True):
    """The matrix K_1 K_2 … K_L of Kronecker-sparse matrices K_l, such as a butterfly.

    Products of Kronecker-sparse matrices and chains that have one layout are chains: ``A @ B``.

    Parameters
    ----------
    factors : sequence of KroneckerSparse, or of array_like, each (a, b, c, d)
        K_1 to K_L, from the left; K_L is applied first. An operator among them is used itself and
        not copied, so that its `update` changes the chain.
    layout : {"batch-first", "batch-last"}
        The arrays that `apply` and `accumulate` take, as for `KroneckerSparse`; the layouts of the
        factors do not matter.

    Attributes
    ----------
    factors : tuple of KroneckerSparse
        In the chain's dtype.
    patterns : list of Pattern
    layout : str

    Raises
    ------
    ValueError
        If there is no factor, the sizes of two neighbours do not fit, or the layout is another one.
    TypeError
        If a factor is another operator or is on another device.

    Notes
    -----
    Some vectors at a time go through all factors, so that those between the factors stay in a
    cache. Each thread has buffers for them. Neighbouring factors of few entries, such as those of a
    butterfly, are multiplied out, where their product takes less time than the vectors between
    them; the products follow `update`. Numbers of 16 bits are not.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> chain = bk.KroneckerSparseChain([np.ones((1, 2, 2, 2)), np.ones((2, 2, 2, 1))])
    >>> chain.shape, chain.patterns[0]
    ((4, 4), Pattern(a=1, b=2, c=2, d=2))
    >>> chain @ [1.0, 2.0, 3.0, 4.0]
    array([10., 10., 10., 10.])
    """

    factors: tuple[KroneckerSparse, ...]

    def __init__(
        self, factors: Iterable[KroneckerSparse | ArrayLike], *, layout: Layout = "batch-first"
    ) -> None:
        self.layout: Layout = check_layout(layout)
        self._array_layout = self.layout
        links = [_factor(factor, f"factors[{k}]") for k, factor in enumerate(factors)]
        if not links:
            raise ValueError("factors is empty; a chain needs at least one factor")
        for k, (left, right) in enumerate(pairwise(links)):
            if left.shape[1] != right.shape[0]:
                raise ValueError(
                    f"factors[{k}] has pattern {tuple(left.pattern)} and factors[{k + 1}] "
                    f"{tuple(right.pattern)}: {left.shape[1]} columns, but {right.shape[0]} rows"
                )
        self._prepare(links, tuple(links))
        self.factors = cast(tuple[KroneckerSparse, ...], self.links)
        place = self.layout if self.device == "cpu" else "device"
        self._applied = merge(self.factors, _ADDS_OF_AN_ELEMENT[place])

    @classmethod
    def from_kronecker_product(
        cls, product: KroneckerProduct, *, layout: Layout = "batch-first"
    ) -> KroneckerSparseChain:
        """Return A_1 ⊗ … ⊗ A_d as a chain of d factors, K_k = I ⊗ A_k ⊗ I.

        K_k has the pattern (Q_1 ⋯ Q_{k-1}, P_k, Q_k, P_{k+1} ⋯ P_d) for A_k (P_k, Q_k), and equal
        blocks: the chain stores many times more than the product. It is a start for a chain whose
        entries are then changed.

        Parameters
        ----------
        product : KroneckerProduct
            Of one system.
        layout : {"batch-first", "batch-last"}

        Returns
        -------
        KroneckerSparseChain
            On the CPU.

        Raises
        ------
        TypeError
            If it is not a `KroneckerProduct`.
        ValueError
            If the product has several systems.

        Examples
        --------
        >>> import numpy as np, batchkron as bk
        >>> product = bk.KroneckerProduct([np.ones((2, 3)), np.ones((4, 5))])
        >>> [tuple(p) for p in bk.KroneckerSparseChain.from_kronecker_product(product).patterns]
        [(1, 2, 3, 4), (3, 4, 5, 1)]
        """
        if not isinstance(product, KroneckerProduct):
            raise TypeError(f"product is a {type(product).__name__}; expected a KroneckerProduct")
        product._refuse_batch("from_kronecker_product")
        rows = [factor.shape[0] for factor in product.factors]
        columns = [factor.shape[1] for factor in product.factors]
        values = []
        for k, factor in enumerate(product.factors):
            a, d = math.prod(columns[:k]), math.prod(rows[k + 1 :])
            values.append(np.broadcast_to(factor[None, :, :, None], (a, *factor.shape, d)))
        return cls(values, layout=layout)

    def _steps(self) -> Sequence[KroneckerSparse]:
        """Return the factors, or products of neighbours that stand for some of them."""
        for one in self._applied:
            if isinstance(one, MergedProduct) and not one.fits:
                return self.factors
        return self._applied

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        if self.device != "cpu":
            super()._run(x, y, outer, inner, alpha, accumulate)
            return
        rows, columns = self.shape
        source, target = x.reshape(outer, columns, inner), y.reshape(outer, rows, inner)
        count = self._part(inner)
        for start in range(0, outer, count):
            part = slice(start, start + count)
            few = min(count, outer - start)
            super()._run(source[part], target[part], few, inner, alpha, accumulate)

    def _part(self, inner: int) -> int:
        """Return how many of the vectors before go through all factors together."""
        largest = max(max(step.shape) for step in self._steps())
        bytes_of_one = max(1, largest * inner * self.dtype.itemsize)
        return get_num_threads() * max(_MIN_PART, _PART_BYTES // bytes_of_one)

    def _chain_factors(self) -> Sequence[KroneckerSparse]:
        return self.factors

    @property
    def patterns(self) -> list[Pattern]:
        """The patterns (a, b, c, d) of the factors."""
        return [factor.pattern for factor in self.factors]

    def update(self, values: Sequence[ArrayLike]) -> None:
        """Replace the values of all factors, in place, here and in .T, .H, ….

        It must not be called while another thread applies the operator.

        Parameters
        ----------
        values : sequence of array_like, each (a, b, c, d) as before

        Raises
        ------
        ValueError
            If their number or a shape differs.
        TypeError
            If a dtype cannot be converted to the chain's (casting "same_kind").
        """
        arrays = [
            to_host(array, f"values[{k}]")
            for k, array in enumerate(native_entries(values, "values"))
        ]
        if len(arrays) != len(self.factors):
            raise ValueError(f"values has {len(arrays)} entries; expected {len(self.factors)}")
        for k, (array, factor) in enumerate(zip(arrays, self.factors, strict=True)):
            check_replacement(array, factor.values.shape, factor.dtype, f"values[{k}]")
        # before any is replaced: they may be views of the chain's own values
        copies = [np.array(array) for array in arrays]
        for array, factor in zip(copies, self.factors, strict=True):
            factor.update(array)

    def _like(self, factors: Sequence[Any]) -> KroneckerSparseChain:
        return KroneckerSparseChain(factors, layout=self.layout)

    def _recipe(self) -> tuple[Any, ...]:
        return partial(type(self), layout=self.layout), (self.factors,)

    def _build_transpose(self) -> KroneckerSparseChain:
        return self._like([factor.T for factor in reversed(self.factors)])

    def _build_conjugate(self) -> KroneckerSparseChain:
        return self._like([factor._relative("conjugate") for factor in self.factors])

    def _build_as(self, dtype: np.dtype[Any]) -> KroneckerSparseChain:
        return self._like([factor.astype(dtype) for factor in self.factors])

    def _build_on(self, device: str) -> KroneckerSparseChain:
        return self._like([factor.to(device) for factor in self.factors])

    def describe(self) -> str:
        """Return a text with the patterns and the number of stored entries."""
        lines = [f"{super().describe()}: {len(self.factors)} factors, {self.layout}"]
        lines += [f"  {tuple(pattern)}: {pattern.nonzeros} entries" for pattern in self.patterns]
        stored = sum(pattern.nonzeros for pattern in self.patterns)
        lines.append(f"  {stored} stored entries instead of {self.shape[0] * self.shape[1]}")
        return "\n".join(lines)


def _factor(given: KroneckerSparse | ArrayLike, name: str) -> KroneckerSparse:
    """Return a factor that the user gave as an operator, or as its values."""
    if isinstance(given, KroneckerSparse):
        return given
    if has_attribute(given, "matvec"):
        raise TypeError(
            f"{name} is a {type(given).__name__}; expected a KroneckerSparse, or values of the "
            f"shape (a, b, c, d)"
        )
    values: Any = native(given, name)
    pattern_of(to_host(values, name), name)
    return KroneckerSparse(values)
