"""Operators on vectors that consist of blocks."""

from __future__ import annotations

from typing import cast

from numpy.typing import ArrayLike

from batchkron.array_kinds import any_foreign
from batchkron.arrays import as_array
from batchkron.operators.valued_operator import ValuedOperator
from batchkron.spec.kron import Array


class BlockOperator(ValuedOperator):
    """An operator whose vectors are arrays of blocks, or flat.

    `apply` and `accumulate` take both. As a linear operator it acts on flat vectors, the block
    index slowest.
    """

    _input_shape: tuple[int, int]  # number of input blocks, elements of a block
    _output_shape: tuple[int, int]

    def _vectors(self, x: ArrayLike) -> tuple[Array, int, int, tuple[int, ...]]:
        """Check the axes of x; return it as an array, the sizes around them, and A x's shape."""
        vectors = as_array(x, "x", self._arrays)
        shape, (rows, columns) = vectors.shape, self.shape
        if shape[-2:] == self._input_shape:
            return vectors, self._outer(shape, 2), 1, shape[:-2] + self._output_shape
        if shape[-1:] == (columns,):
            return vectors, self._outer(shape, 1), 1, (*shape[:-1], rows)
        expected = ", ".join(str(n) for n in self._input_shape)
        raise ValueError(
            f"x has shape {shape}; expected (..., {expected}), (input blocks, elements of a "
            f"block), or flat vectors (..., {columns})"
        )

    def _shape_of_vectors(self) -> str:
        return f"(..., {', '.join(map(str, self.batch_shape + self._input_shape))})"

    def apply(self, x: ArrayLike, out: Array | None = None) -> Array:
        """Compute y = A x on blocks or flat vectors, overwriting y.

        Parameters
        ----------
        x : array_like, (..., *batch_shape, num_inputs, ΠQ) or (..., *batch_shape, N)
            With N = num_inputs · ΠQ and M = num_outputs · ΠP. A shape that fits both is taken for
            blocks.
        out : ndarray, (..., *batch_shape, num_outputs, ΠP) or (..., *batch_shape, M), optional
            In blocks if x is, else flat. Where the result is written; with it, nothing is
            allocated.

        Returns
        -------
        ndarray, (..., *batch_shape, num_outputs, ΠP) or (..., *batch_shape, M)

        Raises
        ------
        ValueError, TypeError
            As for `Operator.matvec`.
        """
        plain = self._apply_fast
        if out is not None and plain is not None and getattr(x, "ndim", 0) > 0 and plain(x, out):
            return out
        if type(x) is not self._arrays.ndarray and any_foreign(x, out):
            return cast(Array, self._in_kind(self.apply, x, out))
        blocks, outer, inner, shape = self._vectors(x)
        return self._dispatch(blocks, out, shape, outer, inner)

    def apply_flat(self, x: Array, out: Array) -> Array:
        """Compute out[..., :] = A x[..., :] for flat vectors; see `Operator.apply_flat`."""
        if x.ndim == 1:
            return self.matvec(x, out)
        blocks = x.reshape(*x.shape[:-1], *self._input_shape)  # (K, N) may fit the shape of blocks
        self.apply(blocks, out.reshape(*out.shape[:-1], *self._output_shape))
        return out
