"""Which functions of one coordinate can be called with an array."""

from __future__ import annotations

import inspect
import types

import numpy as np

__all__ = ["check_function"]


def check_function(what: str, function: object, advice: str) -> None:
    """Refuse a function that cannot take one array, as far as it shows without calling it.

    Parameters
    ----------
    what : str
        Which argument it is, for the text.
    function : object
        Anything; numbers and objects that do not tell their arguments pass.
    advice : str
        What to do about functions of several coordinates.

    Raises
    ------
    TypeError
        For functions of `math`, and those that need another number of arguments.
    """
    if not callable(function):
        return
    # functools.wraps gives a wrapper the module and the signature of what is inside it
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
