"""Registers functions of several operations as one primitive, which some devices run as one call.

A `Composed` function says how it is made of operations that JAX knows. Where it is differentiated
or mapped, JAX does so with these operations; where it is compiled, it is one call if the device has
one, else the operations.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from batchkron.jax.multilinear import compiled, replaced
from batchkron.jax.targets import PLATFORMS

__all__ = ["Composed", "register_composed"]


class Composed(ABC):
    """A function of arrays, with parameters that are hashable and given by keyword."""

    name: str

    @abstractmethod
    def compose(self, *operands: jax.Array, **parameters: Any) -> list[jax.Array]:
        """Return the results by operations of JAX and other primitives."""

    @abstractmethod
    def shapes(self, *shapes: tuple[int, ...], **parameters: Any) -> list[tuple[int, ...]]:
        """Return the shapes of the results, which have the dtype of the first operand."""

    def transpose(
        self,
        places: Sequence[int],
        cotangents: Sequence[jax.Array],
        operands: Sequence[Any],
        **parameters: Any,
    ) -> Sequence[jax.Array]:
        """Return the transpose of the function of the operands at some places, where it is linear.

        Those operands are not arrays, but have the ``aval`` of one. There is a cotangent of each
        result.
        """
        avals = [operands[k].aval for k in places]
        unknown = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
        linear = self._at(places, operands, parameters)
        found: Sequence[jax.Array] = jax.linear_transpose(linear, *unknown)(list(cotangents))
        return found

    def lowering(self, platform: str) -> Any:
        """Return JAX's rule by which the primitive is compiled for a platform."""
        return mlir.lower_fun(self.compose)

    def _at(self, places: Sequence[int], operands: Sequence[Any], parameters: Any) -> Any:
        """Return the function of the operands at some places."""

        def of_some(*values: Any) -> list[jax.Array]:
            return self.compose(*replaced(operands, places, values), **parameters)

        return of_some


def register_composed(function: Composed) -> Primitive:
    """Make a function a primitive that JAX differentiates, maps and compiles.

    Result: ``bind`` returns a list of results.
    """
    made = Primitive(f"batchkron_{function.name}")
    made.multiple_results = True

    def results(*avals: Any, **parameters: Any) -> list[ShapedArray]:
        shapes = function.shapes(*(aval.shape for aval in avals), **parameters)
        return [ShapedArray(shape, avals[0].dtype) for shape in shapes]

    def derivative(operands: Any, directions: Any, **parameters: Any) -> tuple[Any, Any]:
        moved = [k for k, one in enumerate(directions) if not isinstance(one, ad.Zero)]
        pairs = ([values[k] for k in moved] for values in (operands, directions))
        _, changes = jax.jvp(function._at(moved, operands, parameters), *pairs)
        return made.bind(*operands, **parameters), changes

    def transpose(cotangents: Any, *operands: Any, **parameters: Any) -> list[Any]:
        places = [k for k, operand in enumerate(operands) if ad.is_undefined_primal(operand)]
        found: Sequence[Any]
        if all(isinstance(one, ad.Zero) for one in cotangents):
            found = [ad.Zero(operands[k].aval) for k in places]
        else:
            given = [ad.instantiate_zeros(one) for one in cotangents]
            found = function.transpose(places, given, operands, **parameters)
        return replaced([None] * len(operands), places, found)

    def batch(operands: Any, axes: Any, **parameters: Any) -> tuple[list[jax.Array], list[int]]:
        mapped = jax.vmap(functools.partial(function.compose, **parameters), tuple(axes))
        found = mapped(*operands)
        return found, [0] * len(found)

    made.def_impl(compiled(made))
    made.def_abstract_eval(results)
    ad.primitive_jvps[made] = derivative
    ad.primitive_transposes[made] = transpose
    batching.primitive_batchers[made] = batch
    for platform in PLATFORMS:
        mlir.register_lowering(made, function.lowering(platform), platform=platform)
    return made
