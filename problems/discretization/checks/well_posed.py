"""Find ill-posed PDEs: those whose diffusion is backward at some place, direction and time.

The terms of second order are Σ_ij K_ij ∂²f/∂x_i∂x_j and terms of lower order. A wave of the wave
vector ξ grows at the rate -ξᵀKξ. So K must be positive semidefinite everywhere, or short waves grow
at rates without a bound, and results depend on the grid. On axes with terms of higher order, as
f_t = -∂²f/∂x² - ∂⁴f/∂x⁴, those of the highest even order decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import PointValueError

from ...statement.axis import Axis
from ...statement.functions import sample_places
from ...statement.pointwise import PointwiseTerm
from ...statement.pointwise_terms import with_axes
from ...statement.terms import Term, term_text
from ..basis.projection import projection_nodes
from ..basis.quadrature import cell_points, evaluate, gauss_rule
from ..space import DGSpace
from ..terms.traces import coefficient_sign

__all__ = [
    "only_diffusion",
    "refuse_backward_diffusion",
    "refuse_backward_diffusion_at_points",
    "well_posed_until",
]

_TIMES = 257  # number of times in a run at which functions of time are sampled
# Coefficients are sampled at the Gauss nodes of this many cells at least and at most, as powers of
# two: so narrow layers are found on coarse grids, and fine grids cost no more than 25000 values.
_LEVELS = 3, 10
# How far problems look ahead that lose their PDE, in doublings of the run that `discretize` was
# given; and how often the time is halved in which the diffusion becomes backward, to 10^-6 of it.
_DOUBLINGS, _HALVINGS = 10, 20
_MAX_PLACES = 1 << 14  # number of places and times at which sums of terms are sampled
# K counts as semidefinite if its smallest eigenvalue, relative to the largest diffusivities along
# its axes, is above minus this: differences such as cos² - 1 leave rounding errors.
_ROUNDING = 1e-8

_Samples: TypeAlias = tuple[Axis | None, NDArray[np.float64], NDArray[np.float64]]
"""Places along an axis, or times, (places,), and the factors of terms there, (terms, places)."""

_ADVICE = (
    "Such a PDE is ill-posed: waves grow the faster the shorter they are, and the results depend "
    "on the grid alone. Diffusion on the right-hand side of f_t = ... is +div(x, k) @ grad(x) with "
    "k >= 0, while transport f_t = -v f_x is div(x, -v). Change the sign, or go on, in Python, "
    "with discretize(..., allow_ill_posed=True)"
)


def only_diffusion(terms: Sequence[Term], space: DGSpace) -> list[bool]:
    """Return for each term whether it is the only diffusion along an axis.

    Its scale, constant masses and function of time then decide when that diffusion is backward. It
    is False for a term whose other factors are not positive: then the problem is well-posed while
    those are negative.
    """
    orders = [_order_along(term) for term in terms]
    pure = [next(iter(own)) if list(own.values()) == [2] else None for own in orders]
    higher = {axis for own in orders if sum(own.values()) > 2 for axis in own}
    found = []
    for term, axis in zip(terms, pure, strict=True):
        alone = axis is not None and axis not in higher and pure.count(axis) == 1
        signs = (
            coefficient_sign(factor.coefficient, factor.axis, space)
            for factor in term.factors
            if factor.kind != "mass" or callable(factor.coefficient)
        )
        found.append(alone and not term.time.is_constant and math.prod(signs) > 0.0)
    return found


def refuse_backward_diffusion(
    terms: Sequence[Term],
    space: DGSpace,
    run: tuple[float, float],
    field_range: Callable[[Term], tuple[float, float] | None] | None = None,
) -> None:
    """Refuse a PDE whose diffusion is backward somewhere.

    ``terms``: the right-hand side. Terms with fields have coefficients that depend on the state:
      the axes of their second derivatives are left out, but for `field_range`.
    ``space``: axes, levels, degree.
    ``run``: the run's beginning and end.
    ``field_range``: returns the smallest and largest value of the product of a term's fields at the
      beginning, None if that is not known. Along each axis on its own, the diffusion there is
      refused if it is backward even with the most favourable of these values.

    Raises `ValueError`: the text has the terms, the value or matrix, where it is, and what to do.
    """
    orders = [_order_along(term) for term in terms]
    higher = {axis for own in orders if sum(own.values()) > 2 for axis in own}
    unknown = {
        axis for term, own in zip(terms, orders, strict=True) if term.fields for axis in own
        if sum(own.values()) > 1
    }  # fmt: skip
    for axis in sorted(higher - unknown, key=space.axes.index):
        pure = {next(iter(own.values())) for own in orders if list(own) == [axis]}
        highest = max((order for order in pure if order % 2 == 0), default=2)
        chosen = [k for k, own in enumerate(orders) if own == {axis: highest}]
        _refuse_negative(terms, chosen, [axis], orders, space, run)
    for axis in sorted(unknown - higher, key=space.axes.index):
        if field_range is None:
            break
        chosen = [k for k, own in enumerate(orders) if own == {axis: 2}]
        best = [_most_favourable(terms[k], field_range, space, run[0]) for k in chosen]
        known = [term for term in best if term is not None]
        if len(known) == len(chosen):
            _refuse_negative(terms, chosen, [axis], orders, space, (run[0], run[0]), known)
    axes = [axis for axis in space.axes if axis not in higher | unknown]
    chosen = [
        k for k, own in enumerate(orders) if sum(own.values()) == 2 and all(a in axes for a in own)
    ]
    _refuse_negative(terms, chosen, axes, orders, space, run)


def refuse_backward_diffusion_at_points(
    terms: Sequence[PointwiseTerm], axes: tuple[Axis, ...], run: tuple[float, float]
) -> None:
    """Refuse pointwise diffusion that is backward somewhere, at random places and in a run.

    ``terms``: the pointwise terms of a right-hand side; those without a derivative before F are
      left out.
    ``axes``: the PDE's axes.
    ``run``: the run's beginning and end.

    Raises `ValueError`: the text has the term and the time.
    """
    places = sample_places(axes)
    ones = np.ones_like(places[0])
    for term in terms:
        if term.is_second_derivative:
            _refuse_change_of_sign(term, run)
        if term.inner is None:
            continue
        function = with_axes(term, axes)
        for t in np.linspace(*run, _TIMES if _in_time(term, axes) else 1).tolist():
            sign = term.term.scale * float(term.term.time(t))
            try:
                g = function.of_state(ones, places, t)
            except PointValueError:  # where the function ends, a run ends, too
                break
            if (sign * g).min() < 0.0:
                raise ValueError(
                    f"{term.text()} is backward diffusion at some place, at t = {t!r}: its "
                    "coefficient is negative, and short waves grow without a bound"
                )


def _refuse_change_of_sign(term: PointwiseTerm, run: tuple[float, float]) -> None:
    """Refuse the second derivative of a growing function where its factor in time changes sign."""
    times = np.linspace(*run, _TIMES)
    factors = np.array([float(term.term.time(t)) for t in times.tolist()])
    (changed,) = np.nonzero(factors * factors[0] < 0.0)
    if changed.size:
        raise ValueError(
            f"{term.text()} is backward diffusion at t = {float(times[changed[0]])!r}: its factor "
            "in time changes sign, and short waves grow without a bound"
        )


def _in_time(term: PointwiseTerm, axes: tuple[Axis, ...]) -> bool:
    """Return whether a pointwise diffusion depends on time."""
    if term.inner is None:
        return False
    return with_axes(term, axes).in_time or not term.term.time.is_constant


def _most_favourable(
    term: Term,
    field_range: Callable[[Term], tuple[float, float] | None],
    space: DGSpace,
    t: float,
) -> Term | None:
    """Return a term with a number for its fields, with which it has the most diffusion at a time.

    None if there is none for all places: a coefficient changes sign, or the fields are not known.
    """
    if not term.fields:
        return term
    signs = [coefficient_sign(factor.coefficient, factor.axis, space) for factor in term.factors]
    sign, values = term.scale * float(term.time(t)) * math.prod(signs), field_range(term)
    if values is None or 0.0 in signs:
        return None
    value = values[1] if sign > 0.0 else values[0]
    return replace(term, scale=term.scale * value, fields=())


def well_posed_until(
    terms: Sequence[Term],
    space: DGSpace,
    run: tuple[float, float],
    at_points: Sequence[PointwiseTerm] = (),
) -> float | None:
    """Return until when a PDE is known to be well-posed that is well-posed in a run.

    Parameters
    ----------
    terms, space, run
        As of `refuse_backward_diffusion`.
    at_points : sequence of PointwiseTerm
        The pointwise terms.

    Returns
    -------
    float or None
        At most about 1000 times the run's length. None if the diffusion does not depend on time, or
        each function of time decides alone, as `only_diffusion` marks its term.
    """
    orders = [_order_along(term) for term in terms]
    mixed = any(len(own) > 1 and sum(own.values()) == 2 for own in orders)
    alone = only_diffusion(terms, space)
    if not any(_in_time(term, space.axes) for term in at_points) and not any(
        own and sum(own.values()) % 2 == 0 and not term.time.is_constant and (mixed or not marked)
        for term, own, marked in zip(terms, orders, alone, strict=True)
    ):
        return None
    begin, known = float(run[0]), float(run[1])
    for _ in range(_DOUBLINGS):
        if not _is_forward(terms, at_points, space, (known, 2.0 * known - begin)):
            break
        known = 2.0 * known - begin
    else:
        return known
    first, length = known, known - begin
    for _ in range(_HALVINGS):
        length *= 0.5
        if _is_forward(terms, at_points, space, (first, known + length)):
            known += length
    return known


def _is_forward(
    terms: Sequence[Term],
    at_points: Sequence[PointwiseTerm],
    space: DGSpace,
    run: tuple[float, float],
) -> bool:
    """Return whether the diffusion is defined and not backward in a run."""
    try:
        with np.errstate(over="raise", invalid="raise"):
            refuse_backward_diffusion(terms, space, run)
        refuse_backward_diffusion_at_points(at_points, space.axes, run)
    except (ValueError, FloatingPointError):  # a table that ends, or a number that overflows
        return False
    return True


def _order_along(term: Term) -> dict[Axis, int]:
    """Return the number of derivatives of a term along each axis; none for a penalty."""
    orders: dict[Axis, int] = {}
    for factor in term.factors:
        if factor.kind == "penalty":
            return {}
        if factor.kind != "mass":
            orders[factor.axis] = orders.get(factor.axis, 0) + 1
    return orders


def _refuse_negative(
    terms: Sequence[Term],
    chosen: Sequence[int],
    axes: Sequence[Axis],
    orders: Sequence[dict[Axis, int]],
    space: DGSpace,
    run: tuple[float, float],
    without_fields: Sequence[Term] = (),
) -> None:
    """Raise if the matrix K of the coefficients of chosen terms has a negative eigenvalue.

    ``without_fields`` are the chosen terms with numbers for their fields, if they have any.
    """
    used = [axis for axis in axes if any(axis in orders[k] for k in chosen)]
    if not used:
        return
    samples = _samples(without_fields or [terms[k] for k in chosen], space, run)
    K = _matrices(samples, [orders[k] for k in chosen], used)
    lowest, directions = np.linalg.eigh(_scaled(K))
    worst = int(np.argmin(lowest[:, 0]))
    if lowest[worst, 0] >= -_ROUNDING:
        return
    indices = np.unravel_index(worst, [places.size for _, places, _ in samples])
    where = ", ".join(
        f"{axis.name if axis else 't'} = {places[index]:.6g}"
        for (axis, places, _), index in zip(samples, indices, strict=True)
        if places.size > 1
    )
    along = np.abs(directions[worst, :, 0]) > _ROUNDING
    names = [axis.name for axis, is_in in zip(used, along, strict=True) if is_in]
    concerned = [k for k in chosen if any(axis.name in names for axis in orders[k])]
    texts = [f"terms[{k}], {term_text(terms[k])}" for k in concerned]
    what, fault = _value_text(K[worst][np.ix_(along, along)], names, orders[chosen[0]])
    at = (f" at {where}" if where else "") + (" for the initial state" if without_fields else "")
    until = ". A run that ends before needs its until=, also in discretize"
    more = until if samples[0][1].size > 1 else ""
    raise ValueError(f"{what}{at}, {fault}: {'; '.join(texts)}. {_ADVICE}{more}")


def _matrices(
    samples: Sequence[_Samples], orders: Sequence[dict[Axis, int]], used: Sequence[Axis]
) -> NDArray[np.float64]:
    """Return K of all combinations of places and times, (combinations, axes, axes)."""
    values = np.ones((len(orders), 1))
    for _, _, own in samples:
        values = (values[:, :, None] * own[:, None, :]).reshape(len(orders), -1)
    K = np.zeros((values.shape[1], len(used), len(used)))
    for order, own in zip(orders, values, strict=True):
        ends = [used.index(axis) for axis in order]
        # c ∂^(2m)f/∂x^(2m) has growing waves for c < 0 if m is odd, for c > 0 if m is even
        half = 0.5 * own if sum(order.values()) % 4 == 2 else -0.5 * own
        K[:, ends[0], ends[-1]] += half
        K[:, ends[-1], ends[0]] += half
    return K


def _scaled(K: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return K_ij / √(s_i s_j), with the largest diffusivity s_i along each axis.

    So small diffusivities along one axis are not lost beside large ones along another.
    """
    scales = np.abs(np.diagonal(K, axis1=1, axis2=2)).max(axis=0)
    bare = scales == 0.0  # an axis with mixed derivatives only
    scales[bare] = np.abs(K).max(axis=(0, 2))[bare]
    roots = np.sqrt(np.where(scales == 0.0, 1.0, scales))
    return np.asarray(K / roots[:, None] / roots)


