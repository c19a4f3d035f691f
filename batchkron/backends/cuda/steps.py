"""The steps of a product, one mode each, and groups of neighbouring modes.

Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.arguments import FACTOR, pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import round_up

MAX_FIXED_MODES = 12  # beyond, a kernel reads the sizes of its steps when it runs
_RUNTIME_TILE = 4
# RuntimeStep
STEP = np.dtype([("L", "i8"), ("C", "i8"), ("K", "i8"), ("R", "i8")])


@dataclass(frozen=True, slots=True)
class ModeRun:
    """Neighbouring modes that a kernel works on, from x (L, inputs, R) to y (L, outputs, R).

    Attributes
    ----------
    first : int
        The number of the first mode in the whole product.
    inputs, outputs : tuple of int
        Sizes of the modes before and afterwards.
    L, R : int
        Elements of x before and behind these modes.
    dtype : dtype
    products : int
        Multiply-adds on matrix units that may stand for one of single precision, or 0.
    constant : bool
        Whether the factors may be constants of the kernel.
    fixed_columns : bool
        Whether R may be compiled into the kernel: the product has no columns of its own.
    """

    first: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    L: int
    R: int
    dtype: np.dtype[np.generic]
    products: int = 0
    constant: bool = False
    fixed_columns: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def bytes(self) -> int:
        """Bytes that are read and written at least."""
        sizes = math.prod(self.inputs) + math.prod(self.outputs)
        return self.L * self.R * sizes * self.itemsize

    def part(self, low: int, high: int, done: Container[int] = ()) -> ModeRun:
        """Return the run of the modes ``low`` to before ``high``, after those in ``done``."""
        sizes = [
            self.outputs[mode] if mode in done else self.inputs[mode]
            for mode in range(len(self.inputs))
        ]
        return replace(
            self,
            first=self.first + low,
            inputs=self.inputs[low:high],
            outputs=self.outputs[low:high],
            L=self.L * math.prod(sizes[:low]),
            R=math.prod(sizes[high:]) * self.R,
        )

    def parts(self, order: Iterable[tuple[int, int]]) -> Iterator[ModeRun]:
        """Yield what each kernel is given where runs of modes in ``order`` follow each other."""
        done: set[int] = set()
        for low, high in order:
            yield self.part(low, high, done)
            done.update(range(low, high))


@dataclass(frozen=True, slots=True)
class Step:
    """A single-mode multiply (L, C, R) -> (L, K, R); a thread computes ``tile`` of K at a time."""

    mode: int
    L: int
    C: int
    K: int
    R: int
    tile: int

    def staged(self, itemsize: int) -> int:
        """Return the elements of shared memory that the factor takes, padded as in the kernel."""
        unit = 16 // itemsize
        return round_up(self.C * round_up(self.K, self.tile), unit)

    def items(self, columns: int) -> int:
        """Return how many threads can work on it."""
        return self.L * -(-self.K // self.tile) * self.R * columns


def k_tile(outputs: int, dtype: np.dtype[np.generic]) -> int:
    """Return how many results of a fibre one thread computes: fewest loads, padding counted.

    A tile takes one load of x and ``tile`` loads of the factor per term of the sum.
    """
    maximum = 4 if dtype.kind == "c" else 8
    return min(range(1, maximum + 1), key=lambda tile: (-(-outputs // tile) * (tile + 1), -tile))


def plan_order(inputs: Sequence[int], outputs: Sequence[int]) -> list[int]:
    """Return the modes in the order of least work, the last of equal ones first.

    Mode a goes before mode b where 1/Q_a - 1/P_a < 1/Q_b - 1/P_b. The last modes lie together in
    memory, so that a kernel which begins with them reads whole lines.
    """

    def growth(mode: int) -> float:
        return 1 / max(inputs[mode], 1) - 1 / max(outputs[mode], 1)

    return sorted(range(len(inputs)), key=lambda mode: (growth(mode), -mode))


def plan_steps(
    inputs: Sequence[int], outputs: Sequence[int], order: Sequence[int], dtype: np.dtype[np.generic]
) -> tuple[Step, ...]:
    """Return the steps of the modes in ``order``, all others keeping their input sizes."""
    sizes = list(inputs)
    fixed = len(order) <= MAX_FIXED_MODES
    steps = []
    for mode in order:
        before, after = math.prod(sizes[:mode]), math.prod(sizes[mode + 1 :])
        tile = k_tile(outputs[mode], dtype) if fixed else _RUNTIME_TILE
        steps.append(Step(mode, before, inputs[mode], outputs[mode], after, tile))
        sizes[mode] = outputs[mode]
    return tuple(steps)


def has_fixed_steps(steps: Sequence[Step]) -> bool:
    """Whether the sizes of the steps are compiled into the kernel."""
    return len(steps) <= MAX_FIXED_MODES


def steps_type(scalar: str, steps: Sequence[Step]) -> str:
    """Return the type of the steps of a product."""
    if not has_fixed_steps(steps):
        return f"batchkron::RuntimeSteps<{scalar}>"
    fixed = (f"batchkron::FixedStep<{s.L}, {s.C}, {s.K}, {s.R}, {s.tile}>" for s in steps)
    return f"batchkron::FixedSteps<{scalar}, {', '.join(fixed)}>"


@cache
def steps_argument(modes: int, fixed: bool) -> np.dtype[Any]:
    """Return FixedSteps of ``modes`` steps, or RuntimeSteps."""
    if fixed:
        return np.dtype([("factors", FACTOR, (modes,))])
    return np.dtype([*pointer_fields("steps", "factors"), *size_fields("count")])
