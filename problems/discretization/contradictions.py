"""What the arguments of a PDE say that cannot all be true: found by samples, said by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..statement.axis import Axis
from ..statement.boundary import Condition, Dirichlet, Inflow, Neumann, NoFlux
from ..statement.coefficients import Function
from ..statement.separable import Separable, separable_parts
from ..statement.statement import Statement
from ..statement.terms import Term, TermFactor
from .boundary_terms import Side
from .projection import differentiate, sample_points

__all__ = ["check_periodic_coefficients", "contradictions_of_exact", "times_until"]

_LEVEL = 3  # of the cells that functions are sampled on, whatever the discretization's
_LINES = 5  # along an axis, at as many places of the other coordinates
_TIMES = 5  # inside a run
_POINTS = 200  # for the initial state
_LATER = 0.6180339887  # no period of anything: where exact is the same there, it is steady
_END_CELLS = 64, 512  # cells of an axis, whose first and last tell slopes at the ends
_STEP = 1e-4  # of differences along other axes, in lengths of the axis
_ROUNDING = 1e-8  # of coefficients, relative to the largest value; what flows is as far off
_FLOWLESS = 1e-12  # of coefficients at the ends, relative to the largest value
_NEGLIGIBLE = 1e-6  # of the solution, relative to its largest value: tails of pulses pass
_NEGLIGIBLE_SLOPE = 1e-5  # of slopes times length
MAX_MISMATCH = 0.1  # of values at the ends, relative to the largest one; beyond, it is no solution

_SIDES: tuple[Side, Side] = ("left", "right")
Values = NDArray[np.float64]


def check_periodic_coefficients(pde: Statement) -> None:
    """Refuse coefficients of derivatives that differ at the two ends of a periodic axis.

    These are one edge: two fluxes through it would make or destroy what flows.

    Parameters
    ----------
    pde : Statement
        With axes, terms, boundary and volume elements.

    Raises
    ------
    ValueError
        Names the term and both values.
    """
    for k, term in enumerate(pde.terms):
        for factor in term.factors:
            axis = factor.axis
            if factor.kind == "mass" or pde.boundary[axis][0].kind != "periodic":
                continue
            line = sample_points(axis, _LEVEL, 0)
            values = _times(factor.coefficient, pde.volume.get(axis, 1.0), line)
            if values is None or not np.isfinite(values).all():
                continue  # refused where it is discretized
            low, high, size = values[0, 0], values[-1, -1], np.abs(values).max()
            if abs(high - low) > _ROUNDING * size:
                volume = " times the volume element" if axis in pde.volume else ""
                raise ValueError(
                    f"the coefficient of {factor.kind} along {axis.name!r} in terms[{k}]{volume} "
                    f"is {low:.6g} at {axis.lower:.6g} and {high:.6g} at {axis.upper:.6g}, but "
                    f"{axis.name!r} is periodic, so that these are one place; two fluxes there do "
                    "not conserve. Give a periodic coefficient or other ends, or write a "
                    f"coefficient that jumps as {factor.kind}({axis.name}) @ mass({axis.name}, g)"
                )


def contradictions_of_exact(
    pde: Statement, times: Sequence[float], later: Sequence[float]
) -> list[str]:
    """Return what the exact solution contradicts at the ends of the axes.

    Parameters
    ----------
    pde : Statement
        With an exact solution, or none.
    times : sequence of float
        Times at which values that are far off are refused.
    later : sequence of float
        Times at which they are named only: a formula may hold for a while.

    Returns
    -------
    list of str
        One text for each end, with numbers, and one if the initial state is far from exact. Empty
        where exact is not known, or its function cannot
        be called at the ends.

    Raises
    ------
    ValueError
        If exact is not periodic on a periodic axis, or has not the values that Dirichlet or Inflow
        gives, by more than a tenth of its largest value.
    """
    if not pde.exact and pde.exact_function is None:
        return []
    found: dict[object, _Mismatch] = {}
    for t in (*times, *later):
        with np.errstate(all="ignore"):  # values at the ends may be infinite
            mismatches = [m for axis in pde.axes for m in _mismatches(pde, axis, t)]
        for mismatch in mismatches:
            if mismatch.fatal and t in times and mismatch.relative > MAX_MISMATCH:
                raise ValueError(f"{mismatch.text}. {mismatch.advice}")
            key = mismatch.place
            if key not in found or mismatch.relative > found[key].relative:
                found[key] = mismatch
    texts = [f"{mismatch.text}. {mismatch.advice}" for mismatch in found.values()]
    return list(dict.fromkeys([*texts, *_initial_far_from_exact(pde)]))


def times_until(t0: float, until: float) -> tuple[float, ...]:
    """Return times at which formulas are looked at: some inside a run, and its end.

    Parameters
    ----------
    t0, until : float
        The run's beginning and end.

    Returns
    -------
    tuple of float
        At shares of the run that are not multiples of each other, as the periods of data may be.
    """
    shares = np.sort(np.arange(1, _TIMES + 1) * ((np.sqrt(5.0) - 1.0) / 2.0) % 1.0)
    return (*(t0 + (until - t0) * float(share) for share in shares), until)


def _initial_far_from_exact(pde: Statement) -> Iterator[str]:
    """Yield a text if the initial state is far from exact at t0, as samples tell."""
    if pde.initial is None:
        return
    rng = np.random.default_rng(29)
    points = {axis: rng.uniform(axis.lower, axis.upper, _POINTS) for axis in pde.axes}
    exact, later = _exact_at(pde, points, pde.t0), _exact_at(pde, points, pde.t0 + _LATER)
    if exact is None or later is None or np.array_equal(exact, later):
        return  # where exact is steady a run may begin away from it
    parts = [_product(part, points, pde.t0) for part in pde.initial]
    if any(values is None for values in parts):
        return
    initial = np.zeros(_POINTS) + sum(values for values in parts if values is not None)
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


class _Mismatch(NamedTuple):
    """Something that is not as it is said to be at an end."""

    place: object
    relative: float
    fatal: bool
    text: str
    advice: str


def _mismatches(pde: Statement, axis: Axis, t: float) -> Iterator[_Mismatch]:
    """Yield what contradicts the conditions at the ends of one axis, at one time."""
    values = _exact_on_lines(pde, axis, t, sample_points(axis, _LEVEL, 0))
    if values is None or not _acts_along(pde, axis):
        return
    size = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    if size == 0.0:
        return
    if pde.boundary[axis][0].kind == "periodic":
        yield from _jumps(pde, axis, values, size, t)
        return
    for k, side in enumerate(_SIDES):
        where = f"at the {side} end of axis {axis.name!r}, t = {t:.6g}"
        for condition, used in _values_used(pde, axis, side):
            given = np.where(used, _data(pde, condition.data, axis, side, t, slope=False), np.nan)
            off = np.abs(values[:, -k, -k] - given)
            worst = int(np.argmax(np.where(np.isfinite(off), off, -1.0)))
            relative = float(off[worst]) / size
            if relative > _NEGLIGIBLE:
                name = type(condition).__name__
                yield _Mismatch(
                    (axis, side, id(condition)),
                    relative,
                    True,
                    f"exact is {values[worst, -k, -k]:.6g} {where}, where {name} gives "
                    f"{given[worst]:.6g}: off by {relative:.1e} of its largest value",
                    "The run goes to another solution; give the data that exact has, or "
                    f"{name}('from exact')",
                )
        ends = pde.boundary[axis][k]
        if isinstance(ends, NoFlux) or (
            isinstance(ends, Neumann) and not isinstance(ends.data, str)
        ):
            yield from _fluxes(pde, axis, k, values, size, t, where)


def _jumps(
    pde: Statement, axis: Axis, values: Values, size: float, t: float
) -> Iterator[_Mismatch]:
    """Yield jumps of exact, or of its slope, where a periodic axis closes."""
    advice = (
        "The run goes to another solution; give the axis other conditions, or an exact solution "
        "with its period"
    )
    worst = int(np.argmax(np.abs(values[:, -1, -1] - values[:, 0, 0])))
    low, high = values[worst, 0, 0], values[worst, -1, -1]
    relative = float(abs(high - low)) / size
    if relative > _NEGLIGIBLE:
        if _goes_round(pde, axis, size, t):
            return
        text = (
            f"exact is {low:.6g} at the left and {high:.6g} at the right end of the periodic axis "
            f"{axis.name!r}, t = {t:.6g}: a jump of {relative:.1e} of its largest value"
        )
        yield _Mismatch((axis, "jump"), relative, True, text, advice)
        return
    if not _has_second(pde, axis):
        return
    (left, left_error), (right, right_error) = (
        _slope_at_end(partial(_exact_on_lines, pde, axis, t), axis, side) for side in _SIDES
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
        yield _Mismatch((axis, "kink"), relative, False, text, advice)


def _goes_round(pde: Statement, axis: Axis, size: float, t: float) -> bool:
    """Return whether a formula that jumps at the ends goes on with the axis's period.

    So does a wave with a jump just there, as sign(sin x): rounding decides what it is at the ends.
    Beside them, inside and outside, it is the same a period further.
    """
    steps = _STEP * axis.length * np.array([-1.0, 1.0])
    first, second = (
        _exact_on_lines(pde, axis, t, (end + steps)[None, :]) for end in (axis.lower, axis.upper)
    )
    if first is None or second is None:
        return False
    return bool(np.abs(first - second).max() <= _NEGLIGIBLE * size)


def _fluxes(
    pde: Statement, axis: Axis, k: int, values: Values, size: float, t: float, where: str
) -> Iterator[_Mismatch]:
    """Yield the flux of exact that the conditions at a Neumann end leave out.

    A sum over the terms that do not take the trace from inside, since some may cancel.
    """
    side = _SIDES[k]
    total, scale, unsure, given = np.zeros(_LINES), np.zeros(_LINES), np.zeros(_LINES), False
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
            off = values[:, -k, -k] - _own_data(pde, condition, axis, side, t)
            error = np.zeros(_LINES)
            each = size
        elif div.boundary is not None:
            continue
        elif inner.axis == axis:
            given = True
            data = getattr(condition, "data", 0.0)
            slope, error = _slope_at_end(partial(_exact_on_lines, pde, axis, t), axis, side)
            off = slope - _data(pde, data, axis, side, t, slope=True)
            each = size / axis.length
        else:
            off, error = _slope_across(pde, axis, side, inner.axis, t)
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
        advice = "give the data that exact has, or Neumann('from exact')"
        if isinstance(pde.boundary[axis][k], NoFlux):
            advice = "give an exact solution without a flux there, or the end another condition"
        yield _Mismatch(
            (axis, side),
            float(abs(total[worst]) / scale[worst]),
            False,
            f"exact has a flux that differs by {total[worst]:.6g} from that which the boundary "
            f"gives {where}",
            f"The run goes to another solution; {advice}",
        )


def _coefficient(
    pde: Statement, term: Term, div: TermFactor, inner: TermFactor, side: Side, t: float
) -> Values | None:
    """Return what multiplies the derivative or value inside a div, at an end; None if unknown."""
    end = np.full(_LINES, div.axis.lower if side == "left" else div.axis.upper)
    number = np.full(_LINES, term.scale * _at_time(term.time, t))
    first, last = term.factors.index(div), term.factors.index(inner)
    volume = _times(pde.volume.get(div.axis, 1.0), 1.0, end)
    if volume is None:
        return None
    number = number * volume
    for place, factor in enumerate(term.factors):
        if factor.axis == div.axis and place < first:
            continue
        if factor.axis == inner.axis and place > last and inner is not div:
            return None  # the derivative of a product
        points = end if factor.axis == div.axis else _places(pde)[factor.axis]
        values = _times(factor.coefficient, 1.0, points)
        if values is None or not np.isfinite(values).all():
            return None
        number = number * values
    return number


def _acts_along(pde: Statement, axis: Axis) -> bool:
    """Return whether a derivative along the axis has a coefficient that is not zero at its ends."""
    return any(
        factor.axis == axis
        and factor.kind in ("div", "grad")
        and any(_edge(pde, factor, side) != 0.0 for side in _SIDES)
        for term in pde.terms
        for factor in term.factors
    )


def _has_second(pde: Statement, axis: Axis) -> bool:
    """Return whether a term has two derivatives, one of them along the axis."""
    for term in pde.terms:
        derivatives = [factor for factor in term.factors if factor.kind in ("div", "grad")]
        if len(derivatives) > 1 and any(factor.axis == axis for factor in derivatives):
            return True
    return False


def _values_used(
    pde: Statement, axis: Axis, side: Side
) -> Iterator[tuple[Dirichlet | Inflow, NDArray[np.bool_]]]:
    """Yield conditions whose value a term takes at an end, and the lines on which it does.

    Dirichlet is taken everywhere, Inflow where the whole coefficient carries f in. Both count only
    where the coefficient is not 0. A factor's own condition is one of f where it is the innermost
    derivative; that of a first derivative is left to `_fluxes` where second derivatives along the
    axis have a given flux at this end: the values are then a part of it.
    """
    k = _SIDES.index(side)
    for term in pde.terms:
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
                continue  # a chain that its div closes takes no value
            if factor.boundary is not None and (
                factor is not derivatives[-1]
                or any(other.axis != axis for other in derivatives)
                or (len(derivatives) == 1 and _has_given_flux(pde, axis, side))
            ):
                continue
            used = np.ones(_LINES, dtype=np.bool_)
            if isinstance(condition, Inflow):
                total = np.full(_LINES, number if side == "left" else -number)
                for other in term.factors:
                    if other.axis != axis:
                        points = _places(pde)[other.axis]
                        values = _times(other.coefficient, 1.0, points)
                        total = total * (np.nan if values is None else values)
                used = total < 0.0
            if used.any():
                yield condition, used


def _has_given_flux(pde: Statement, axis: Axis, side: Side) -> bool:
    """Return whether second derivatives along an axis have a flux, not a value, at an end."""
    for term in pde.terms:
        chain = [f for f in term.factors if f.kind in ("div", "grad")]
        if [f.kind for f in chain] == ["div", "grad"] and all(f.axis == axis for f in chain):
            own = chain[0].boundary
            closed = (Dirichlet, NoFlux) if own else (Neumann, NoFlux)
            if isinstance((own or pde.boundary[axis])[_SIDES.index(side)], closed):
                return True
    return False


def _edge(pde: Statement, factor: TermFactor, side: Side) -> float:
    """Return a factor's coefficient times the volume element at an end.

    0 if it is not finite, or not larger than rounding makes it: sin π is no flow.
    """
    axis = factor.axis
    values = _times(factor.coefficient, pde.volume.get(axis, 1.0), sample_points(axis, _LEVEL, 0))
    if values is None:
        return 0.0
    value = float(values[0, 0] if side == "left" else values[-1, -1])
    size = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    return value if np.isfinite(value) and abs(value) > _FLOWLESS * size else 0.0


def _own_data(pde: Statement, condition: Condition, axis: Axis, side: Side, t: float) -> Values:
    data = getattr(condition, "data", 0.0)
    if isinstance(data, str):
        end = np.full(_LINES, axis.lower if side == "left" else axis.upper)
        values = _exact_at(pde, {**_places(pde), axis: end}, t)
        return np.full(_LINES, np.nan) if values is None else values
    return _data(pde, data, axis, side, t, slope=False)


def _data(pde: Statement, data: Any, axis: Axis, side: Side, t: float, *, slope: bool) -> Values:
    """Return boundary data at an end, on all lines; NaN where it cannot be evaluated."""
    places = _places(pde)
    k = _SIDES.index(side)
    total = np.zeros(_LINES)
    for part in separable_parts("boundary data", data, pde.axes):
        factor = part.factor(axis)
        at = partial(_times, factor, 1.0)
        if slope and callable(factor):
            value, _ = _slope_at_end(at, axis, side)
        else:
            line = at(sample_points(axis, _LEVEL, 0))
            value = np.asarray(np.nan if line is None else line[-k, -k])
        others = {other: points for other, points in places.items() if other != axis}
        rest = _product(part, others, t)
        if rest is None:
            return np.full(_LINES, np.nan)
        total = total + value * rest
    return total


def _slope_at_end(
    at: Callable[[Values], Values | None], axis: Axis, side: Side
) -> tuple[Values, Values]:
    """Return the slope at an end of an axis, and how far it may be off; NaN if it is not known.

    The function takes points (1, n) of the axis and returns values (..., 1, n). Small cells resolve
    fast waves; two sizes tell how well.
    """
    slopes = []
    for cells in _END_CELLS:
        width = axis.length / cells
        start = axis.lower if side == "left" else axis.upper - width
        end = axis.lower + width if side == "left" else axis.upper
        cell = Axis(axis.name, start, end)
        values = at(sample_points(cell, 0, 0))
        if values is None:
            return np.full(_LINES, np.nan), np.full(_LINES, np.nan)
        place = 0 if side == "left" else -1
        lines = values.reshape(-1, 1, values.shape[-1])
        slopes.append(np.array([differentiate(line, cell)[0, place] for line in lines]))
    coarse, fine = slopes
    return fine, np.abs(fine - coarse)


def _slope_across(
    pde: Statement, axis: Axis, side: Side, other: Axis, t: float
) -> tuple[Values, Values]:
    """Return ∂f/∂(other) of exact at an end of an axis, on all lines, and how far it may be off."""
    places = _places(pde)
    places[axis] = np.full(_LINES, axis.lower if side == "left" else axis.upper)
    slopes = []
    for step in (_STEP * other.length, 0.5 * _STEP * other.length):
        ahead = _exact_at(pde, {**places, other: places[other] + step}, t)
        behind = _exact_at(pde, {**places, other: places[other] - step}, t)
        if ahead is None or behind is None:
            return np.full(_LINES, np.nan), np.full(_LINES, np.nan)
        slopes.append((ahead - behind) / (2.0 * step))
    coarse, fine = slopes
    return np.asarray((4.0 * fine - coarse) / 3.0), np.abs(fine - coarse)


def _places(pde: Statement) -> dict[Axis, Values]:
    """Return coordinates inside the box, the same at every call."""
    shares = np.random.default_rng(29).uniform(0.1, 0.9, (len(pde.axes), _LINES))
    return {
        axis: axis.lower + axis.length * share for axis, share in zip(pde.axes, shares, strict=True)
    }


def _exact_on_lines(pde: Statement, axis: Axis, t: float, line: Values) -> Values | None:
    """Return exact along an axis: (lines, cells, points of a cell); None if it cannot be called."""
    points = {other: np.repeat(places, line.size) for other, places in _places(pde).items()}
    points[axis] = np.tile(line.ravel(), _LINES)
    values = _exact_at(pde, points, t)
    return None if values is None else values.reshape(_LINES, *line.shape)


def _exact_at(pde: Statement, points: dict[Axis, Values], t: float) -> Values | None:
    """Return the exact solution at points, one array per axis; None if it cannot be called."""
    if pde.exact_function is not None:
        function = pde.exact_function
        arrays = [points[axis] for axis in pde.axes]
        return _quietly(lambda: function(*arrays, t), arrays[0].shape)
    total = np.zeros_like(points[pde.axes[0]])
    for part in pde.exact:
        values = _product(part, points, t)
        if values is None:
            return None
        total = total + values
    return total


def _product(part: Separable, points: dict[Axis, Values], t: float) -> Values | None:
    """Return a product of 1-D functions at points, on the axes that these have."""
    number = part.coefficient * _at_time(part.time, t)
    result: Values = np.asarray(number)
    for axis, places in points.items():
        values = _times(part.factor(axis), 1.0, places)
        if values is None:
            return None
        result = result * values
    return result


def _at_time(function: Callable[[float], Any], t: float) -> float:
    """Return a function of time; NaN, which compares as no contradiction, outside its table."""
    value = _quietly(lambda: function(t), ())
    return float("nan") if value is None else float(value)


def _times(function: Function, other: Function, points: Values) -> Values | None:
    """Return a product of two functions of a coordinate at points."""
    result = np.ones(points.shape)
    for entry in (function, other):
        if callable(entry):
            call: Callable[[Values], Any] = entry
            values = _quietly(partial(call, points.ravel().copy()), (points.size,))
            if values is None:
                return None
            result = result * values.reshape(points.shape)
        else:
            result = result * entry
    return result


def _quietly(call: Callable[[], Any], shape: tuple[int, ...]) -> Values | None:
    """Return what a user's function gives, as floats; None if it fails.

    Ends of an axis may be outside its domain. What is wrong with the function itself is said where
    it is projected.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return np.array(np.broadcast_to(np.asarray(call(), dtype=np.float64), shape))
        except Exception:
            return None
