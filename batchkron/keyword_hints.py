"""Errors for keyword arguments that a function does not have, with the names that are meant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import ParamSpec, TypeVar

__all__ = ["names_meant"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def names_meant(other: Mapping[str, str]) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Return a decorator: an unknown keyword is a TypeError that says which name is meant.

    ``other`` (mapping of str to str): names that other libraries have for arguments, each with the
      name here; for others the most similar name is taken.
    """

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        known = [name for name in inspect.signature(function).parameters if name != "self"]
        called = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            for name in kwargs:
                if name not in known:
                    raise TypeError(_text(called, name, known, other))
            return function(*args, **kwargs)

        return call

    return decorate


def _text(called: str, name: str, known: list[str], other: Mapping[str, str]) -> str:
    close = [other[name]] if name in other else get_close_matches(name, known, 2, 0.6)
    hint = f"did you mean {' or '.join(close)}?" if close else f"it has {', '.join(known)}"
    return f"{called}() has no argument {name!r}; {hint}"
