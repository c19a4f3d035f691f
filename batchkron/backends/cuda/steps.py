"""The steps of a product, a multiply along one mode each, and runs of neighbouring modes."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.arguments import FACTOR, struct
from batchkron.backends.cuda.runtime.hardware import round_up

# Largest number of modes whose sizes are compiled into a kernel; with more it reads them from
# memory.
MAX_FIXED_MODES = 12
# Rows of the largest identity between other factors that a kernel may multiply by, to take its
# neighbours in one pass: the limit of kernels that hold several modes in registers.
MAX_MULTIPLIED_IDENTITY = 16
_RUNTIME_TILE = 4  # results that a thread computes at a time in kernels that read the sizes
# The C++ struct RuntimeStep.
STEP = np.dtype([("L", "i8"), ("C", "i8"), ("K", "i8"), ("R", "i8")])


@dataclass(frozen=True, slots=True)
class ModeRun:
    """Neighbouring modes that one kernel multiplies: x (L, inputs, R) -> y (L, outputs, R)."""

    first: int  # index of the first mode in the whole product
    # inputs, outputs: sizes of the modes before and after the multiply
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    # L, R: products of the sizes of all axes before and behind these modes
    L: int
    R: int
    dtype: np.dtype[np.generic]
    # TF32 multiply-adds of matrix units that may replace one in float32, 0 if none may
    products: int = 0
    constant: bool = False  # whether factors may lie in the kernel's constant memory
    # whether R may be compiled into the kernel; so if the vectors have no inner axis
    fixed_columns: bool = False
    # which factors of a whole product are identities: their modes may be left as they are. Empty if
    # none is, and for a part of a product.
    identities: tuple[bool, ...] = ()

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def bytes(self) -> int:
        """Bytes of x and y together."""
        sizes = math.prod(self.inputs) + math.prod(self.outputs)
        return self.L * self.R * sizes * self.itemsize

    @property
    def results(self) -> int:
        """Elements of y."""
        return self.L * math.prod(self.outputs) * self.R

    def part(self, low: int, high: int, done: Container[int] = ()) -> ModeRun:
        """Return the run of the modes ``low`` to ``high - 1``, to be multiplied after ``done``."""
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
            identities=(),
        )

    @property
    def multiplied(self) -> tuple[tuple[int, ...], ...]:
        """The modes that may be multiplied: all but identities and, if these are small, all."""
        every = tuple(range(len(self.inputs)))
        if not self.identities:
            return (every,)
        sizes = zip(self.inputs, self.identities, strict=True)
        is_small = max(size for size, skipped in sizes if skipped) <= MAX_MULTIPLIED_IDENTITY
        fewest = tuple(mode for mode in every if not self.identities[mode])
        return (fewest, every) if is_small else (fewest,)

    def parts(self, order: Iterable[tuple[int, int]]) -> Iterator[ModeRun]:
        """Yield the runs (low, high) of ``order``, multiplied one after another."""
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
        """Return the number of groups of ``tile`` results, each computed by one thread."""
        return self.L * -(-self.K // self.tile) * self.R * columns


def k_tile(outputs: int, dtype: np.dtype[np.generic]) -> int:
    """Return how many results of a fibre one thread computes, so that it loads least.

    For each term of the sums, a tile takes one load of x and ``tile`` loads of the factor. Results
    beyond the last one of a fibre are counted, too.
    """
    maximum = 4 if dtype.kind == "c" else 8
    return min(range(1, maximum + 1), key=lambda tile: (-(-outputs // tile) * (tile + 1), -tile))


def plan_order(inputs: Sequence[int], outputs: Sequence[int]) -> list[int]:
    """Return the modes in the order of least work; among equal modes, the last one first.

    Mode a goes before mode b if 1/Q_a - 1/P_a < 1/Q_b - 1/P_b. The elements of the last modes are
    contiguous in memory, so a kernel that begins with them reads whole cache lines.
    """

    def growth(mode: int) -> float:
        return 1 / max(inputs[mode], 1) - 1 / max(outputs[mode], 1)

    return sorted(range(len(inputs)), key=lambda mode: (growth(mode), -mode))


def plan_steps(
    inputs: Sequence[int], outputs: Sequence[int], order: Sequence[int], dtype: np.dtype[np.generic]
) -> tuple[Step, ...]:
    """Return the steps of the modes in ``order``; other modes keep their input sizes."""
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
    """Return the C++ type of the steps of a product."""
    if not has_fixed_steps(steps):
        return f"batchkron::RuntimeSteps<{scalar}>"
    fixed = (f"batchkron::FixedStep<{s.L}, {s.C}, {s.K}, {s.R}, {s.tile}>" for s in steps)
    return f"batchkron::FixedSteps<{scalar}, {', '.join(fixed)}>"


@cache
def steps_argument(modes: int, fixed: bool) -> np.dtype[Any]:
    """Return the layout of the C++ struct FixedSteps of ``modes`` steps, or of RuntimeSteps."""
    return struct(("factors", FACTOR, (modes,)) if fixed else "*steps *factors count")
