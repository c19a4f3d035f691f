"""What users give: attributes that objects may have or not, and keywords by other names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MemberDescriptorType
from typing import Any, ParamSpec, TypeVar

__all__ = ["attribute", "has_attribute", "is_of_class", "names_meant"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def attribute(owner: object, name: str, default: Any = None) -> Any:
    """Return an attribute of an object, or the default if it has none of this name.

    ``getattr`` with a default takes an AttributeError that is raised within a property for a
    missing property. Here it is raised, as from any other use of the property.

    Examples
    --------
    >>> attribute(3, "numerator"), attribute(3, "length", "none")
    (3, 'none')
    """
    return getattr(owner, name) if is_of_class(owner, name) else getattr(owner, name, default)


def has_attribute(owner: object, name: str) -> bool:
    """Whether an object has an attribute; a property of its class is not evaluated."""
    return is_of_class(owner, name) or hasattr(owner, name)


def is_of_class(owner: object, name: str) -> bool:
    """Whether an object has an attribute of its class, other than a slot, which may be unset."""
    own = getattr(type(owner), name, None)
    return own is not None and not isinstance(own, MemberDescriptorType)


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
