"""Products with Kronecker products and their derivatives, as primitives of JAX."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir

from batchkron.backends.cpu.gradients import by_one_call
from batchkron.backends.cuda.interface.host import MAX_OF_KERNEL
from batchkron.jax.arrays import batch_systems, in_front
from batchkron.jax.composed import Composed, register_composed
from batchkron.jax.multilinear import Multilinear, register, sum_of_terms
from batchkron.jax.targets import lowering

__all__ = ["multiply", "multiply_mode"]


class _ModeGram(Multilinear):
    """sums[s, p, q] = Σ x[s, l, p, r] y[s, l, q, r] over l and r, for x and y of four axes."""

    name = "mode_gram"

    def shape(self, *shapes: tuple[int, ...], **parameters: Any) -> tuple[int, ...]:
        return shapes[0][0], shapes[0][2], shapes[1][2]

    def lowering(self, platform: str) -> Any:
        """By our kernel on a device, for small modes of real numbers; else by JAX."""
        by_kernel = super().lowering(platform)
        by_jax = mlir.lower_fun(self._by_jax, multiple_results=False)

        def lower(ctx: Any, *operands: Any, **parameters: Any) -> Any:
            x, y = ctx.avals_in
            is_small = max(x.shape[2], y.shape[2]) <= MAX_OF_KERNEL
            suits = platform == "cuda" and x.dtype.kind == "f" and is_small
            return (by_kernel if suits else by_jax)(ctx, *operands, **parameters)

        return lower

    @staticmethod
    def _by_jax(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.einsum("slpr,slqr->spq", x, y, precision=jax.lax.Precision.HIGHEST)

    def transpose(
        self, k: int, cotangent: jax.Array, operands: Sequence[Any], **parameters: Any
    ) -> jax.Array:
        return multiply(operands[1 - k], cotangent, transpose=k == 0)

    def batch(
        self, size: int, operands: Sequence[Any], axes: Sequence[int | None], **parameters: Any
    ) -> tuple[jax.Array, int]:
        """More rows or columns of each system where one operand is mapped, else more systems."""
        if None not in axes:
            more = []
            for operand, axis in zip(operands, axes, strict=True):
                moved = in_front(operand, axis, size)
                systems, *rest = moved.shape[1:]
                more.append(moved.reshape(size * systems, *rest))
            sums = mode_gram(*more)
            return sums.reshape(size, systems, *sums.shape[1:]), 0
        place = 0 if axes[1] is None else 1
        moved = jnp.moveaxis(operands[place], axes[place], 2)  # (systems, outer, size, rows, inner)
        systems, outer, _, rows, inner = moved.shape
        both = list(operands)
        both[place] = moved.reshape(systems, outer, size * rows, inner)
        sums = mode_gram(*both)
        split = (*sums.shape[: place + 1], size, rows, *sums.shape[place + 2 :])
        return sums.reshape(split), place + 1


class _KronMatmul(Multilinear):
    """y[s, m, :, r] = x[s, m, :, r] (A_1s ⊗ … ⊗ A_ds), for systems s that have factors each.

    The operands are x (systems, outer, ΠP, inner) and the factors (systems or 1, P_k, Q_k), or
    (…, Q_k, P_k) with ``transpose=True``, where A_k are their transposes.
    """

    name = "kron_matmul"

    def shape(self, *shapes: tuple[int, ...], **parameters: Any) -> tuple[int, ...]:
        systems, outer, _, inner = shapes[0]
        columns = 1 if parameters["transpose"] else 2
        return systems, outer, math.prod(shape[columns] for shape in shapes[1:]), inner

    def transpose(
        self, k: int, cotangent: jax.Array, operands: Sequence[Any], **parameters: Any
    ) -> jax.Array:
        x, *factors = operands
        if k == 0:
            return multiply(cotangent, *factors, transpose=not parameters["transpose"])
        return _Gradients().compose(x, cotangent, *factors, wanted=(k,), **parameters)[0]

    def derivative(
        self,
        made: Primitive,
        places: Sequence[int],
        operands: Sequence[Any],
        directions: Sequence[Any],
        **parameters: Any,
    ) -> jax.Array:
        """One operation with one transpose: `_Tangent`, or a product if x alone is changed."""
        if tuple(places) == (0,):
            return multiply(directions[0], *operands[1:], **parameters)
        found = _tangent.bind(*operands, *directions, moved=tuple(places), **parameters)
        return cast(jax.Array, found[0])

    def batch(
        self, size: int, operands: Sequence[Any], axes: Sequence[int | None], **parameters: Any
    ) -> tuple[jax.Array, int]:
        return batch_systems(multiply, size, operands, axes, **parameters)


class _Tangent(Composed):
    """The derivative of a product along directions of its operands.

    The operands are those of the product and the directions; the parameter ``moved`` has the
    numbers of the product's operands that have one.
    """

    name = "kron_tangent"

    def compose(self, *operands: jax.Array, **parameters: Any) -> list[jax.Array]:
        moved = parameters.pop("moved")
        count = len(operands) - len(moved)
        product = functools.partial(multiply, **parameters)
        return [sum_of_terms(product, moved, operands[:count], operands[count:])]

    def shapes(self, *shapes: tuple[int, ...], **parameters: Any) -> list[tuple[int, ...]]:
        count = len(shapes) - len(parameters["moved"])
        return [_KronMatmul().shape(*shapes[:count], transpose=parameters["transpose"])]

    def transpose(
        self,
        places: Sequence[int],
        cotangents: Sequence[jax.Array],
        operands: Sequence[Any],
        **parameters: Any,
    ) -> Sequence[jax.Array]:
        """All gradients at once, where the directions are what is not known."""
        count = len(operands) - len(parameters["moved"])
        if places[0] < count:
            return super().transpose(places, cotangents, operands, **parameters)
        x, *factors = operands[:count]
        wanted = tuple(parameters["moved"][k - count] for k in places)
        transpose = parameters["transpose"]
        if wanted == (0,):
            return [multiply(cotangents[0], *factors, transpose=not transpose)]
        given = x, cotangents[0], *factors
        found: list[jax.Array] = _gradients.bind(*given, wanted=wanted, transpose=transpose)
        return found


class _Gradients(Composed):
    """Gradients of a product in the operands ``wanted``: numbers in ascending order, not 0 alone.

    The operands are x, the cotangent of y, and the factors, of which that of a single wanted
    gradient is not read. Those of x and of factor k have their shapes. With ȳ for the cotangent:

        Ā_k = Σ x (A_1 ⊗ … ⊗ A_{k-1} ⊗ I ⊗ … ⊗ I) · ȳ (I ⊗ … ⊗ I ⊗ A_{k+1} ⊗ … ⊗ A_d)ᵀ,

    summed over all indices but those of mode k. The second parts are computed for all k first; one
    more multiply makes x̄ of the first of them.
    """

    name = "kron_gradients"

    def shapes(self, *shapes: tuple[int, ...], **parameters: Any) -> list[tuple[int, ...]]:
        x, _, *factors = shapes
        return [(x, *factors)[k] for k in parameters["wanted"]]

    def compose(self, *operands: jax.Array, **parameters: Any) -> list[jax.Array]:
        x, cotangent, *factors = operands
        wanted, turned = parameters["wanted"], parameters["transpose"]
        shapes = [_shape(factor) for factor in factors]
        rows = [shape[2 if turned else 1] for shape in shapes]
        columns = [shape[1 if turned else 2] for shape in shapes]
        outers = [x.shape[1] * math.prod(columns[:k]) for k in range(len(factors))]
        modes = [k - 1 for k in wanted if k]
        found = []
        before, last = x, cotangent
        after = {len(factors) - 1: last}
        for k in range(len(factors) - 1, -1 if 0 in wanted else modes[0], -1):
            last = _mode(last, factors[k], outers[k], columns[k], not turned)
            after[k - 1] = last
        if 0 in wanted:
            found.append(last.reshape(x.shape))
        for k in range(modes[-1] + 1):
            if k in modes:
                systems, outer = x.shape[0], outers[k]
                if shapes[k][0] != systems:  # one factor for all systems
                    systems, outer = 1, systems * outer
                behind = math.prod(rows[k + 1 :]) * x.shape[3]
                left = before.reshape(systems, outer, rows[k], behind)
                right = after[k].reshape(systems, outer, columns[k], behind)
                found.append(mode_gram(right, left) if turned else mode_gram(left, right))
            if k < modes[-1]:
                before = _mode(before, factors[k], outers[k], rows[k], turned)
        return found

    def lowering(self, platform: str) -> Any:
        """One call for one system of real numbers with small modes, on the CPU if it has rows.

        Of modes beyond 64 XLA's own products are faster.
        """
        by_jax = super().lowering(platform)
        by_core = lowering(self.name, platform)

        def lower(ctx: Any, *operands: Any, **parameters: Any) -> Any:
            x, y, *factors = ctx.avals_in
            if platform == "cuda":  # whose kernels take other factors of any size
                factors = [factors[k - 1] for k in parameters["wanted"] if k]
            sizes = [size for factor in factors for size in factor.shape]
            suits = x.dtype.kind == "f" and x.shape[0] == 1 and max(sizes) <= MAX_OF_KERNEL
            if platform == "cpu" and suits:
                is_known = all(isinstance(size, int) for size in (*x.shape, *y.shape, *sizes))
                suits = is_known and by_one_call(x.shape[1], max(x.size, y.size), max(sizes))
            return (by_core if suits else by_jax)(ctx, *operands, **parameters)

        return lower


def _shape(operand: Any) -> tuple[int, ...]:
    """Return the shape of an operand, which is no array where it is being transposed."""
    return tuple(operand.aval.shape) if ad.is_undefined_primal(operand) else operand.shape


def _mode(x: jax.Array, factor: Any, outer: int, size: int, transpose: bool) -> jax.Array:
    """Multiply the axis of ``size`` that has ``outer`` elements before it, for each system."""
    systems = x.shape[0]
    inner = x.size // max(1, systems * outer * size)
    return multiply(x.reshape(systems, outer, size, inner), factor, transpose=transpose)


_product, _gram = register(_KronMatmul()), register(_ModeGram())
_tangent, _gradients = register_composed(_Tangent()), register_composed(_Gradients())


def mode_gram(x: jax.Array, y: jax.Array) -> jax.Array:
    """Bind the primitive, but for results without elements and sums without terms."""
    if x.size == 0 or y.size == 0:
        return jnp.zeros(_ModeGram().shape(x.shape, y.shape), x.dtype)
    sums: jax.Array = _gram.bind(x, y)
    return sums


def multiply(x: jax.Array, *factors: jax.Array, transpose: bool) -> jax.Array:
    """Bind the primitive, but for results without elements and sums without terms."""
    if x.size == 0 or any(factor.size == 0 for factor in factors):
        shapes = (operand.shape for operand in (x, *factors))
        return jnp.zeros(_KronMatmul().shape(*shapes, transpose=transpose), x.dtype)
    y: jax.Array = _product.bind(x, *factors, transpose=transpose)
    return y


def multiply_mode(x: jax.Array, factor: jax.Array, outer: int) -> jax.Array:
    """Return A x over one axis of x, whose elements are (outer, columns, inner).

    ``x`` (jax.Array, of any shape).
    ``factor`` (jax.Array, (rows, columns)).

    Returns jax.Array, (outer, rows, inner).
    """
    y = _mode(x.reshape(1, -1), factor[None], outer, factor.shape[1], True)
    return y.reshape(y.shape[1:])
