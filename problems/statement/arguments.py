"""Checks of the arguments of `PDE`, each converted to the one form in which it is stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from .axis import Axis
from .axis_names import with_named_axes
from .bgk import gain_with_position
from .boundary import FROM_EXACT
from .coefficients import Function
from .collisions import with_position
from .function_checks import check_function
from .functions import FunctionOfAxes, function_of_axes, is_function_of_axes
from .gains import MaxwellianGain
from .number_checks import is_number
from .pointwise import Pointwise, PointwiseTerm
from .pointwise_terms import damping_of, with_axes
from .separable import Separable, SeparableAt, SeparableFunction, separable_parts
from .terms import Term, mass

AnyTerm: TypeAlias = Term | MaxwellianGain | Pointwise | PointwiseTerm
"""What may be among the terms of a PDE."""

__all__ = ["AnyTerm", "axes_of", "exact_of", "initial_of", "sources_of", "terms_of", "volumes_of"]


def axes_of(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Return the axes as a tuple.

    Raises `TypeError`, `ValueError` if there are none, one is not an Axis, or two have the same
    name.
    """
    box = tuple(axes) if not isinstance(axes, Axis) else (axes,)
    if not box:
        raise ValueError("axes is empty; give at least one Axis")
    for k, axis in enumerate(box):
        if not isinstance(axis, Axis):
            raise TypeError(f"axes[{k}] must be an Axis, got {type(axis).__name__}")
    names = [axis.name for axis in box]
    if len(set(names)) < len(names):
        raise ValueError(f"axes are named {', '.join(names)}; every name may occur once only")
    return box


def terms_of(
    terms: AnyTerm | Iterable[Any], axes: tuple[Axis, ...], sources: object
) -> tuple[
    tuple[Term, ...], tuple[MaxwellianGain, ...], tuple[PointwiseTerm, ...], tuple[Term, ...]
]:
    """Return a term, or the terms of nested sequences, as flat tuples.

    They are the terms, among them the penalties of pointwise ones; the gains; the pointwise terms;
    and those that an electric field multiplies.

    Raises `TypeError`, `ValueError` if one is not a term or acts along an axis that the PDE does
    not have, or if there are neither terms nor sources.
    """
    given = with_named_axes(_flatten(terms), axes)
    at_points = tuple(
        mass(axes[0]) @ term if isinstance(term, Pointwise) else term
        for term in given
        if isinstance(term, (Pointwise, PointwiseTerm))
    )
    for at_point in at_points:
        with_axes(at_point, axes)  # refuses what is not possible
    damping = (damping_of(term, term.function.speed) for term in at_points)
    plain = (*given, *(term for term in damping if term is not None))
    flat = tuple(with_position(term, axes) for term in plain if isinstance(term, Term))
    gains = tuple(gain_with_position(g, axes) for g in given if isinstance(g, MaxwellianGain))
    if not given and isinstance(sources, (tuple, list)) and not sources:
        raise ValueError(
            "terms is empty and there are no sources, so that nothing changes f; give the terms of "
            "f_t = ..., or sources=0.0 where f_t = 0 is meant"
        )
    for k, term in enumerate(flat):
        for factor in term.factors:
            if factor.axis not in axes:
                raise ValueError(
                    f"terms[{k}] acts along {factor.axis}, which is not among the PDE's axes; "
                    f"these are {', '.join(map(str, axes))}"
                )
    plain_terms = tuple(term for term in flat if term.electric is None)
    return plain_terms, gains, at_points, tuple(term for term in flat if term.electric is not None)


def _flatten(terms: object) -> tuple[AnyTerm, ...]:
    """Return a term, or those of nested sequences, as one flat tuple."""
    if isinstance(terms, AnyTerm):
        return (terms,)
    if isinstance(terms, Iterable) and not isinstance(terms, (str, Mapping)):
        return tuple(term for entry in terms for term in _flatten(entry))
    raise TypeError(
        f"terms holds {type(terms).__name__}; expected div(...), grad(...), penalty(...), "
        "mass(...), laplacian(...), pointwise(...), chains of them with @, or sequences of these"
    )


def exact_of(
    exact: SeparableFunction | SeparableAt | Callable[..., Any] | str | None,
    axes: tuple[Axis, ...],
) -> tuple[tuple[Separable, ...], Callable[..., Any] | None]:
    """Return the exact solution as (separable parts, None), or ((), function) if it is a function.

    Without an exact solution it is ((), None).

    Raises `TypeError`, `ValueError` if it is of another kind, names an axis that the PDE does not
    have, takes other arguments, or is a text and no formula.
    """
    if exact is None:
        return (), None
    if isinstance(exact, SeparableAt):
        return (), exact.on(axes)
    if callable(exact) or isinstance(exact, str):
        function = function_of_axes("exact", exact, axes, in_time=True, always_in_time=True)
        in_order = None, (*(axis.name for axis in axes), "t")
        if callable(exact) and function.in_time and function.names in in_order:
            return (), exact
        return (), function
    return separable_parts("exact", exact, axes), None


