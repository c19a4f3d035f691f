"""Collisions of Bhatnagar, Gross and Krook: f relaxes to the Maxwellian of its own moments."""

from __future__ import annotations

from dataclasses import replace

from .axis import Axis
from .collisions import Position, position_among
from .gains import MaxwellianGain
from .number_checks import finite_number
from .terms import Term, mass

__all__ = ["bgk", "gain_with_position"]


def bgk(
    velocity: Axis, nu: float = 1.0, *, position: Axis | None = None
) -> tuple[Term, MaxwellianGain]:
    """Return ν (M - f), where M is the Maxwellian with density, mean velocity, temperature of f.

    Parameters
    ----------
    velocity : Axis
        The velocity v.
    nu : float
        The rate ν ≥ 0.
    position : Axis, optional
        The axis that the moments are functions of; by default the PDE's only other axis.

    Returns
    -------
    tuple of Term and MaxwellianGain
        The loss -ν f, and the gain ν M. IMEX methods treat both implicitly, without iterations.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind, or ν is negative. `PDE` refuses more than one velocity.

    Notes
    -----
    M is evaluated at Gauss points of the finest cells of x and v, and projected on the grid. Its
    coefficients for the polynomials 1, v and v² of the coarsest cell of v, as far as the degree has
    them, are replaced by those of f: ∫ f dv, ∫ v f dv and ∫ v² f dv are conserved to rounding at
    every place, also where a part of M lies outside the ends of v. On sparse grids that holds for
    the levels of x that have velocities of level 2, from which the moments are taken, and so for
    the integrals over x; see `lenard_bernstein`. An evaluation takes as many operations as the full
    grid has Gauss points.

    Where density or temperature are not positive, it raises `batchkron.NotPhysicalError`.

    References
    ----------
    P. L. Bhatnagar, E. P. Gross, M. Krook, Phys. Rev. 94 (1954) 511.

    Examples
    --------
    >>> from batchkron.problems import PDE, Axis, Separable, bgk
    >>> x, v = Axis("x", -0.5, 0.5), Axis("v", -6, 6)
    >>> start = Separable(v=lambda s: (abs(s) < 3) / 6)
    >>> pde = PDE([x, v], bgk(v, 10.0), boundary={x: "periodic", v: "no-flux"}, initial=start)
    >>> pde.discretize(3, 2).has_fields
    True
    """
    if not isinstance(velocity, Axis):
        raise TypeError(f"bgk: velocity must be an Axis, got {type(velocity).__name__}")
    rate = finite_number("nu", nu)
    if rate < 0.0:
        raise ValueError(f"bgk: nu is {nu!r}; expected a rate of at least 0")
    place = Position("position", 0.0, 1.0, (velocity,)) if position is None else position
    return replace(-rate * mass(velocity), stiff=True), MaxwellianGain(place, velocity, rate)


def gain_with_position(gain: MaxwellianGain, axes: tuple[Axis, ...]) -> MaxwellianGain:
    """Return a gain of a PDE of two axes, in which the position is the axis beside the velocity."""
    place = gain.position
    if isinstance(place, Position):
        place = position_among(place, axes)
    if set(axes) != {place, gain.velocity} or len(axes) != 2:
        names = ", ".join(axis.name for axis in axes)
        raise ValueError(
            f"bgk has the velocity {gain.velocity.name!r} and the position {place.name!r}, and the "
            f"PDE the axes {names}; expected one position and one velocity. With several "
            "velocities a Maxwellian is no product of functions of one coordinate on the grid; "
            "take lenard_bernstein"
        )
    return replace(gain, position=place)
