"""Volume elements of curvilinear coordinates: one axis's measure dV(x) dx on its finest cells.

With a volume element the inner product of the axis is ∫ f g dV dx. The nodal functions are then no
longer orthonormal: their mass matrix M = ∫ φ_i φ_j dV is block diagonal, with one block per finest
cell, and operators and projections are multiplied by M⁻¹ from the left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...statement.axis import Axis
from ...statement.coefficients import Function
from ..basis.multiwavelets import to_hierarchical, to_nodal
from ..basis.projection import project, project_samples, sample
from ..basis.quadrature import cell_points, evaluate
from .dg_matrices import NodalMatrix, block_diagonal, mass_blocks

__all__ = ["VolumeElement"]

_ROUNDING = 1e-12  # dV at an end counts as zero below this share of its largest value (sin π)


@dataclass(frozen=True, eq=False)
class VolumeElement:
    """dV(x) on the finest cells of one axis.

    ``level``, ``degree``: finest level and degree.
    ``function``: dV, positive inside the axis; it may vanish at its ends, as r² does at r = 0.

    Raises `TypeError`, `ValueError` if dV does not give one finite real number per point, or is not
    positive.

    Examples
    --------
    >>> ball = VolumeElement(Axis("r", 0, 1), level=0, degree=0, function=lambda r: 3 * r**2)
    >>> ball.mass_blocks
    array([[[1.]]])
    """

    axis: Axis
    level: int
    degree: int
    function: Function

    def __post_init__(self) -> None:
        """Check the sign of dV at the ends and middles of the finest cells."""
        points = cell_points(self.axis, self.level, [-1.0, 0.0, 1.0])
        values = evaluate(self.function, points, self._what)
        inside = (points > self.axis.lower) & (points < self.axis.upper)
        zero = -_ROUNDING * np.abs(values).max()
        wrong = np.flatnonzero(np.where(inside, values <= 0.0, values < zero))
        if wrong.size:
            raise ValueError(
                f"the {self._what} is {values.flat[wrong[0]]} at {points.flat[wrong[0]]}; expected "
                "positive values, or zero at an end of the axis only"
            )

    @property
    def _what(self) -> str:
        return f"volume element of {self.axis.name!r}"

    @cached_property
    def mass_blocks(self) -> NDArray[np.float64]:
        """The blocks ∫ φ_i φ_j dV of M, float64 (2^level, degree + 1, degree + 1)."""
        return mass_blocks(self.axis, self.level, self.degree, self.function, "volume element")

    @cached_property
    def inverse_mass(self) -> NodalMatrix:
        """The block-diagonal matrix M⁻¹ in the nodal basis."""
        inverse = np.linalg.inv(self.mass_blocks)
        return block_diagonal((inverse + inverse.transpose(0, 2, 1)) / 2)

    @cached_property
    def samples(self) -> NDArray[np.float64]:
        """Values of dV at the sample points of `discretization.basis.projection`."""
        return sample(self.function, self.axis, self.level, self.degree)

    def times(self, coefficient: Function) -> Function:
        """Return the function coefficient · dV, which raises ValueError where it is not finite.

        At an end the coefficient may be infinite if the product has a limit there, as r⁻² times r²
        has at r = 0; the limit is then the product's value. It may also be huge instead of
        infinite, where dV is zero up to rounding, as 1/sin² is at π.
        """
        what = f"function of {self.axis.name!r}"

        def product(points: NDArray[np.float64]) -> NDArray[np.float64]:
            values = evaluate(coefficient, points, what, finite=False)
            at_end, finite = values.copy(), np.isfinite(values)
            with np.errstate(invalid="ignore"):
                values *= evaluate(self.function, points, self._what)
            for end in (self.axis.lower, self.axis.upper):
                here = points == end
                if here.any() and not (
                    finite[here].all() and self._is_bounded(coefficient, end, at_end[here][0])
                ):
                    values[here] = self._limit(coefficient, end)
            return evaluate(lambda _: values.ravel(), points, f"{what} times its volume element")

        return product

    def _is_bounded(self, coefficient: Function, end: float, value: float) -> bool:
        """Return whether a coefficient's finite value at an end is finite in exact arithmetic too.

        If dV is zero there up to rounding, a coefficient such as 1/dV may be infinite in exact
        arithmetic. It is then much larger at the end than at a point very near to it.
        """
        volume = abs(evaluate(self.function, np.array([end]), self._what)[0])
        if not 0.0 < volume <= _ROUNDING * self._largest:
            return True
        near = self._near(end, np.array([1.0]))
        beside = evaluate(coefficient, near, self._what, finite=False)[0]
        return bool(abs(value) <= 2.0 * abs(beside))

    @cached_property
    def _largest(self) -> float:
        return float(np.abs(self.samples).max())

    def _near(self, end: float, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return points inside the axis, at distances of steps · 2^-26 · length from an end."""
        inwards = self.axis.length if end == self.axis.lower else -self.axis.length
        return np.asarray(end + inwards * steps * 2.0**-26)

    def _limit(self, coefficient: Function, end: float) -> float:
        """Return the limit of coefficient · dV at an end of the axis.

        The difference of the product at distances h and 2h falls like a power of h if there is a
        limit. It does not fall if the product grows like a logarithm or a power of 1/h.
        """
        points = self._near(end, np.array([1.0, 2.0, 2.0**15, 2.0**16]))
        values = evaluate(coefficient, points, self._what, finite=False)
        near, next_, far, farther = values * evaluate(self.function, points, self._what)
        change, first = abs(next_ - near), abs(farther - far)
        # the second summand allows for rounding; the comparison also fails for NaN
        if not change <= 0.1 * first + 1e-6 * abs(near):
            at_end = evaluate(coefficient, np.array([end]), self._what, finite=False)[0]
            raise ValueError(
                f"a coefficient along {self.axis.name!r} is {at_end} at {end}, and has no limit "
                f"there even times the volume element: {far:.3g} at {points[2]:.3g}, {near:.3g} at "
                f"{points[0]:.3g}. Only what the volume element makes up for is integrated "
                "rightly, as r**-2 with r**2; begin the axis elsewhere, or bound the coefficient, "
                "as in np.maximum(r, 1e-3)**-3"
            )
        return float(2.0 * near - next_)

    def largest_rate(self, coefficient: Function) -> float:
        """Return the largest eigenvalue of M⁻¹ ∫ |g| φ_i φ_j dV over all cells, of a coefficient g.

        It is finite even if g is infinite at an end, provided that g dV is finite there.
        """
        if not callable(coefficient):
            return abs(float(coefficient))
        weighted = self.times(lambda points: np.abs(np.asarray(coefficient(points))))
        blocks = mass_blocks(self.axis, self.level, self.degree, weighted)
        root = np.linalg.inv(np.linalg.cholesky(self.mass_blocks))
        return float(np.linalg.eigvalsh(root @ blocks @ root.transpose(0, 2, 1)).max())

    def divide(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return M⁻¹ times ∫ f φ dV: the coefficients of f's projection, orthogonal in ∫ f g dV."""
        nodal = to_nodal(vector, self.level, self.degree)
        return to_hierarchical(self.inverse_mass @ nodal, self.level, self.degree)

    def project(self, function: Function) -> NDArray[np.float64]:
        """Return the coefficients of a function's projection, orthogonal in ∫ f g dV."""
        if not callable(function):
            return project(function, self.axis, self.level, self.degree)
        return self.divide(project(self.times(function), self.axis, self.level, self.degree))

    def project_samples(self, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the same as `project`, from samples of the function."""
        with np.errstate(invalid="ignore"):  # samples at ends may be infinite and are not used
            weighted = samples * self.samples
        return self.divide(project_samples(weighted, self.axis, self.degree))
