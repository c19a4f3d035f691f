"""Arguments that are one of several names, which completion finds without loading numerics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchkron.cli.arguments.known_names import GALLERY, PRECONDITIONERS, STEPPERS
from batchkron.cli.arguments.similar_names import did_you_mean
from batchkron.plugins import plugin_names

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["GALLERY_NAME", "PRECONDITIONER", "PROBLEM", "STEPPER", "stepper_option"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Name(click.ParamType):  # type: ignore[type-arg]
    """One of the names that are known, or that a plugin brings.

    ``known``: names of batchkron itself.
    ``group``: the entry points of plugins, see `batchkron.plugins`.
    """

    name = "name"

    def __init__(self, known: Iterable[str], group: str) -> None:
        self._known, self._group = tuple(known), group

    def names(self) -> tuple[str, ...]:
        """Return all names, own ones first."""
        more = plugin_names(self._group)
        return (*self._known, *(name for name in more if name not in self._known))

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name; fail with all names, and the most similar ones."""
        if value not in self._known and value not in self.names():
            names = self.names()
            listed = ", ".join(map(repr, names))
            self.fail(f"{value!r} is not one of {listed}.{did_you_mean(value, names)}", param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin as the word does."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]


class GalleryName(Name):
    """A name of the gallery, perhaps with parameters; which is checked by the command."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as it is."""
        return value


class ProblemName(GalleryName):
    """A name of the gallery, or a file."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return names and problem files; any file where none of them fits."""
        from click.shell_completion import CompletionItem

        found = super().shell_complete(ctx, param, incomplete)
        here = [str(path) for path in Path().glob("*.h5") if path.name.startswith(incomplete)]
        found += [CompletionItem(path) for path in sorted(here)]
        return found or [CompletionItem(incomplete, type="file")]


STEPPER = Name(STEPPERS, "batchkron.steppers")
PRECONDITIONER = Name(PRECONDITIONERS, "batchkron.preconditioners")
GALLERY_NAME = GalleryName(GALLERY, "batchkron.problems")
PROBLEM = ProblemName(GALLERY, "batchkron.problems")


def stepper_option(text: str) -> Callable[[_Command], _Command]:
    """Return the option --stepper, which --method is another name of, with its help text."""
    names = ("--stepper", "--method", "stepper")
    return click.option(
        *names, type=STEPPER, metavar="METHOD", help=text, multiple=True, callback=_only_one
    )


def _only_one(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Return the value of an option that may be given more than once; fail if values differ."""
    if len(set(values)) > 1:
        given = " and ".join(map(repr, values))
        raise click.BadParameter(f"{given} are given; expected one method", ctx, param)
    return values[0] if values else None
