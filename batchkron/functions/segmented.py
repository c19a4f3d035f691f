"""Multiply one mode of many blocks by matrices, summed over the edges of a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.array_kinds import any_foreign, common_kind, in_kind, native
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

    A block of x has the shape (before, Q, behind), one of y (before, P, behind). Each edge
    multiplies the middle axis, y[l, p, r] += Σ_q A_e[p, q] x[l, q, r]. In a block of d modes,
    ``before`` is the product of the sizes of the modes before the multiplied one, and ``behind``
    the product of the sizes of the modes after it.

    Parameters
    ----------
    matrices : array_like, (count, P, Q)
        The distinct matrices; they are copied.
    starts : array_like of int, (nodes + 1,)
        Node i has the edges ``starts[i]`` to ``starts[i + 1] - 1``.
    factor_ids, children : array_like of int, (edges,)
        Index of each edge's matrix, and of the block of x that it multiplies; both may repeat.
    before, behind : int
        Sizes of a block before and after the axis that is multiplied.
    num_inputs : int, optional
        Number of blocks of x; the largest child + 1 by default.

    Raises
    ------
    ValueError
        If shapes or starts do not fit.
    IndexError
        If an index is out of range; the text names the first.
    TypeError
        If a dtype has no kernels, or indices are not integers.

    Notes
    -----
    Each node is computed by one thread, on a device by several. The order in which its edges are
    added does not depend on the number of threads, and so the result has the same bits for any
    number.

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
            native(matrices, "matrices"),
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
        """Return a copy of the map on a device, with its own copy of the matrices.

        Parameters
        ----------
        device : {"cpu", "cuda"}
            "cuda" is CuPy's current device; x and y are CuPy arrays there.

        Returns
        -------
        SegmentedModeMultiply
            ``self`` if the map is on that device already.

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
        """Shape of x: (input blocks, elements of an input block)."""
        return self._spec.input_shape

    @property
    def output_shape(self) -> tuple[int, int]:
        """Shape of y: (nodes, elements of an output block)."""
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
            If the dtype cannot be converted to the map's (casting "same_kind").
        """
        array = to_host(native(matrices, "matrices"), "matrices")
        check_replacement(array, self._spec.matrices.shape, self._spec.dtype, "matrices")
        values = np.array(array, self._spec.dtype, order="C")
        self._plan.set_values(values)
        self._spec = replace(self._spec, matrices=values)

    def apply(self, x: ArrayLike, out: Array | None = None, *, alpha: complex = 1) -> Array:
        """Compute y = alpha A x, where A is the map.

        Parameters
        ----------
        x : array_like, (num_inputs, before * Q * behind)
            The input blocks, of a dtype that gives the map's dtype together with the matrices.
        out : ndarray, (nodes, before * P * behind), of the map's dtype, optional
            Array that y is written to.
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
        if type(x) is not self._arrays.ndarray and any_foreign(x, out):
            kind = common_kind(x=x, out=out)
            return in_kind(self.apply, kind, x, out, alpha=alpha)  # type: ignore[no-any-return]
        blocks = self._blocks(x)
        if out is None:
            y = self._backend.empty(self.output_shape, self._spec.dtype)
        else:
            check_output(out, self.output_shape, self._spec.dtype, (blocks,))
            is_target = is_plain(out)
            y = out if is_target else self._backend.empty(self.output_shape, self._spec.dtype)
        scale = self._scale(alpha)
        if is_finite(scale, y.dtype):
            self._plan.run(blocks, y, scale, False)
        else:
            self._plan.run(blocks, y, 1.0, False)
            y[...] = times(scale, y)
        if out is None or y is out:
            return y
        out[...] = y
        return out

    def accumulate(self, x: ArrayLike, y: Array, *, alpha: complex = 1) -> Array:
        """Compute y += alpha A x in place, where A is the map.

        Parameters
        ----------
        x : array_like, (num_inputs, before * Q * behind)
            The input blocks, as of `apply`.
        y : ndarray, (nodes, before * P * behind), of the map's dtype
            The product is added to it.
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
        if type(x) is not self._arrays.ndarray and any_foreign(x, y):
            kind = common_kind(x=x, y=y)
            return in_kind(self.accumulate, kind, x, y, alpha=alpha)  # type: ignore[no-any-return]
        blocks = self._blocks(x)
        check_output(y, self.output_shape, self._spec.dtype, (blocks,), "y")
        scale = self._scale(alpha)
        if is_plain(y) and is_finite(scale, y.dtype):
            self._plan.run(blocks, y, scale, True)
        else:
            y += self.apply(blocks, alpha=alpha)
        return y

    def _scale(self, alpha: complex) -> complex:
        """Return alpha as a float, or as a complex number if the map is complex."""
        scale = as_scalar(alpha, "alpha")
        if isinstance(scale, complex) and self._spec.dtype.kind != "c":
            raise TypeError(f"alpha is {scale}; expected a real number for {self._spec.dtype}")
        return scale

    def _blocks(self, x: ArrayLike) -> Array:
        """Return x, checked, as a C-contiguous array of the map's dtype."""
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
    """Return a map of a spec that has been validated already."""
    result = SegmentedModeMultiply.__new__(SegmentedModeMultiply)
    result._prepare(spec, chosen)
    return result


def _rebuilt(device: str, spec: SegmentedSpec) -> SegmentedModeMultiply:
    """Return an unpickled map, on the device where the pickled one was."""
    return _built(spec, backend_on(device))