def initial_of(
    initial: SeparableFunction | Callable[..., Any] | str | None,
    axes: tuple[Axis, ...],
    exact: tuple[Separable, ...],
    exact_function: Callable[..., Any] | None,
) -> tuple[Separable, ...] | FunctionOfAxes | None:
    """Return the separable parts of the initial state, or it as a function of all axes.

    It is None if it is that of ``exact_function``.

    Raises `TypeError`, `ValueError` if it is of another kind, names an axis that the PDE does not
    have, is a text and no formula, or is left out or "from exact" without an exact solution.
    """
    known = bool(exact) or exact_function is not None
    if initial is None and not known:
        raise ValueError(
            "initial is left out, and there is no exact solution to take it from; expected "
            "initial=Separable(...), a sum of them, a function of all axes or a number, such as "
            "initial=0.0 where f is zero at t0"
        )
    from_exact = isinstance(initial, str) and initial == FROM_EXACT
    if from_exact and not known:
        raise ValueError(f"initial is {initial!r}, and that needs exact=...")
    if initial is None or from_exact:
        return None if exact_function else exact
    if is_function_of_axes(initial):
        return function_of_axes("initial", initial, axes, in_time=False)  # type: ignore[arg-type]
    return separable_parts("initial", initial, axes)  # type: ignore[arg-type]


def sources_of(
    sources: SeparableFunction
    | Callable[..., Any]
    | str
    | Sequence[SeparableFunction | Callable[..., Any] | str],
    axes: tuple[Axis, ...],
    exact: tuple[Separable, ...],
) -> tuple[tuple[Separable, ...] | str, tuple[FunctionOfAxes, ...]]:
    """Return the separable parts of the sources, or "from exact", and those that are functions.

    Raises `TypeError`, `ValueError` if they are of another kind, name an axis that the PDE does not
    have, are texts and no formulas, or are "from exact" without an exact solution of separable
    parts.
    """
    if isinstance(sources, str) and sources == FROM_EXACT:
        if not exact:
            raise ValueError(
                f"sources is {sources!r}, and that needs exact=Separable(...) or a sum of them"
            )
        return sources, ()
    alone = isinstance(sources, str) or not isinstance(sources, Sequence)
    given: Sequence[Any] = [sources] if alone else sources  # type: ignore[assignment]
    parts: list[Separable] = []
    functions: list[FunctionOfAxes] = []
    for k, entry in enumerate(given):
        name = "sources" if alone else f"sources[{k}]"
        if is_function_of_axes(entry):
            functions.append(function_of_axes(name, entry, axes, in_time=True))
        else:
            parts.extend(separable_parts(name, entry, axes))
    return tuple(parts), tuple(functions)


def volumes_of(
    volume: Mapping[Axis, Function] | Mapping[str, Function], axes: tuple[Axis, ...]
) -> dict[Axis, Function]:
    """Return the volume elements by axis, leaving out those that are the number 1.

    Raises `TypeError`, `ValueError` if ``volume`` is not a mapping of the PDE's axes (or their
    names) to functions of one array or positive numbers.
    """
    if not isinstance(volume, Mapping):
        raise TypeError(
            f"volume is {type(volume).__name__}; expected a mapping of axes to functions, as in "
            "volume={r: lambda r: r**2}"
        )
    names = {axis.name: axis for axis in axes}
    found: dict[Axis, Function] = {}
    for key, function in volume.items():
        axis = names.get(key) if isinstance(key, str) else key
        if axis is None or axis not in axes:
            raise ValueError(
                f"volume names the axis {getattr(key, 'name', key)!r}, which the PDE does not "
                f"have; its axes are {', '.join(names)}"
            )
        if callable(function):
            check_function(
                f"the volume element of {axis.name!r}",
                function,
                "For a product g(x) h(y) use volume={x: g, y: h}",
            )
            found[axis] = function
            continue
        if not is_number(function):
            raise TypeError(
                f"the volume element of {axis.name!r} is {type(function).__name__}; expected a "
                "function of one array, or a number"
            )
        if not (math.isfinite(function) and function > 0.0):
            raise ValueError(
                f"the volume element of {axis.name!r} is {function}; expected a positive number"
            )
        if function != 1.0:
            found[axis] = float(function)
    return found
