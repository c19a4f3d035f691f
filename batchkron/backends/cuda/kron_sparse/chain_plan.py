"""Products of vectors with a chain of Kronecker-sparse matrices, and their gradients, by addresses.

All launches of a product, or of its gradients, are one call from Python. What is launched depends
on the layouts of values and vectors alone, and is cached by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchkron.backends.cuda.gram.total import total_kernel
from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.kernel_family import is_enabled
from batchkron.backends.cuda.kernel_launch import launch_of
from batchkron.backends.cuda.kron_sparse.function_calls import known_values
from batchkron.backends.cuda.kron_sparse.kernel import (
    WORD,
    Ending,
    SparseShape,
    bytes_of,
    with_ending,
)
from batchkron.backends.cuda.kron_sparse.launches import product_steps
from batchkron.backends.cuda.kron_sparse.plan import check_pattern, planned_way, tune
from batchkron.backends.cuda.kron_sparse.transposed import stored_of, workspace_of
from batchkron.backends.cuda.kron_sparse.value_gradients import (
    VALUE_GRADIENTS,
    GradientShape,
    gradient_kernel,
    has_kernel,
)
from batchkron.backends.cuda.runtime.calls import kept_plans
from batchkron.backends.cuda.runtime.device import device_limits
from batchkron.backends.cuda.runtime.hardware import round_up
from batchkron.backends.cuda.runtime.launch import LaunchSequence, LaunchStep, Place
from batchkron.backends.cuda.tuning.tuning import wanted_tuning

_ALIGNMENT = 256  # bytes, that of torch's tensors


_FactorLayout = tuple[tuple[int, int, int, int], tuple[int, int, int, int], int]
"""Of the values of a matrix: their shape (a, b, c, d), strides in elements, bytes behind a word."""


@dataclass(frozen=True, slots=True)
class ChainLayout:
    """A chain K_1 … K_L of real matrices, and the vectors that it multiplies."""

    dtype: str
    factors: tuple[_FactorLayout, ...]  # from K_1 on; K_L is applied first. No size is zero.
    count: int  # vectors, at least one
    last: bool  # whether they lie along the last axis
    # bytes that the address of the vectors is a multiple of, a power of two up to `WORD`
    alignment: int

    def bytes_after(self, k: int) -> int:
        """Return the bytes of the vectors that factor k makes, up to the next ones in memory."""
        (a, b, _, d), _, _ = self.factors[k]
        return round_up(a * b * d * self.count * bytes_of(self.dtype), _ALIGNMENT)

    @property
    def places(self) -> list[int]:
        """Where what the factors after k make lies in the kept vectors, and at last their bytes."""
        begins = [0]
        for k in range(1, len(self.factors)):
            begins.append(begins[-1] + self.bytes_after(k))
        return begins


class _Turns:
    """Places for vectors between two products, which take turns where not all are needed later."""

    def __init__(self, layout: ChainLayout, number: int, most: int = 2) -> None:
        largest = max((layout.bytes_after(k) for k in range(1, len(layout.factors))), default=0)
        self._each, self._turns = largest, max(1, min(number, most))
        self.bytes = largest * min(number, most)

    def place(self, k: int) -> int:
        """Return where those of product k begin."""
        return k % self._turns * self._each


class _Steps:
    """Launches of products one after another, which share a workspace."""

    def __init__(self, layout: ChainLayout, device: int) -> None:
        self.layout, self.device = layout, device
        self.steps: list[LaunchStep] = []
        self.workspace = 0

    def multiply(
        self,
        factor: _FactorLayout,
        values: Place,
        x: Place,
        y: Place,
        workspace: Place,
        alignment: int,
        ending: Ending = "none",
        of_ending: tuple[Place, ...] = (),
    ) -> bool:
        """Multiply by a matrix; return whether the kernel does the ending, as single ones can."""
        layout, (pattern, strides, odd) = self.layout, factor
        a, b, c, d = check_pattern(pattern)
        vectors = (1, layout.count) if layout.last else (layout.count, 1)
        shape = SparseShape(a, b, c, d, *vectors, layout.dtype, 0, alignment)
        tune(shape, self.device, wanted_tuning())
        way = planned_way(shape, self.device)
        size = bytes_of(layout.dtype)
        in_bytes = tuple(size * step for step in strides)
        stored = known_values(
            tuple(pattern), in_bytes, size, layout.dtype, stored_of(way), self.device
        )
        used = round_up(workspace_of(way), _ALIGNMENT)
        if not isinstance(way, Kernel):
            of_ending = ()
        elif of_ending:
            way = with_ending(way, ending)
        copied = stored.needs(odd)
        if copied:
            target = workspace.plus(used)
            self.steps.append(LaunchStep.of(stored.copy(), (values, target)))
            values, used = target, used + copied
        self.steps += product_steps(way, self.device, x, y, values, workspace, *of_ending)
        self.workspace = max(self.workspace, used)
        return bool(of_ending)

    def sum_values(
        self, shape: GradientShape, x: Place, gradient: Place, sums: Place, workspace: Place
    ) -> None:
        """Sum gradient[n, i, k, j] x[n, i, l, j] over vectors n, in the same order in each call."""
        kernel = gradient_kernel(shape, device_limits(self.device))
        launch, size = launch_of(kernel, self.device, 3), kernel.launch.workspace
        if not size:
            self.steps.append(LaunchStep.of(launch, (x, gradient, sums)))
            return
        _, parts = kernel.variant
        total = total_kernel(np.dtype(shape.dtype), (shape.values,), parts)
        self.steps += [
            LaunchStep.of(launch, (x, gradient, workspace)),
            LaunchStep.of(launch_of(total, self.device, 2), (workspace, sums)),
        ]
        self.workspace = max(self.workspace, size)


class ChainProduct:
    """y = K_1 ⋯ K_L x; with ``keep`` what K_L, K_{L-1} K_L, … make is kept for gradients.

    A call of ``sequence`` passes the addresses of x, y, the kept vectors, the workspace, the bias
    and z (of the ending, see ``csrc/cuda/kron_sparse/arguments.cuh``; 0 where there is none), and
    the values from K_1 on.

    ``has_ended``: whether the last kernel does what ``ending`` says; else a caller has to do it.
    A call needs ``kept`` and ``workspace`` bytes of memory; kept vectors are at ``layout.places``.
    """

    def __init__(self, layout: ChainLayout, keep: bool, ending: Ending, device: int) -> None:
        x, y, kept, scratch, bias, before, values = map(Place, range(7))
        count, places = len(layout.factors), layout.places
        self.kept = places[-1] if keep else 0
        spare = _Turns(layout, 0 if keep else count - 1)
        steps = _Steps(layout, device)
        vectors, alignment, workspace = x, layout.alignment, scratch.plus(spare.bytes)
        for k in reversed(range(count)):
            if k == 0:
                made = y
            else:
                made = kept.plus(places[k - 1]) if keep else scratch.plus(spare.place(k))
            operands = layout.factors[k], Place(values.number + k), vectors, made, workspace
            of_ending = (bias, before) if k == 0 and ending != "none" else ()
            self.has_ended = steps.multiply(*operands, alignment, ending, of_ending)
            vectors, alignment = made, WORD
        self.workspace = spare.bytes + steps.workspace
        self.sequence = LaunchSequence(steps.steps, values.number + count)


class ChainGradients:
    """Gradients of y = K_1 ⋯ K_L x in x and in some of the values.

    G, the gradient of y, is multiplied by K_1ᵀ, K_2ᵀ, …; before each product comes the gradient of
    the values, from G and what K_k is applied to. A call of ``sequence`` passes the addresses of
    x, G, the kept vectors, the workspace, ∂x, all values, and their gradients.

    It is None if nothing is launched, and needs ``workspace`` bytes of memory. ``by_caller`` has
    the factors whose gradients have no kernel: where what the factor is applied to and the gradient
    of the result lie. Number 0 is x, 1 is G, 2 the kept vectors, 3 the workspace.
    """

    def __init__(
        self, layout: ChainLayout, needed: Sequence[bool], with_x: bool, device: int
    ) -> None:
        x, gradient, kept, scratch, of_x, values = map(Place, range(6))
        count, places = len(layout.factors), layout.places
        sums = values.number + count
        end = count if with_x else max(k for k in range(count) if needed[k])  # products
        shapes = [
            GradientShape(*pattern, layout.count, layout.last, layout.dtype)
            for pattern, _, _ in layout.factors
        ]
        own = [has_kernel(shape) and is_enabled(VALUE_GRADIENTS) for shape in shapes]
        # those that a caller needs have a place of their own
        all_own = all(own[k] for k in range(count) if needed[k])
        spare = _Turns(layout, min(end, count - 1), 2 if all_own else count)
        workspace = scratch.plus(spare.bytes)
        steps = _Steps(layout, device)
        self.by_caller: dict[int, tuple[Place, Place]] = {}
        vectors, alignment = gradient, layout.alignment
        for k, (pattern, strides, odd) in enumerate(layout.factors):
            if needed[k]:
                before = x if k == count - 1 else kept.plus(places[k])
                if own[k]:
                    steps.sum_values(shapes[k], before, vectors, Place(sums + k), workspace)
                else:
                    self.by_caller[k] = before, vectors
            if k < end:
                made = of_x if k == count - 1 else scratch.plus(spare.place(k))
                place = Place(values.number + k)
                (a, b, c, d), (of_a, of_b, of_c, of_d) = pattern, strides
                adjoint = (a, c, b, d), (of_a, of_c, of_b, of_d), odd  # in the same memory
                steps.multiply(adjoint, place, vectors, made, workspace, alignment)
                vectors, alignment = made, WORD
        self.workspace = spare.bytes + steps.workspace
        self.sequence = LaunchSequence(steps.steps, sums + count) if steps.steps else None


chain_product = kept_plans(ChainProduct)
"""Return the launches of a product, which are made once and kept."""

chain_gradients = kept_plans(ChainGradients)
"""Return the launches of gradients, which are made once and kept; ``needed`` is a tuple.

``layout.alignment`` is that of the gradient. Something is wanted.
"""
