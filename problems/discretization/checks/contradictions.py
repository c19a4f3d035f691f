"""Find arguments of a PDE that contradict each other, by sampling its functions.

For example an exact solution that has not the values given at an end of an axis. Functions along an
axis are sampled on a few lines, each at its own place of the other coordinates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...statement.axis import Axis
from ...statement.boundary import Dirichlet, Inflow, Neumann, NoFlux, Robin
from ...statement.statement import Statement
from ...statement.terms import Term, TermFactor
from ..basis.projection import sample_points
from ..matrices.boundary_terms import SIDES, Side
from .statement_samples import (
    LEVEL,
    LINES,
    STEP,
    Values,
    end_data,
    exact_at,
    exact_on_lines,
    initial_at,
    number_at,
    own_end_data,
    places_inside,
    product_at,
    slope_across,
    slope_at_end,
)

__all__ = ["check_periodic_coefficients", "contradictions_of_exact", "times_until"]

_TIMES = 5  # number of times inside a run at which the exact solution is sampled
_POINTS = 200  # number of random points at which the initial state is sampled
# An exact solution that is the same after this time is taken as steady. It is the golden ratio less
# 1, so that it is no multiple of a period such as 1 or 2π.
_TIME_OFFSET = 0.6180339887
# Tolerances. Those of values are relative to the largest value of the function on the axis.
_ROUNDING = 1e-8  # difference of a coefficient between periodic ends; conservation fails by as much
_ZERO_FLOW = 1e-12  # a coefficient at an end that counts as zero, as sin π is in floating point
_NEGLIGIBLE = 1e-6  # difference of a solution from its data, such as the tail of a pulse
_NEGLIGIBLE_SLOPE = 1e-5  # difference of a slope times the axis's length, relative to the values
MAX_MISMATCH = 0.1  # difference of values at an end from which exact cannot be a solution

_Mismatch: TypeAlias = tuple[object, float, bool, str]
"""A contradiction at an end of an axis: the key of the condition or end, of which the worst one is
reported; the difference relative to the largest value of the solution or flux; whether it is an
error if that exceeds `MAX_MISMATCH`; and what is wrong and what to do."""


def check_periodic_coefficients(pde: Statement) -> None:
    """Refuse coefficients of derivatives that differ at the two ends of a periodic axis.

    The two ends are one edge. With two different fluxes through it ∫ f would not be conserved.
    """
    chains = [(own.text(), own.term) for own in pde.pointwise]
    chains += [(f"terms[{k}]", term) for k, term in enumerate(pde.terms)]
    for where, term in chains:
        for factor in term.factors:
            axis = factor.axis
            if factor.kind == "mass" or pde.boundary[axis][0].kind != "periodic":
                continue
            line = sample_points(axis, LEVEL, 0)
            values = product_at(factor.coefficient, pde.volume.get(axis, 1.0), line)
            if values is None or not np.isfinite(values).all():
                continue  # the discretization refuses it
            low, high, size = values[0, 0], values[-1, -1], np.abs(values).max()
            if abs(high - low) > _ROUNDING * size:
                volume = " times the volume element" if axis in pde.volume else ""
                raise ValueError(
                    f"the coefficient of {factor.kind} along {axis.name!r} in {where}{volume} "
                    f"is {low:.6g} at {axis.lower:.6g} and {high:.6g} at {axis.upper:.6g}, but "
                    f"{axis.name!r} is periodic, so that these are one place; two fluxes there do "
                    "not conserve. Give a periodic coefficient or other ends, or write a "
                    f"coefficient that jumps as {factor.kind}({axis.name}) @ mass({axis.name}, g)"
                )


def contradictions_of_exact(
    pde: Statement, times: Sequence[float], later: Sequence[float]
) -> list[str]:
    """Return how the exact solution contradicts the conditions at the ends of the axes.

    ``pde``: the PDE, with an exact solution or without.
    ``times``: times at which values that are far off raise an error.
    ``later``: times at which they are only part of the result, since a formula may be exact for a
      limited time.

    Result: one text with numbers for each end where something is wrong, and one if the initial
    state is far from the exact solution. Empty if there is no exact solution, or if its function
    cannot be called at the ends. Raises `ValueError` if exact jumps between the ends of a periodic
    axis, or differs from the values that Dirichlet or Inflow gives, by more than a tenth of its
    largest value.
    """
    if not pde.exact and pde.exact_function is None:
        return []
    found: dict[object, tuple[float, str]] = {}
    for t in (*times, *later):
        with np.errstate(all="ignore"):  # values at the ends may be infinite
            mismatches = [m for axis in pde.axes for m in _mismatches(pde, axis, t)]
        for place, relative, fatal, text in mismatches:
            if fatal and t in times and relative > MAX_MISMATCH:
                raise ValueError(text)
            if place not in found or relative > found[place][0]:
                found[place] = relative, text
    texts = [text for _, text in found.values()]
    return list(dict.fromkeys([*texts, *_initial_far_from_exact(pde)]))


def times_until(t0: float, until: float) -> tuple[float, ...]:
    """Return times at which the exact solution is compared: five inside a run, and its end.

    The times inside are not equally spaced: equally spaced ones could all be multiples of a period
    of the data.
    """
    shares = np.sort(np.arange(1, _TIMES + 1) * ((np.sqrt(5.0) - 1.0) / 2.0) % 1.0)
    return (*(t0 + (until - t0) * float(share) for share in shares), until)


def _initial_far_from_exact(pde: Statement) -> Iterator[str]:
    """Yield a text if the initial state differs much from exact at t0, at random points."""
    if pde.initial is None:
        return
    rng = np.random.default_rng(29)
    points = {axis: rng.uniform(axis.lower, axis.upper, _POINTS) for axis in pde.axes}
    exact, later = exact_at(pde, points, pde.t0), exact_at(pde, points, pde.t0 + _TIME_OFFSET)
    if exact is None or later is None or np.array_equal(exact, later):
        return  # a run may begin away from a steady exact solution and converge to it
    initial = initial_at(pde, points)
    if initial is None:
        return
    off, size = np.abs(initial - exact), float(np.abs(exact).max())
    worst = int(np.argmax(off))
    if off[worst] > MAX_MISMATCH * size:
        place = ", ".join(f"{axis.name} = {points[axis][worst]:.6g}" for axis in pde.axes)
        yield (
            f"initial is {initial[worst]:.6g} at {place}, where exact is {exact[worst]:.6g} at "
            f"t0 = {pde.t0:.6g}: off by {off[worst]:.3g}, and exact is at most {size:.3g}. The run "
            "begins at another solution, and errors are those against exact; give "
            "initial='from exact', or leave it out"
        )


def _mismatches(pde: Statement, axis: Axis, t: float) -> Iterator[_Mismatch]:
    """Yield the contradictions at the ends of one axis at one time."""
    values = exact_on_lines(pde, axis, t, sample_points(axis, LEVEL, 0))
    if values is None or not _acts_along(pde, axis):
        return
    size = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    if size == 0.0:
        return
    if pde.boundary[axis][0].kind == "periodic":
        yield from _jumps(pde, axis, values, size, t)
        return
    for k, side in enumerate(SIDES):
        where = f"at the {side} end of axis {axis.name!r}, t = {t:.6g}"
        for condition, used in _values_used(pde, axis, side):
            given = np.where(
                used, end_data(pde, condition.data, axis, side, t, slope=False), np.nan
            )
            off = np.abs(values[:, -k, -k] - given)
            worst = int(np.argmax(np.where(np.isfinite(off), off, -1.0)))
            relative = float(off[worst]) / size
            if relative > _NEGLIGIBLE:
                name = type(condition).__name__
                yield (
                    (axis, side, id(condition)),
                    relative,
                    True,
                    f"exact is {values[worst, -k, -k]:.6g} {where}, where {name} gives "
                    f"{given[worst]:.6g}: off by {relative:.1e} of its largest value. "
                    f"The run goes to another solution; {_data_of_exact(pde, f'{name}(')}",
                )
        ends = pde.boundary[axis][k]
        if isinstance(ends, NoFlux) or (
            isinstance(ends, (Neumann, Robin)) and not isinstance(ends.data, str)
        ):
            yield from _fluxes(pde, axis, k, values, size, t, where)


def _data_of_exact(pde: Statement, front: str) -> str:
    """Return the advice to give the data of exact, which a callable exact has no word for."""
    return "give the data that exact has" + (f", or {front}'from exact')" if pde.exact else "")


def _jumps(
    pde: Statement, axis: Axis, values: Values, size: float, t: float
) -> Iterator[_Mismatch]:
    """Yield a jump of exact, or of its slope, between the ends of a periodic axis."""
    advice = (
        "The run goes to another solution; give the axis other conditions, or an exact solution "
        "with its period"
    )
    worst = int(np.argmax(np.abs(values[:, -1, -1] - values[:, 0, 0])))
    low, high = values[worst, 0, 0], values[worst, -1, -1]
    relative = float(abs(high - low)) / size
    if relative > _NEGLIGIBLE:
        if _is_periodic(pde, axis, size, t):
            return
        text = (
            f"exact is {low:.6g} at the left and {high:.6g} at the right end of the periodic axis "
            f"{axis.name!r}, t = {t:.6g}: a jump of {relative:.1e} of its largest value"
        )
        yield (axis, "jump"), relative, True, f"{text}. {advice}"
        return
    if not _has_second(pde, axis):
        return
    (left, left_error), (right, right_error) = (
        slope_at_end(partial(exact_on_lines, pde, axis, t), axis, side) for side in SIDES
    )
    off = np.abs(right - left) - left_error - right_error
    worst = int(off.argmax())
    relative = float(off[worst]) * axis.length / size
    if relative > _NEGLIGIBLE_SLOPE:
        text = (
            f"the slope of exact is {left[worst]:.6g} at the left and {right[worst]:.6g} at the "
            f"right end of the periodic axis {axis.name!r}, t = {t:.6g}, and the terms have second "
            "derivatives"
        )
        yield (axis, "kink"), relative, False, f"{text}. {advice}"


def _is_periodic(pde: Statement, axis: Axis, size: float, t: float) -> bool:
    """Return whether a formula that jumps at the ends of the axis has nevertheless its period.

    A periodic wave may have its jump just there, as sign(sin x) has, and then rounding decides its
    values at the ends. So it is compared a little inside and outside of one end with the same
    points at the other end.
    """
    steps = STEP * axis.length * np.array([-1.0, 1.0])
    first, second = (
        exact_on_lines(pde, axis, t, (end + steps)[None, :]) for end in (axis.lower, axis.upper)
    )
    if first is None or second is None:
        return False
    return bool(np.abs(first - second).max() <= _NEGLIGIBLE * size)


def _fluxes(
    pde: Statement, axis: Axis, k: int, values: Values, size: float, t: float, where: str
) -> Iterator[_Mismatch]:
    """Yield the difference of exact's flux from the given one at a Neumann, Robin or no-flux end.

    It is summed over all terms that do not take the trace from inside, because their fluxes may
    cancel. ``k`` is 0 for the left and 1 for the right end, ``values`` are exact on lines along the
    axis, ``size`` its largest value, and ``where`` names the end and the time.
    """
    side = SIDES[k]
    total, scale, unsure, given = np.zeros(LINES), np.zeros(LINES), np.zeros(LINES), False
    for term in pde.terms:
        chain = [factor for factor in term.factors if factor.kind != "mass"]
        if len({factor.axis for factor in chain}) == 2:
            chain.sort(key=lambda factor: factor.kind)  # factors along different axes commute
        if [factor.kind for factor in chain] not in (["div"], ["div", "grad"]):
            continue
        div, inner = chain[0], chain[-1]
        if div.axis != axis:
            continue
        condition = (div.boundary or pde.boundary[axis])[k]
        if len(chain) == 1:
            if condition.kind not in ("dirichlet", "no-flux"):
                continue
            given = given or condition.kind == "no-flux"
            off = values[:, -k, -k] - own_end_data(pde, condition, axis, side, t)
            error = np.zeros(LINES)
            each = size
        elif div.boundary is not None:
            continue
        elif inner.axis == axis:
            given = True
            data = getattr(condition, "data", 0.0)
            slope, error = slope_at_end(partial(exact_on_lines, pde, axis, t), axis, side)
            if isinstance(condition, Robin):
                outward = end_data(pde, data, axis, side, t, slope=False)
                outward = outward - condition.r * values[:, -k, -k]
                off = slope - (outward if side == "right" else -outward)
            else:
                off = slope - end_data(pde, data, axis, side, t, slope=True)
            each = size / axis.length
        else:
            off, error = slope_across(pde, axis, side, inner.axis, t)
            each = size / inner.axis.length
        number = _coefficient(pde, term, div, inner, side, t)
        if number is None:
            return
        total += number * off
        scale += np.abs(number) * each
        unsure += np.abs(number) * error
    beyond = np.abs(total) - unsure - _NEGLIGIBLE_SLOPE * scale
    worst = int(np.argmax(beyond))
    if given and beyond[worst] > 0.0:
        condition = pde.boundary[axis][k]
        own = f"Robin({condition.r:.6g}, " if isinstance(condition, Robin) else "Neumann("
        advice = _data_of_exact(pde, own)
        if isinstance(condition, NoFlux):
            advice = "give an exact solution without a flux there, or the end another condition"
        yield (
            (axis, side),
            float(abs(total[worst]) / scale[worst]),
            False,
            f"exact has a flux that differs by {total[worst]:.6g} from that which the boundary "
            f"gives {where}. The run goes to another solution; {advice}",
        )


def _coefficient(
    pde: Statement, term: Term, div: TermFactor, inner: TermFactor, side: Side, t: float
) -> Values | None:
    """Return the coefficient of the flux of ``div @ inner`` at an end, on all lines.

    ``inner`` is the grad, or ``div`` itself for a first derivative; the flux is the coefficient
    times ∂f/∂x or f. None if it cannot be evaluated, as with fields of an unknown state, or the
    grad acts on a product g f.
    """
    if term.fields:
        return None
    end = np.full(LINES, div.axis.lower if side == "left" else div.axis.upper)
    number = np.full(LINES, term.scale * number_at(term.time, t))
    first, last = term.factors.index(div), term.factors.index(inner)
    volume = product_at(pde.volume.get(div.axis, 1.0), 1.0, end)
    if volume is None:
        return None
    number = number * volume
    for place, factor in enumerate(term.factors):
        if factor.axis == div.axis and place < first:
            continue
        if factor.axis == inner.axis and place > last and inner is not div:
            return None  # grad acts on a product g f, whose derivative is no multiple of ∂f/∂x
        points = end if factor.axis == div.axis else places_inside(pde)[factor.axis]
        values = product_at(factor.coefficient, 1.0, points)
        if values is None or not np.isfinite(values).all():
            return None
        number = number * values
    return number


def _all_terms(pde: Statement) -> list[Term]:
    """Return the terms, and what acts on functions of the state."""
    return [*pde.terms, *(term.term for term in pde.pointwise)]


def _acts_along(pde: Statement, axis: Axis) -> bool:
    """Return whether a derivative along the axis has a nonzero coefficient at one of its ends."""
    return any(
        factor.axis == axis
        and factor.kind in ("div", "grad")
        and any(_edge(pde, factor, side) != 0.0 for side in SIDES)
        for term in _all_terms(pde)
        for factor in term.factors
    )


def _has_second(pde: Statement, axis: Axis) -> bool:
    """Return whether a term has two derivatives, one of them along the axis."""
    for term in _all_terms(pde):
        derivatives = [factor for factor in term.factors if factor.kind in ("div", "grad")]
        if len(derivatives) > 1 and any(factor.axis == axis for factor in derivatives):
            return True
    return False


def _values_used(
    pde: Statement, axis: Axis, side: Side
) -> Iterator[tuple[Dirichlet | Inflow, NDArray[np.bool_]]]:
    """Yield each condition whose value a term uses at an end, and on which lines it does.

    The value of Dirichlet is used on all lines, that of Inflow where the whole coefficient carries
    f in, which is not known of fields; neither is used where the coefficient is 0. A factor's own
    condition is a condition on f only if the factor is the innermost derivative. If a first
    derivative has its own condition and the flux of second derivatives is given at this end, the
    value is a part of the whole flux,
    which `_fluxes` checks.
    """
    k = SIDES.index(side)
    for term in _all_terms(pde):
        along = [factor for factor in term.factors if factor.axis == axis]
        derivatives = [factor for factor in term.factors if factor.kind in ("div", "grad")]
        number = term.scale * float(np.prod([_edge(pde, factor, side) for factor in along]))
        for factor in derivatives:
            condition = (factor.boundary or pde.boundary[factor.axis])[k]
            if factor.axis != axis or number == 0.0:
                continue
            if not isinstance(condition, (Dirichlet, Inflow)) or isinstance(condition.data, str):
                continue
            if len(derivatives) > 1 and (
                isinstance(condition, Inflow)
                or (
                    derivatives[0].axis == axis
                    and isinstance((derivatives[0].boundary or (None, None))[k], NoFlux)
                )
            ):
                continue  # NoFlux on div fixes the flux of the chain, which then takes no value
            if factor.boundary is not None and (
                factor is not derivatives[-1]
                or any(other.axis != axis for other in derivatives)
                or (len(derivatives) == 1 and _has_given_flux(pde, axis, side))
            ):
                continue
            used = np.ones(LINES, dtype=np.bool_)
            if isinstance(condition, Inflow) and term.fields:
                continue  # whether f flows in depends on the state
            if isinstance(condition, Inflow):
                total = np.full(LINES, number if side == "left" else -number)
                for other in term.factors:
                    if other.axis != axis:
                        points = places_inside(pde)[other.axis]
                        values = product_at(other.coefficient, 1.0, points)
                        total = total * (np.nan if values is None else values)
                used = total < 0.0
            if used.any():
                yield condition, used


def _has_given_flux(pde: Statement, axis: Axis, side: Side) -> bool:
    """Return whether second derivatives along an axis have a given flux, not a value, at an end."""
    for term in pde.terms:
        chain = [f for f in term.factors if f.kind in ("div", "grad")]
        if [f.kind for f in chain] == ["div", "grad"] and all(f.axis == axis for f in chain):
            own = chain[0].boundary
            closed = (Dirichlet, NoFlux) if own else (Neumann, Robin, NoFlux)
            if isinstance((own or pde.boundary[axis])[SIDES.index(side)], closed):
                return True
    return False


def _edge(pde: Statement, factor: TermFactor, side: Side) -> float:
    """Return a factor's coefficient times the volume element at an end.

    The result is 0 if that is not finite, or is zero up to rounding (such as sin π).
    """
    axis = factor.axis
    values = product_at(
        factor.coefficient, pde.volume.get(axis, 1.0), sample_points(axis, LEVEL, 0)
    )
    if values is None:
        return 0.0
    value = float(values[0, 0] if side == "left" else values[-1, -1])
    size = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    return value if np.isfinite(value) and abs(value) > _ZERO_FLOW * size else 0.0
