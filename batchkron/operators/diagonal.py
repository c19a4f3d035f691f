"""Diagonal matrices, such as mass matrices, coefficients and Jacobi preconditioners."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from batchkron.array_kinds import native
from batchkron.arrays import to_host
from batchkron.backends import own_apply
from batchkron.operators.algebra import Operator
from batchkron.operators.diagonal_blocks import DiagonalBlocks
from batchkron.operators.diagonal_entries import DiagonalEntries
from batchkron.spec.kron import Array, check_dtype


class Diagonal(Operator):
    """The operator (A x)_i = d_i x_i.

    Parameters
    ----------
    entries : array_like, (N,) or (*batch_shape, N)
        The diagonal d; it is copied. With leading axes there is one diagonal for each system.

    Raises
    ------
    TypeError
        If the entries are not float32, float64, complex64, complex128, integers or booleans.
    ValueError
        If the entries are a scalar.

    Notes
    -----
    Integers and booleans become float64. The operator is on the CPU, even if the entries are a CuPy
    array; ``to("cuda")`` returns it on a device, where a product is one kernel.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> op = bk.Diagonal([1.0, 2.0]) + bk.KroneckerProduct([np.ones((2, 2))])
    >>> op @ [1.0, 2.0]
    array([4., 7.])
    """

    def __init__(self, entries: ArrayLike) -> None:
        given = to_host(native(entries, "entries"), "entries")
        if given.ndim == 0:
            raise ValueError("entries has no axis; expected shape (N,) or (*batch_shape, N)")
        dtype = check_dtype(np.float64 if given.dtype.kind in "biu" else given.dtype)
        size = given.shape[-1]
        super().__init__((size, size), dtype, given.shape[:-1])
        copied = np.array(given, dtype, order="C")
        (self._entries,) = self._backend.place([copied])
        self._product = self._backend.diagonal_product(self._entries)
        self._apply_fast = own_apply(self._product)

    def _recipe(self) -> tuple[Any, ...]:
        return Diagonal, (to_host(self._entries, "entries"),)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        self._product.run(x, y, outer, inner, alpha, accumulate)

    def _build_transpose(self) -> Diagonal:
        return self

    def _build_conjugate(self) -> Diagonal:
        return Diagonal(self._entries.conj())

    def _build_as(self, dtype: np.dtype[Any]) -> Diagonal:
        return Diagonal(self._entries.astype(dtype))

    def _build_on(self, device: str) -> Diagonal:
        return Diagonal(self._entries)

    @property
    def _is_diagonal(self) -> bool:
        return True

    def _multiple_of_identity(self) -> complex | None:
        entries = to_host(self._entries, "entries")
        same = entries.ndim == 1 and entries.size > 0 and bool((entries == entries[0]).all())
        return entries[0].item() if same else None

    def inverse(self) -> Diagonal:
        """Return A⁻¹, of the entries 1 / d_i, on the operator's device.

        Raises
        ------
        numpy.linalg.LinAlgError
            If an entry is 0.
        """
        one = self._arrays.ones(self._entries.shape, self.dtype)
        inverses = DiagonalEntries(self._entries, self._arrays).solve(one)
        return cast(Diagonal, Diagonal(inverses).to(self.device))

    def diagonal_blocks(self) -> DiagonalBlocks:
        """Return the entries as blocks of 1 × 1; a sum with other operators has their blocks.

        Raises
        ------
        TypeError
            If there are several systems.
        """
        if self.batch_shape:
            raise TypeError("the diagonal has no diagonal blocks: it has several systems")
        count = self.shape[0]
        numbers, pool = np.arange(count), to_host(self._entries, "entries").reshape(-1, 1, 1)
        return DiagonalBlocks(count, (pool,), numbers[:, None], numbers, np.ones(count))

    def diagonal(self) -> Array:
        """Return the diagonal, (N,) or (*batch_shape, N)."""
        return self._entries.copy()
