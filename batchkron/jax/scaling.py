"""Powers of two that are taken out of matrices whose sizes, or products, would be out of range."""

from __future__ import annotations

import jax
import jax.numpy as jnp

__all__ = ["times_power_of_two", "unit_exponent"]


def unit_exponent(factor: jax.Array) -> jax.Array:
    """Return e of a matrix of size 2^e, 0 if it is of the ordinary sizes of `operators.scaling`.

    It has no gradient.
    """
    given = jax.lax.stop_gradient(factor)
    size = jnp.maximum(jnp.abs(given.real).max(initial=0), jnp.abs(given.imag).max(initial=0))
    exponent = jnp.frexp(size)[1] - 1
    is_extreme = jnp.isfinite(size) & (jnp.abs(exponent) > jnp.finfo(size.dtype).maxexp // 8)
    return jnp.where(is_extreme, exponent, 0)


def times_power_of_two(x: jax.Array, exponent: jax.Array) -> jax.Array:
    """Compute 2^exponent · x, by two factors, since one may be out of range."""
    half = exponent // 2
    one = jnp.ones((), x.real.dtype)
    return x * jnp.ldexp(one, half) * jnp.ldexp(one, exponent - half)
