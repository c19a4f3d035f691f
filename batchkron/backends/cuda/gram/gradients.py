"""Gradients of a Kron-Matmul on one device, in as few calls from Python as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from batchkron.backends.cuda.gram.plan import GramPlan
from batchkron.backends.cuda.gram.rows import ROWS
from batchkron.backends.cuda.gram.tiles import MAX_OF_KERNEL
from batchkron.backends.cuda.gram.total import total_kernel
from batchkron.backends.cuda.kernel import Kernel, first_kernel
from batchkron.backends.cuda.kernel_launch import launch_of
from batchkron.backends.cuda.kron.plan import kron_program
from batchkron.backends.cuda.runtime.calls import kept_plans
from batchkron.backends.cuda.runtime.device import device_limits
from batchkron.backends.cuda.runtime.launch import LaunchSequence, LaunchStep, Place
from batchkron.spec.kron import KronSpec

_ALIGNMENT = 256  # bytes, that of CuPy's and torch's arrays
_X, _GRADIENT, _KEPT, _SCRATCH, _OF_X = map(Place, range(5))
_FIRST_FACTOR = 5
Address = TypeVar("Address")


Contraction = tuple[int, Place, Place, tuple[int, int, int, int]]
"""Sums over all modes but one that the caller computes: those of large factors.

