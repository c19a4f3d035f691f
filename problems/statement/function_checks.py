"""Check that a user's function of one coordinate can be called with an array."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

__all__ = ["arising_in", "check_function"]


@contextmanager
def arising_in(what: str) -> Iterator[None]:
    """Add to an error about a user's function which argument the function is in."""
    try:
        yield
    except (TypeError, ValueError) as error:
        error.add_note(f"The function is in {what}.")
        raise


def check_function(what: str, function: object, advice: str) -> None:
    """Refuse a function that cannot take one array, judged by its signature without calling it.

    These are functions of `math` or `cmath`, or of another number of arguments than one. Numbers,
    and functions whose signature Python cannot tell, are accepted. The text of the error begins
    with ``what``; that for a function of several coordinates ends with ``advice``: what to write
    instead.
    """
    if not callable(function):
        return
    # functools.wraps gives a wrapper around math.sin the module "math" and the signature of
    # math.sin, although it may take arrays. So check the type too, and do not follow the wrapper.
    if isinstance(function, types.BuiltinFunctionType) and function.__module__ in ("math", "cmath"):
        name = function.__name__
        instead = f"np.{name}" if hasattr(np, name) else "one of NumPy's"
        raise TypeError(
            f"{what} is {function.__module__}.{name}, which takes a single number; expected a "
            f"function of an array, {instead}"
        )
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(None)
    except TypeError:
        needed = [p.name for p in signature.parameters.values() if p.default is p.empty]
        raise TypeError(
            f"{what} is a function of ({', '.join(needed)}); expected a function of one array, "
            f"the coordinate. {advice}"
        ) from None
