"""A problem with pointwise terms as implicit methods take it: linearised at given states."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import KroneckerTerms, Operator
from batchkron.operators.diagonal_blocks import DiagonalBlocks

from ..sources import Sources
from .implicit import ImplicitFields
from .pointwise import PointwiseOfState

__all__ = ["Derivative", "Linearisation"]

Values = NDArray[np.float64]


class Derivative:
    """The sum J of a linear part and of the derivative of pointwise terms.

    Preconditioners know of it what they know of the linear part, with which diffusion is stiff.
    """

    def __init__(self, linear: Operator, slope: Operator) -> None:
        self._linear, self._whole = linear, linear + slope
        self.shape, self.dtype, self.device = linear.shape, linear.dtype, linear.device

    def __matmul__(self, x: Values) -> Values:
        """Return J x."""
        return self.matvec(x)

    def matvec(self, x: Values, out: Values | None = None) -> Values:
        """Return J x."""
        return self._whole.matvec(x, out)

    def kronecker_terms(self) -> KroneckerTerms:
        """Return the terms of the linear part."""
        return self._linear.kronecker_terms()

    def diagonal_blocks(self) -> DiagonalBlocks:
        """Return the diagonal blocks of the linear part."""
        return self._linear.diagonal_blocks()


class Linearisation:
    """f(t, u) near a state w that is given: J u + (f(t, w) - J w), with J = ∂f/∂u at w.

    An iteration that solves with it and takes the result for the next w is Newton's method. J is
    without the derivatives of fields and of speeds, which are those of w.

    Parameters
    ----------
    linear : callable
        ``linear(t)`` returns the operator of the terms without pointwise functions and fields.
    fields : ImplicitFields or None
        The terms in place of these where some have fields, with the sources.
    pointwise : PointwiseOfState
    sources : Sources
    like : ndarray, shape (N,), float64
        A state.
    t0 : float
        Its time.

    Attributes
    ----------
    is_whole : bool
        True: it is all of a problem's right-hand side.
    """

    is_whole = True

    def __init__(
        self,
        linear: Callable[[float], Operator],
        fields: ImplicitFields | None,
        pointwise: PointwiseOfState,
        sources: Sources,
        like: Values,
        t0: float,
    ) -> None:
        self._linear, self._fields, self._pointwise = linear, fields, pointwise
        self._sources, self._begin = sources, (t0, like)
        self._rest = np.empty_like(like)
        self._operator: Derivative | None = None

    @property
    def operator(self) -> Derivative:
        """J for the state that was last given, at first the one that the problem begins with."""
        if self._operator is None:
            self.follow(*self._begin)
        assert self._operator is not None
        return self._operator

    def follow(self, t: float, u: Values) -> None:
        """Linearise at a state; raises NotPhysicalError if f is not defined there."""
        slope = self._pointwise.derivative(t, u)
        self._pointwise.write(t, u, self._rest)
        self._rest -= slope @ u
        base = self._linear
        if self._fields is not None:
            self._fields.follow(t, u)
            base = self._of_fields
        self._operator = Derivative(base(t), slope)

    def _of_fields(self, t: float) -> Operator:
        assert self._fields is not None
        return self._fields.operator

    def source(self, t: float, out: Values) -> None:
        """Overwrite ``out`` with the sources at a time, and f(t, w) - J w of pointwise terms."""
        if self._fields is None:
            self._sources.evaluate(t, out)
        else:
            self._fields.source(t, out)
        out += self._rest
