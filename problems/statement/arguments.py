"""Checks of the arguments of `PDE`, each converted to the one form in which it is stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .axis import Axis
from .bgk import gain_with_position
from .boundary import FROM_EXACT
from .coefficients import Function
from .collisions import with_position
from .function_checks import check_function
from .gains import MaxwellianGain
from .number_checks import is_number
from .separable import Separable, SeparableAt, SeparableFunction, separable_parts
from .terms import Term, flatten_terms

__all__ = ["axes_of", "exact_of", "initial_of", "sources_of", "terms_of", "volumes_of"]


def axes_of(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Return the axes as a tuple.

    Raises
    ------
    TypeError, ValueError
        If there are none, one is not an Axis, or two have the same name.
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
    terms: Term | Iterable[Any], axes: tuple[Axis, ...], sources: object
) -> tuple[tuple[Term, ...], tuple[MaxwellianGain, ...]]:
    """Return a term, or the terms of nested sequences, as one flat tuple, and the gains among them.

    Raises
    ------
    TypeError, ValueError
        If one is not a term or acts along an axis that the PDE does not have, or if there are
        neither terms nor sources.
    """
    given = flatten_terms(terms)
    flat = tuple(with_position(term, axes) for term in given if isinstance(term, Term))
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
    return flat, gains


def exact_of(
    exact: SeparableFunction | SeparableAt | Callable[..., Any] | None, axes: tuple[Axis, ...]
) -> tuple[tuple[Separable, ...], Callable[..., Any] | None]:
    """Return the exact solution as (separable parts, None), or ((), function) if it is a callable.

    Without an exact solution it is ((), None).

    Raises
    ------
    TypeError, ValueError
        If it is of another kind or names an axis that the PDE does not have.
    """
    if exact is None:
        return (), None
    if isinstance(exact, SeparableAt):
        return (), exact.on(axes)
    if callable(exact):
        return (), exact
    return separable_parts("exact", exact, axes), None


def initial_of(
    initial: SeparableFunction | str | None,
    axes: tuple[Axis, ...],
    exact: tuple[Separable, ...],
    exact_function: Callable[..., Any] | None,
) -> tuple[Separable, ...] | None:
    """Return the separable parts of the initial state; None if it is that of ``exact_function``.

    Raises
    ------
    TypeError, ValueError
        If it is of another kind, names an axis that the PDE does not have, or is left out or "from
        exact" without an exact solution.
    """
    if initial is None and not (exact or exact_function):
        raise ValueError(
            "initial is left out, and there is no exact solution to take it from; expected "
            "initial=Separable(...), a sum of them or a number, such as initial=0.0 where f is "
            "zero at t0"
        )
    if isinstance(initial, str) and (initial != FROM_EXACT or not (exact or exact_function)):
        raise ValueError(
            f"initial is {initial!r}; the only word for it is {FROM_EXACT!r}, and that needs "
            "exact=..."
        )
    if initial is None or isinstance(initial, str):
        return None if exact_function else exact
    return separable_parts("initial", initial, axes)


def sources_of(
    sources: SeparableFunction | Sequence[SeparableFunction] | str,
    axes: tuple[Axis, ...],
    exact: tuple[Separable, ...],
) -> tuple[Separable, ...] | str:
    """Return the separable parts of the sources, or the string "from exact".

    Raises
    ------
    TypeError, ValueError
        If they are of another kind, name an axis that the PDE does not have, or are "from exact"
        without an exact solution of separable parts.
    """
    if isinstance(sources, Sequence) and not isinstance(sources, str):
        return tuple(
            part
            for k, entry in enumerate(sources)
            for part in separable_parts(f"sources[{k}]", entry, axes)
        )
    if not isinstance(sources, str):
        return separable_parts("sources", sources, axes)
    if sources != FROM_EXACT or not exact:
        raise ValueError(
            f"sources is {sources!r}; the only word for it is {FROM_EXACT!r}, and that needs "
            "exact=Separable(...) or a sum of them"
        )
    return sources


def volumes_of(
    volume: Mapping[Axis, Function] | Mapping[str, Function], axes: tuple[Axis, ...]
) -> dict[Axis, Function]:
    """Return the volume elements by axis, leaving out those that are the number 1.

    Raises
    ------
    TypeError, ValueError
        If ``volume`` is not a mapping of the PDE's axes (or their names) to functions of one array
        or positive numbers.
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
