"""How several right-hand sides lie in an array: named by the caller, never guessed."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchkron.arrays import array_module, as_array

from ...products import Vector, refuse_complex

_SHAPES = {
    None: "(N,) or (N, 1), one right-hand side",
    "columns": "(N, K), a right-hand side in each column",
    "leading": "(..., N), a right-hand side along the last axis",
}


def check_layout(batched: str | None) -> None:
    """Raise ValueError unless ``batched`` names a layout."""
    if batched not in _SHAPES:
        raise ValueError(f"batched is {batched!r}; expected None, 'columns' or 'leading'.")


def as_systems(
    array: Any, name: str, batched: str | None, dtype: np.dtype[Any] | None, module: Any = None
) -> Vector:
    """Return right-hand sides along the last axis, one for each system: (..., N).

    They are converted to ``dtype`` if that is given, and may share memory with the array, which
    has to be one of ``module``, NumPy or CuPy. ValueError if it has another number of axes,
    TypeError if it is complex and ``dtype`` is not, or it is elsewhere.
    """
    given = as_array(array, name, array_module(array) if module is None else module)
    if dtype is not None:
        refuse_complex(name, given.dtype, dtype)
        given = given.astype(dtype, copy=False)
    if batched is None:
        fits = given.ndim == 1 or (given.ndim == 2 and given.shape[1] == 1)
        rows = given.reshape(-1) if fits else given
    elif batched == "columns":
        fits, rows = given.ndim == 2, given.T
    else:
        fits, rows = given.ndim >= 1, given
    if not fits:
        raise ValueError(
            f"{name} has shape {given.shape}; expected {_SHAPES[batched]}. batched='columns' is "
            "for (N, K), batched='leading' for (..., N)."
        )
    return rows
