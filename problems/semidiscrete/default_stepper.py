"""The time stepper and step of a PDE if the user gives none."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

import numpy as np
from numpy.typing import NDArray

from ..discretization.basis.projection import sample
from ..discretization.parts import StepperSettings
from ..discretization.space import DGSpace
from ..statement.terms import Term, term_text
from ..statement.time import TimeFunction

__all__ = ["IMPLICIT_METHODS", "LIMITED_METHODS", "default_stepper"]

IMPLICIT_METHODS = (
    "backward-euler",
    "crank-nicolson",
    "bdf",
    "sdirk2",
    "sdirk3",
    "esdirk2",
    "esdirk3",
    "wso-sdirk3",
    "imex-euler",
    "ark2",
    "ark3",
    "exponential-euler",
    "exponential-trapezoidal",
)
"""Methods whose step need not resolve the diffusion on the finest cells."""

LIMITED_METHODS = ("ssp-rk3", "forward-euler")
"""Methods that are combinations of Euler steps, after each of which a limiter acts."""

_SAMPLES_IN_TIME = 257  # number of times in the run at which coefficients are sampled


def default_stepper(
    terms: Sequence[Term],
    space: DGSpace,
    t0: float,
    until: float,
    *,
    method: str | None = None,
    dt: float | None = None,
) -> StepperSettings:
    """Return a time-stepping method and a time step for a PDE.

    Parameters
    ----------
    terms : sequence of Term
        The right-hand side.
    space : DGSpace
        Axes, levels and degrees.
    t0, until : float
        The run's beginning and end.
    method : str, optional
        By default "ssp-rk3", or "crank-nicolson" if a term has second derivatives, and "ark3" if a
        term is stiff (`Term`), as those of collisions are.
    dt : float, optional
        By default 0.5 / ((2p + 1) r), where p is the largest degree and r (per unit of time) is the
        sum of |v_i| / h_i over the first derivatives, with the largest speed |v_i| along axis i and
        its finest cell width h_i; of the largest |c| of terms without a derivative; and of the
        following over the second derivatives with diffusivity k_i: for an implicit method k_i /
        (h_i L_i), with the axis's length L_i (which also takes the place of h_i in first
        derivatives of stiff terms), and for an explicit one (p + ½) (4 + 0.6 p²) k_i / h_i², which
        bounds its eigenvalues. If r is zero, dt is a hundredth of the run. A coefficient along an
        axis with a volume element is replaced by the largest eigenvalue of its multiplication,
        since it may be infinite at an end, such as the origin of a radius.

    Returns
    -------
    StepperSettings

    Raises
    ------
    ValueError
        If `until` does not lie after `t0`, dt is not positive, or a rate is not finite.
    """
    if not until > t0:
        raise ValueError(f"until is {until!r}; it must lie after t0 = {t0!r}")
    if method is not None and dt is not None:
        return StepperSettings(method, dt, until)
    rates = [_rates(term, space, t0, until) for term in terms]
    for k, rate in enumerate(rates):
        if not np.isfinite(rate).all():
            raise ValueError(
                f"terms[{k}], {term_text(terms[k])}, changes f at rates beyond the range of "
                "float64; take other units, or smaller coefficients"
            )
    transport, diffusion, implicit_diffusion, stiff_transport, implicit_transport = (
        np.array(rates).reshape(-1, 5).T.tolist()
    )
    if method is None:
        method = "crank-nicolson" if any(rate > 0.0 for rate in diffusion) else "ssp-rk3"
        method = "ark3" if any(term.stiff for term in terms) else method
    if dt is None:
        p = max(space.degrees)
        total = sum(transport)
        if method in IMPLICIT_METHODS:
            total += sum(map(add, implicit_diffusion, implicit_transport))
        else:
            total += sum(stiff_transport)
            total += (p + 0.5) * (4.0 + 0.6 * p * p) * sum(diffusion)
        dt = 0.5 / ((2 * p + 1) * total) if total > 0.0 else (until - t0) / 100.0
    return StepperSettings(method, dt, until)


def _rates(
    term: Term, space: DGSpace, t0: float, until: float
) -> tuple[float, float, float, float, float]:
    """Return bounds of a term's rates per unit of time, from the largest values of coefficients.

    - transport: |v| / h of a first derivative, or |c| of a term without a derivative;
    - diffusion: k / h² of a second derivative, for explicit methods;
    - the same for implicit methods: k / (h L), with the axis's length L;
    - transport of a stiff term: |v| / h of a first derivative, for explicit methods;
    - the same for implicit methods: |v| / L.
    """
    size = abs(term.scale) * float(np.max(np.abs(_time_samples(term.time, t0, until))))
    widths, lengths = [], []
    for factor in term.factors:
        axis, level = factor.axis, space.level(factor.axis)
        if axis in space.volume:
            size *= space.volume[axis].largest_rate(factor.coefficient)
        else:
            size *= float(
                np.max(np.abs(sample(factor.coefficient, axis, level, space.degree(axis))))
            )
        if factor.kind != "mass":
            widths.append(axis.cell_width(level))
            lengths.append(axis.length)
    if len(widths) == 1 and term.stiff:
        return 0.0, 0.0, 0.0, size / widths[0], size / lengths[0]
    if len(widths) < 2:
        return size / (widths[0] if widths else 1.0), 0.0, 0.0, 0.0, 0.0
    implicit_diffusion = size / (min(widths) * float(np.prod(lengths[1:])))
    return 0.0, size / float(np.prod(widths)), implicit_diffusion, 0.0, 0.0


def _time_samples(function: TimeFunction, t0: float, until: float) -> NDArray[np.float64]:
    return function(np.linspace(t0, until, _SAMPLES_IN_TIME))
