"""One mode's multiply of many blocks, summed over the edges of a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.arrays import as_array, is_plain, to_host
from batchkron.backends import Backend, backend, backend_on
from batchkron.spec.kron import (
    Array,
    as_scalar,
    check_output,
    check_replacement,
    compute_dtype,
    is_finite,
    ready,
    times,
)
from batchkron.spec.segmented import SegmentedSpec, segmented_spec


class SegmentedModeMultiply:
    """The map y[i] = Σ_e A_e ·_mode x[children[e]] over the edges e of node i.

    A block of x has the shape (before, Q, behind), one of y (before, P, behind); an edge multiplies
    the middle axis, y[l, p, r] += Σ_q A_e[p, q] x[l, q, r]. In a block of d modes, ``before`` is
    the product of the sizes of the modes before the multiplied one, ``behind`` of those behind it.

    Parameters
    ----------
    matrices : array_like, (count, P, Q)
        The distinct matrices, copied.
    starts : array_like of int, (nodes + 1,)
        Node i has the edges ``starts[i]`` to ``starts[i + 1] - 1``.
    factor_ids, children : array_like of int, (edges,)
        Which matrix an edge multiplies by, and which block of x; both may repeat.
    before, behind : int
        Sizes of a block around the axis that is multiplied.
    num_inputs : int, optional
        Blocks of x; the largest child + 1 by default.

    Raises
    ------
    ValueError
        For shapes or starts that do not fit.
    IndexError
        For an index out of range; the text names the first.
    TypeError
        For dtypes without kernels, or indices that are not integers.

    Notes
    -----
    One thread owns a node, several on a device; the order in which they add the edges does not
    depend on the number of threads, nor do the bits.

    Examples
    --------
    >>> import batchkron as bk
    >>> sweep = bk.SegmentedModeMultiply(
    ...     [[[2.0]], [[3.0]]], starts=[0, 2, 3], factor_ids=[0, 1, 0], children=[0, 1, 1],
    ...     before=1, behind=2)
    >>> sweep.apply([[1.0, 2.0], [10.0, 20.0]])
    array([[32., 64.],
           [20., 40.]])
    """

    def __init__(
        self,
        matrices: ArrayLike,
        starts: ArrayLike,
        factor_ids: ArrayLike,
        children: ArrayLike,
        *,
        before: int,
        behind: int,
        num_inputs: int | None = None,
    ) -> None:
        spec = segmented_spec(
            matrices,
            starts,
            factor_ids,
            children,
            before=before,
            behind=behind,
            num_inputs=num_inputs,
        )
        self._prepare(spec, backend())

    def _prepare(self, spec: SegmentedSpec, chosen: Backend) -> None:
        self._spec = spec
        self._backend = chosen
        self._arrays = chosen.array_module
        self._place = chosen.current_device()
        self._plan = chosen.segmented_plan(spec)

    def to(self, device: str) -> SegmentedModeMultiply:
        """Return the map on a device, with matrices of its own.

        Parameters
        ----------
        device : {"cpu", "cuda"}
            "cuda" is CuPy's current device; x and y are CuPy arrays there.

        Returns
        -------
        SegmentedModeMultiply
            ``self`` if it is there already.

        Raises
        ------
        ValueError
            For any other device.
        BackendUnavailableError
            If CuPy is not installed; the text says what to install.
        """
        chosen = backend_on(device)
        if chosen.current_device() == self._place:
            return self
        return _built(self._spec, chosen)

    @property
    def device(self) -> str:
        """Where the matrices are: "cpu" or "cuda"."""
        return "cuda" if self._backend.name == "cuda" else "cpu"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.device, self._spec)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The dtype of the matrices."""
        return self._spec.dtype

    @property
    def input_shape(self) -> tuple[int, int]:
        """(Input blocks, elements of one)."""
        return self._spec.input_shape

    @property
    def output_shape(self) -> tuple[int, int]:
        """(Nodes, elements of an output block)."""
        return self._spec.output_shape

    def update(self, matrices: ArrayLike) -> None:
        """Replace the matrices' entries in place.

        Parameters
        ----------
        matrices : array_like, (count, P, Q)

        Raises
        ------
        ValueError
            If the shape differs.
        TypeError
            If the dtype cannot be converted.
        """
        array = to_host(matrices, "matrices")
        check_replacement(array, self._spec.matrices.shape, self._spec.dtype, "matrices")
        values = np.array(array, self._spec.dtype, order="C")
        self._plan.set_values(values)
        self._spec = replace(self._spec, matrices=values)

    def apply(self, x: ArrayLike, out: Array | None = None, *, alpha: complex = 1) -> Array:
        """Compute y = alpha A x, overwriting y.

        Parameters
        ----------
        x : array_like, (num_inputs, before * Q * behind)
        out : ndarray, (nodes, before * P * behind), optional
            Where the result is written.
        alpha : scalar
            Scales the result.

        Returns
        -------
        ndarray, (nodes, before * P * behind)

        Raises
        ------
        ValueError, TypeError
            For a shape or dtype that does not fit.
        """
        blocks = self._blocks(x)
        if out is None:
            y = self._backend.empty(self.output_shape, self._spec.dtype)
        else:
            check_output(out, self.output_shape, self._spec.dtype, (blocks,))
            is_target = is_plain(out)
            y = out if is_target else self._backend.empty(self.output_shape, self._spec.dtype)
        scale = self._scale(alpha)
        if is_finite(scale):
            self._plan.run(blocks, y, scale, False)
        else:
            self._plan.run(blocks, y, 1.0, False)
            y[...] = times(scale, y)
        if out is None or y is out:
            return y
        out[...] = y
        return out

    def accumulate(self, x: ArrayLike, y: Array, *, alpha: complex = 1) -> Array:
        """Compute y += alpha A x, in place.

        Parameters
        ----------
        x : array_like, (num_inputs, before * Q * behind)
        y : ndarray, (nodes, before * P * behind)
            Written.
        alpha : scalar
            Scales the product.

        Returns
        -------
        ndarray
            y itself.

        Raises
        ------
        ValueError, TypeError
            For a shape or dtype that does not fit.
        """
        blocks = self._blocks(x)
        check_output(y, self.output_shape, self._spec.dtype, (blocks,), "y")
        scale = self._scale(alpha)
        if is_plain(y) and is_finite(scale):
            self._plan.run(blocks, y, scale, True)
        else:
            y += self.apply(blocks, alpha=alpha)
        return y

    def _scale(self, alpha: complex) -> complex:
        """Return alpha as the plan takes it."""
        scale = as_scalar(alpha, "alpha")
        if isinstance(scale, complex) and self._spec.dtype.kind != "c":
            raise TypeError(f"alpha is {scale}; expected a real number for {self._spec.dtype}")
        return scale

    def _blocks(self, x: ArrayLike) -> Array:
        """Return x as the plan reads it."""
        array = as_array(x, "x", self._arrays)
        if array.shape != self.input_shape:
            raise ValueError(
                f"x has shape {array.shape}; expected {self.input_shape}: (input blocks, elements "
                f"of a block)"
            )
        if compute_dtype(array, self._spec.matrices) != self._spec.dtype:
            raise TypeError(f"x has dtype {array.dtype}; the matrices have {self._spec.dtype}")
        return ready(array, self._spec.dtype)


def _built(spec: SegmentedSpec, chosen: Backend) -> SegmentedModeMultiply:
    """Return a map of what was checked before."""
    result = SegmentedModeMultiply.__new__(SegmentedModeMultiply)
    result._prepare(spec, chosen)
    return result


def _rebuilt(device: str, spec: SegmentedSpec) -> SegmentedModeMultiply:
    """Return a map where the one was that has been pickled."""
    return _built(spec, backend_on(device))
