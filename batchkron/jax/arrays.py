"""Checks of arrays of JAX, when a function is called or traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["batch_systems", "checked_arrays", "in_front", "numbered"]

_DTYPES = ("float32", "float64", "complex64", "complex128")


def checked_arrays(arrays: Sequence[Any], names: Callable[[int], str]) -> list[jax.Array]:
    """Return arrays as JAX's after checking that they have one dtype that kernels take.

    ``arrays`` (sequence of jax.Array or numpy.ndarray): at least one. NumPy's become JAX's, which
      makes float64 float32 unless ``jax_enable_x64`` is set.
    ``names``: returns the name of array number k, for errors.

    Raises `TypeError` if one is no array, or dtypes differ, or the dtype has no kernels.
    """
    found: list[jax.Array] = []
    for k, array in enumerate(arrays):
        if not isinstance(array, (jax.Array, np.ndarray)):
            raise TypeError(f"{names(k)} is a {type(array).__name__}; expected a jax.Array")
        found.append(jnp.asarray(array))
        if found[k].dtype != found[0].dtype:
            raise TypeError(
                f"{names(k)} has dtype {found[k].dtype}, but {names(0)} has {found[0].dtype}; "
                f"convert one with .astype(dtype)"
            )
    if found[0].dtype.name not in _DTYPES:
        raise TypeError(
            f"{names(0)} has dtype {found[0].dtype}; expected float32, float64, complex64 or "
            f"complex128"
        )
    return found


def in_front(array: jax.Array, axis: int | None, size: int) -> jax.Array:
    """Return an array with its mapped axis in front; with copies along one if it has none."""
    if axis is None:
        return jnp.broadcast_to(array, (size, *array.shape))
    return jnp.moveaxis(array, axis, 0)


def batch_systems(
    multiply: Callable[..., jax.Array],
    size: int,
    operands: Sequence[Any],
    axes: Sequence[int | None],
    **parameters: Any,
) -> tuple[jax.Array, int]:
    """Map a function of x (systems, outer, N, inner) and factors (systems or 1, rows, columns).

    ``multiply``: the function, of such operands and parameters.
    ``size``, ``operands``, ``axes``, ``**parameters``: as for `Function.batch`.

    Result: more vectors of each system where only x is mapped, else more systems.
    """
    x, factors = operands[0], operands[1:]
    systems = x.shape[0] if axes[0] is None else x.shape[1 if axes[0] == 0 else 0]
    if all(axis is None for axis in axes[1:]):  # more vectors of each system
        x = jnp.moveaxis(x, axes[0], 1)
        outer, *rest = x.shape[2:]
        y = multiply(x.reshape(systems, size * outer, *rest), *factors, **parameters)
        return y.reshape(systems, size, outer, *y.shape[2:]), 1
    x = in_front(x, axes[0], size)
    more = []
    for factor, axis in zip(factors, axes[1:], strict=True):
        if axis is None and factor.shape[0] == 1:
            more.append(factor)
            continue
        factor = in_front(factor, axis, size)
        factor = jnp.broadcast_to(factor, (size, systems, *factor.shape[2:]))
        more.append(factor.reshape(size * systems, *factor.shape[2:]))
    y = multiply(x.reshape(size * systems, *x.shape[2:]), *more, **parameters)
    return y.reshape(size, systems, *y.shape[1:]), 0


def numbered(*single: str, rest: str) -> Callable[[int], str]:
    """Return the names of arguments, of which those after the first ones are a sequence."""
    return lambda k: single[k] if k < len(single) else f"{rest}[{k - len(single)}]"
