"""Options that say what is shown of a state: names of quantities, places of axes, kept axes."""

from __future__ import annotations

import math

import click

__all__ = ["name_list", "places", "time_interval"]


def name_list(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Return names from texts such as "mass,energy", one for each time that the option is given.

    Raises `click.BadParameter` if a name is empty or occurs twice.
    """
    if not value:
        return ()
    text = ",".join(dict.fromkeys(value))
    names = tuple(word.strip() for word in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise click.BadParameter(
            f"{text!r} is no list of names; expected different ones with commas between them, "
            f"such as mass,energy."
        )
    return names


def places(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> dict[str, float]:
    """Return coordinates of axes from texts such as "v2=0,v3=0.5", one for each use of the option.

    Raises `click.BadParameter` if the text is no such list.
    """
    found: dict[str, float] = {}
    text = ",".join(dict.fromkeys(value))
    for word in text.split(",") if value else []:
        name, equals, number = (part.strip() for part in word.partition("="))
        try:
            at = float(number)
        except ValueError:
            at = math.nan
        if not name or not equals or not math.isfinite(at) or name in found:
            raise click.BadParameter(
                f"{text!r} is no list of places; expected a number for each axis, such as "
                f"v2=0,v3=0.5."
            )
        found[name] = at
    return found


def time_interval(
    context: click.Context, parameter: click.Parameter, value: tuple[float, float] | None
) -> tuple[float, float] | None:
    """Return two times if they are finite and ascending.

    Raises `click.BadParameter` if they are not.
    """
    if value is not None and not (value[0] < value[1] and all(map(math.isfinite, value))):
        raise click.BadParameter(f"{value[0]:g} {value[1]:g} are no two ascending times.")
    return value