def _value_text(
    K: NDArray[np.float64], names: Sequence[str], order_along: dict[Axis, int]
) -> tuple[str, str]:
    """Return texts: a negative coefficient, or a matrix, and what is wrong with it."""
    order = sum(order_along.values())
    if order > 2:
        value = K[0, 0] if order % 4 == 2 else -K[0, 0]
        what = f"the coefficient of the derivative of order {order} along {names[0]!r}"
        return f"{what} is {value:.6g}", "a sign with which short waves grow"
    if len(names) == 1:
        return f"the diffusivity along {names[0]!r} is {K[0, 0]:.6g}", "less than 0"
    rows = ", ".join(f"[{', '.join(f'{entry:.6g}' for entry in row)}]" for row in K)
    what = f"the matrix of diffusion along {', '.join(names)} is [{rows}]"
    return what, "which has a negative eigenvalue"


def _samples(terms: Sequence[Term], space: DGSpace, run: tuple[float, float]) -> list[_Samples]:
    """Return the factors of terms in time, then along each axis, each distinct value once.

    There are not many more than `_MAX_PLACES` combinations of them.
    """
    times = np.linspace(*run, 1 if all(term.time.is_constant for term in terms) else _TIMES)
    in_time = [term.scale * np.broadcast_to(term.time(times), times.shape) for term in terms]
    found = [_distinct(None, times, np.array(in_time))]
    for axis in space.axes:
        along = [[f.coefficient for f in term.factors if f.axis == axis] for term in terms]
        varies = any(callable(function) for functions in along for function in functions)
        level = min(max(space.level(axis), _LEVELS[0]), _LEVELS[1]) if varies else 0
        nodes = gauss_rule(projection_nodes(level, space.degree(axis)))[0] if varies else [0.0]
        places = cell_points(axis, level, nodes)
        values = np.ones((len(terms), places.size))
        for row, functions in zip(values, along, strict=True):
            for function in functions:
                row *= evaluate(function, places, f"function of {axis.name!r}").ravel()
        found.append(_distinct(axis, places.ravel(), values))
    number = int(_MAX_PLACES ** (1.0 / max(1, sum(places.size > 1 for _, places, _ in found))))
    return [_thinned(entry, number) for entry in found]


def _distinct(
    axis: Axis | None, places: NDArray[np.float64], values: NDArray[np.float64]
) -> _Samples:
    """Return one place of each set of places at which all factors are the same."""
    _, first = np.unique(values, axis=1, return_index=True)
    return axis, places[first], values[:, first]


def _thinned(samples: _Samples, number: int) -> _Samples:
    """Return at most about this many places, those of the extremes among them."""
    axis, places, values = samples
    if places.size <= number:
        return samples
    extremes = np.hstack([values.argmin(axis=1), values.argmax(axis=1)])
    even = np.linspace(0, places.size - 1, max(number - extremes.size, 2)).astype(int)
    kept = np.unique(np.hstack([extremes, even]))
    return axis, places[kept], values[:, kept]
