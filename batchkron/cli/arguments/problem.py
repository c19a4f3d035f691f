"""The problem argument of a command: a file, or a name of the gallery with its options."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from batchkron.cli.arguments.name_types import GALLERY_NAME
from batchkron.cli.arguments.parameters import levels
from batchkron.cli.arguments.similar_names import did_you_mean
from batchkron.cli.failure import CommandError, usage_errors

if TYPE_CHECKING:
    from batchkron.problems import LinearProblem, Problem

__all__ = [
    "AnyProblem",
    "ProblemArgument",
    "chosen_problem",
    "default_method",
    "gallery_options",
    "operator_option",
]

AnyProblem: TypeAlias = "Problem | LinearProblem"
"""What a file may hold."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class ProblemArgument:
    """The problem that a command line names.

    ``word``: the name of the problem of the gallery, or the path as given.
    ``path``: the problem file; None for a problem of the gallery.
    ``settings``: ``level``, ``degree``, ``grid`` and parameters of a problem of the gallery, if
      they were given.
    """

    word: str
    path: Path | None
    settings: dict[str, Any]

    def beside(self, suffix: str) -> Path:
        """Return the default name of an output.

        ``suffix``: the suffix, such as ".result.h5".

        Returns the stem of the problem file in the same folder, or the name of the problem of the
        gallery in the current folder, with the suffix.
        """
        if self.path is None:
            return Path(self.word + suffix)
        return self.path.with_name(self.path.stem + suffix)

    def read(
        self, method: Any = None, device: str = "cpu", form: str | None = None
    ) -> Any:  # a union of both kinds would have the attributes of neither
        """Load or make the problem.

        ``method``: the time stepper for which a problem of the gallery chooses its step.
        ``device`` ({"cpu", "cuda"}): the device of the problem's arrays.
        ``form`` ({"sweep", "batch", "dense"}): the form of the operator.

        Raises `CommandError` if the settings do not fit the problem of the gallery, or the form
        does not fit the problem. `ProblemFileError`, `OSError` if the file is not valid, or cannot
        be read. `BackendUnavailableError` if there is no such device.
        """
        import numpy as np

        from batchkron.operators import on_device
        from batchkron.problems import gallery, load_problem

        if self.path is not None:
            return _of_form(load_problem(self.path, device=device), form)
        on_device(np.zeros(0), device)  # raises before any work if there is no such device
        with usage_errors():
            made = gallery.make(self.word, **self.settings, method=method).to(device)
        return _of_form(made, form)


def _of_form(problem: AnyProblem, form: str | None) -> AnyProblem:
    """Return the problem with its operator in the given form; None leaves it unchanged."""
    from batchkron.problems import LinearProblem

    if form is None:
        return problem
    if isinstance(problem, LinearProblem):
        raise CommandError(
            f"--operator is for PDEs on grids, and {problem.name} is a batch list, which has one "
            "form; leave it out."
        )
    with usage_errors((ValueError,)):
        return problem.with_form(form)


def default_method(problem: AnyProblem, given: str | None) -> Any:
    """Return the time stepper of a run.

    Raises `CommandError` if none is given, and the problem has none; or if it is a plugin that does
    not load.
    """
    if given is not None:
        from batchkron.solvers import steppers

        with usage_errors((ValueError,)):
            steppers.get(given)
        return given
    if problem.stepper is None:
        raise CommandError(
            f"{problem.name} does not say how it is stepped in time; give --stepper, such as rk4."
        )
    return problem.stepper.method


def chosen_problem(
    word: str,
    degree: int | None,
    level: int | tuple[int, ...] | None,
    grid: str | None,
    *,
    files: bool = True,
) -> ProblemArgument:
    """Return the problem that the argument of a command names.

    ``word``: a name of the gallery, perhaps with parameters, as
      ``landau-1x1v:k=0.4,amplitude=0.1``; otherwise a path.
    ``degree``, ``level``, ``grid``: the values of `gallery_options`.
    ``files``: whether a path is allowed.

    Raises `CommandError` if it is neither a name nor a file, a parameter is wrong, or the options
    are given with a file.
    """
    given = {"degree": degree, "level": level, "grid": grid}
    settings = {name: value for name, value in given.items() if value is not None}
    name, colon, rest = word.partition(":")
    if name in GALLERY_NAME.names():  # which loads no plugin
        return ProblemArgument(name, None, settings | (_parameters(name, rest) if colon else {}))
    if not files or not os.path.lexists(word):
        raise CommandError(_unknown(word, files))
    if os.path.isdir(word):
        raise CommandError(f"{word} is a folder; expected a problem file or a name of the gallery.")
    if settings:
        raise CommandError(
            f"--{next(iter(settings))} is for names of the gallery; {word} is a file, whose grid "
            f"and degree are fixed. Make another file with 'batchkron make'."
        )
    return ProblemArgument(word, Path(word), {})


def _parameters(name: str, text: str) -> dict[str, float]:
    """Return the parameters of a problem of the gallery from ``k=0.4,amplitude=0.1``."""
    from batchkron.problems import gallery

    found: dict[str, float] = {}
    with usage_errors((ValueError,)):  # of a plugin that does not load
        known = gallery.get(name).parameters
    for part in text.split(","):
        key, equals, value = part.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if key not in known or not equals or not math.isfinite(number):
            expected = ", ".join(f"{own}={default:g}" for own, default in known.items())
            raise CommandError(
                f"{part!r} is no parameter of {name}; expected "
                + (f"some of {expected}, with numbers" if known else "none, for it has none")
            )
        if key in found:
            raise CommandError(f"{name} has the parameter {key} twice in {text!r}; give it once")
        found[key] = number
    return found


def _unknown(word: str, files: bool) -> str:
    """Return an error text for an unknown name, with similar names."""
    names = GALLERY_NAME.names()
    hint = did_you_mean(word, names)
    if not files:
        return f"the gallery has no {word!r}; it has {', '.join(names)}.{hint}"
    return (
        f"{word!r} is neither a file nor a name of the gallery; see 'batchkron list' for the "
        f"names.{hint}"
    )


def operator_option(command: _Function) -> _Function:
    """Add the option --operator to a command."""
    return click.option(
        "--operator",
        type=click.Choice(["sweep", "batch", "dense"]),
        help="How to apply the operator: sweep goes along the fibres of the grid (default), batch "
        "multiplies each pair of coupled cells, dense is one matrix.",
    )(command)


def gallery_options(command: _Function) -> _Function:
    """Add the options --degree, --level and --grid to a command."""
    for option in (
        click.option(
            "--grid", type=click.Choice(["sparse", "full"]), help="Kind of grid (default: sparse)."
        ),
        click.option(
            "--level",
            metavar="LEVEL",
            callback=levels,
            help="Finest level, with 2^LEVEL cells per axis: one number such as 6, or one for each "
            "axis such as 6,5.",
        ),
        click.option("--degree", type=click.IntRange(min=0), help="Polynomial degree."),
    ):
        command = option(command)
    return command
