"""The steps of a product, one mode each, and groups of neighbouring modes.

Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
class GroupShape:
    """What a group of neighbouring modes is given: x (L, inputs, R), the first mode's number.

    ``products``: multiply-adds on matrix units that may stand for one of single precision, or 0.
    """

    first: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    L: int
    R: int
    dtype: np.dtype[np.generic]
    products: int = 0

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize


def group_shapes(
    order: Sequence[tuple[int, int]],
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    outer: int,
    inner: int,
    dtype: np.dtype[np.generic],
    products: int = 0,
) -> Iterator[GroupShape]:
    """Yield what each group is given where the runs of modes in ``order`` follow each other."""
    sizes = list(inputs)
    for low, high in order:
        L, R = outer * math.prod(sizes[:low]), math.prod(sizes[high:]) * inner
        yield GroupShape(low, inputs[low:high], outputs[low:high], L, R, dtype, products)
        sizes[low:high] = outputs[low:high]


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