The mode; where u (outer, rows, inner) and v (outer, columns, inner) begin: number 0 is the
product's x, 1 the gradient, 2 the kept memory; and (outer, rows, columns, inner).
sums[p, q] = Σ conj(u[l, p, r]) v[l, q, r] is the result for the factor of the mode.
"""


class GradientsPlan:
    """Gradients of x (A_1 ⊗ … ⊗ A_d) in x and in some factors, on one device.

    x is contracted with the factors before A_k, the gradient G of y with those after it:

    ∂A_k = Σ conj(x (A_1 ⊗ … ⊗ A_{k-1} ⊗ I ⊗ … ⊗ I)) · G (I ⊗ … ⊗ I ⊗ A_{k+1} ⊗ … ⊗ A_d)ᴴ,

    summed over all indices but those of mode k. The second parts are computed for all k first, and
    kept; one more multiply makes ∂x of the first of them. Where rows fit into shared memory, one
    kernel does all that.

    A call passes `addresses` to each sequence. After each one comes a contraction that the caller
    computes, or None.
    ``parts`` are these pairs; ``kept`` and ``scratch`` the bytes of memory that a call needs, for
    the vectors of contractions and for others.
    """

    def __init__(
        self,
        product: KronSpec,
        strides: tuple[tuple[int, int], ...],
        needed: tuple[bool, ...],
        with_x: bool,
        turned: bool,
        device: int,
    ) -> None:
        self._product, self._strides, self._device = product, strides, device
        self.kept = self.scratch = 0
        self.parts: list[tuple[LaunchSequence | None, Contraction | None]] = []
        self._steps: list[LaunchStep] = []
        modes = len(strides)
        wanted = [k for k in range(modes) if needed[k]]
        self._addresses = _FIRST_FACTOR + 2 * modes + len(wanted)
        result = _FIRST_FACTOR + 2 * modes
        work = product, strides, needed, with_x, turned
        by_rows = first_kernel((ROWS,), work, device_limits(device))
        if by_rows is not None:
            counts = tuple(product.inputs[k] * product.outputs[k] for k in wanted)
            self._add_rows(by_rows, counts, result)
            return
        before, last = _X, _GRADIENT
        after = {modes - 1: last}
        for k in range(modes - 1, -1 if with_x else wanted[0], -1):
            outer, rows, _, inner = self._shape(k)
            target = _OF_X if k == 0 else self._keep(outer * rows * inner)
            self._multiply(k, last, target, adjoint=True)
            after[k - 1] = last = target
        spare = [self._keep(self._largest(wanted[-1])) for _ in range(min(2, wanted[-1]))]
        for k in range(wanted[-1] + 1):
            if needed[k]:
                self._contract(k, before, after[k], Place(result), turned)
                result += 1
            if k < wanted[-1]:
                self._multiply(k, before, spare[k % 2], adjoint=False)
                before = spare[k % 2]
        self._end_part(None)

    @staticmethod
    def addresses(
        x: Address,
        gradient: Address,
        kept: Address,
        scratch: Address,
        of_x: Address,
        factors: Sequence[Address],
        conjugates: Sequence[Address],
        of_factors: Sequence[Address],
    ) -> tuple[Address, ...]:
        """Return what a call passes to each sequence: addresses, or what stands for them.

        They are of x and G, contiguous; of memory of ``kept`` and of ``scratch`` bytes; for ∂x, or
        0 if it is not wanted; of all A_k, and of their conjugates with the same strides; for the
        ∂A_k that are needed, (P_k, Q_k), or, if ``turned``, the conjugates of their transposes.
        """
        return x, gradient, kept, scratch, of_x, *factors, *conjugates, *of_factors

    def _add_rows(self, kernel: Kernel, counts: tuple[int, ...], result: int) -> None:
        modes, device = len(self._strides), self._device
        total = total_kernel(self._product.dtype, counts, kernel.launch.blocks)
        factors = [Place(_FIRST_FACTOR + k) for k in range(modes)]
        results = [Place(result + n) for n in range(len(counts))]
        self.scratch = total.launch.workspace
        rows, sums = launch_of(kernel, device, 4 + modes), launch_of(total, device, 1 + len(counts))
        self._steps = [
            LaunchStep.of(rows, [_X, _GRADIENT, _OF_X, _SCRATCH, *factors]),
            LaunchStep.of(sums, [_SCRATCH, *results]),
        ]
        self._end_part(None)

    def _shape(self, k: int) -> tuple[int, int, int, int]:
        """Return (outer, P_k, Q_k, inner) where the modes before k are multiplied, and no other."""
        product = self._product
        outer = product.outer * math.prod(product.outputs[:k])
        inner = math.prod(product.inputs[k + 1 :]) * product.inner
        return outer, product.inputs[k], product.outputs[k], inner

    def _largest(self, count: int) -> int:
        """Return the elements of the largest x multiplied by 1 to ``count`` factors."""
        shapes = map(self._shape, range(count))
        return max((outer * columns * inner for outer, _, columns, inner in shapes), default=0)

    def _keep(self, elements: int) -> Place:
        place = _KEPT.plus(self.kept)
        self.kept += -(-elements * self._product.dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
        return place

    def _multiply(self, k: int, source: Place, target: Place, *, adjoint: bool) -> None:
        """Multiply mode k by A_kᴴ from the right, or by A_k."""
        product, (outer, rows, columns, inner) = self._product, self._shape(k)
        along, across = self._strides[k]
        place = _FIRST_FACTOR + k
        if adjoint:
            sizes, strides, place = (
                ((columns,), (rows,)),
                (along, across),
                place + len(self._strides),
            )
        else:
            sizes, strides = ((rows,), (columns,)), (across, along)
        spec = KronSpec(*sizes, outer, inner, product.dtype, None)
        program = kron_program(spec, self._device)
        self.scratch = max(self.scratch, program.bytes)
        self._steps += program.steps([strides], source, [target], _SCRATCH, [Place(place)])

    def _contract(self, k: int, before: Place, after: Place, sums: Place, turned: bool) -> None:
        outer, rows, columns, inner = self._shape(k)
        left, right = before, after
        if turned:
            left, right, rows, columns = after, before, columns, rows
        shape = outer, rows, columns, inner
        if max(rows, columns) > MAX_OF_KERNEL:
            self._end_part((k, left, right, shape))
            return
        plan = GramPlan(shape, self._product.dtype, self._device)
        self.scratch = max(self.scratch, plan.workspace)
        self._steps += plan.steps(left, right, sums, _SCRATCH)

    def _end_part(self, contraction: Contraction | None) -> None:
        if self._steps or contraction:
            sequence = LaunchSequence(self._steps, self._addresses) if self._steps else None
            self.parts.append((sequence, contraction))
            self._steps = []


gradients_plan = kept_plans(GradientsPlan)
"""Return the plan for these arguments, which is made once and kept."""
