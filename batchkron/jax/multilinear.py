"""Registers functions that are linear in each of their arguments as primitives of JAX.

A function y = F(a_1, …, a_n) that is linear in each a_k has the derivative

    dy = F(da_1, a_2, …, a_n) + … + F(a_1, …, a_{n-1}, da_n)

in the directions da_k. Each term is linear in one direction; the transpose of the map
da_k ↦ F(…, da_k, …) is what `Multilinear.transpose` computes, by operations that JAX can
differentiate, among them calls of F. So there are forward and reverse derivatives of all orders.
JAX's transposes do not conjugate, and neither do its gradients of real losses in complex arguments:
that of |z|² at 1 + 2i is 2 - 4i.

Primitives are compiled, mapped (`jax.vmap`) and differentiated by rules; a `jax.custom_vjp` would
have no forward derivatives, which lineax and `jax.hessian` need.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from batchkron.jax.targets import PLATFORMS, lowering

__all__ = [
    "Function",
    "Multilinear",
    "compiled",
    "primitive",
    "register",
    "replaced",
    "sum_of_terms",
]


class Function(ABC):
    """What JAX has to know of a primitive. Parameters are hashable, and given by keyword."""

    name: str

    @abstractmethod
    def shape(self, *shapes: tuple[int, ...], **parameters: Any) -> tuple[int, ...]:
        """Return the shape of the result, which has the dtype of the first operand."""

    @abstractmethod
    def batch(
        self, size: int, operands: Sequence[Any], axes: Sequence[int | None], **parameters: Any
    ) -> tuple[jax.Array, int]:
        """Return the results for operands with a mapped axis each, or None, and their axis."""

    def lowering(self, platform: str) -> Any:
        """Return JAX's rule by which the primitive is compiled for a platform."""
        return lowering(self.name, platform)


class Multilinear(Function):
    """A function F(a_1, …, a_n; lists) that is linear in each a_k.

    The operands are the a_k and after them the lists, which are arrays of integers. The attribute
    ``lists`` says how many there are.
    """

    lists: int = 0

    @abstractmethod
    def transpose(
        self, k: int, cotangent: jax.Array, operands: Sequence[Any], **parameters: Any
    ) -> jax.Array:
        """Return the transpose of da_k ↦ F(…, da_k, …), applied to a cotangent of y.

        ``operands[k]`` is not an array, but has the ``aval`` of one.
        """

    def derivative(
        self,
        made: Primitive,
        places: Sequence[int],
        operands: Sequence[Any],
        directions: Sequence[Any],
        **parameters: Any,
    ) -> jax.Array:
        """Return the derivative by operations that are linear in the directions.

        ``made`` is the function's primitive; there is a direction for each operand at ``places``.
        """
        multiply = functools.partial(made.bind, **parameters)
        return sum_of_terms(multiply, places, operands, directions)


def replaced(operands: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """Return operands of which those at some places are others."""
    found = list(operands)
    for k, value in zip(places, values, strict=True):
        found[k] = value
    return found


def sum_of_terms(
    function: Callable[..., jax.Array],
    places: Sequence[int],
    operands: Sequence[Any],
    directions: Sequence[Any],
) -> jax.Array:
    """Return Σ F(…, da_k, …) over the places k, of which there is one or more."""
    total = None
    for k, direction in zip(places, directions, strict=True):
        term = function(*replaced(operands, [k], [direction]))
        total = term if total is None else total + term
    return cast(jax.Array, total)


def compiled(made: Primitive) -> Callable[..., Any]:
    """Return the function by which a primitive is called outside of compiled functions."""

    @functools.cache
    def with_parameters(parameters: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
        return jax.jit(functools.partial(made.bind, **dict(parameters)))

    def run(*operands: Any, **parameters: Any) -> Any:
        function = with_parameters(tuple(sorted(parameters.items())))
        if not jax.config.jax_disable_jit:
            return function(*operands)
        with jax.disable_jit(False):  # otherwise the function would call this one again
            return function(*operands)

    return run


def primitive(function: Function) -> Primitive:
    """Make a function a primitive that JAX compiles and maps.

    ``function``: XLA calls what `batchkron.jax.targets` has for its name.

    Result: ``bind`` is called with the operands, and parameters by keyword.
    """
    made = Primitive(f"batchkron_{function.name}")

    def result(*avals: Any, **parameters: Any) -> ShapedArray:
        shape = function.shape(*(aval.shape for aval in avals), **parameters)
        return ShapedArray(shape, avals[0].dtype)

    def batch(operands: Any, axes: Any, **parameters: Any) -> tuple[jax.Array, int]:
        pairs = zip(operands, axes, strict=True)
        size = next(operand.shape[axis] for operand, axis in pairs if axis is not None)
        return function.batch(size, operands, axes, **parameters)

    made.def_impl(compiled(made))
    made.def_abstract_eval(result)
    batching.primitive_batchers[made] = batch
    for platform in PLATFORMS:
        mlir.register_lowering(made, function.lowering(platform), platform=platform)
    return made


def register(function: Multilinear) -> Primitive:
    """Make a function a primitive that JAX also differentiates, in all directions and orders."""
    made = primitive(function)

    def derivative(operands: Any, directions: Any, **parameters: Any) -> tuple[Any, Any]:
        y = made.bind(*operands, **parameters)
        numbers = range(len(operands) - function.lists)
        places = [k for k in numbers if not isinstance(directions[k], ad.Zero)]
        if not places:
            return y, ad.Zero.from_primal_value(y)
        given = [directions[k] for k in places]
        return y, function.derivative(made, places, operands, given, **parameters)

    def transpose(cotangent: Any, *operands: Any, **parameters: Any) -> list[Any]:
        (k,) = (k for k, operand in enumerate(operands) if ad.is_undefined_primal(operand))
        found: list[Any] = [None] * len(operands)
        if isinstance(cotangent, ad.Zero):
            found[k] = ad.Zero(operands[k].aval)
        else:
            found[k] = function.transpose(k, cotangent, operands, **parameters)
        return found

    ad.primitive_jvps[made] = derivative
    ad.primitive_transposes[made] = transpose
    return made
