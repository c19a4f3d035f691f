"""A kernel of a Kron-Matmul, and the base class of all families of such kernels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import numpy as np

from batchkron.backends.cuda.kernel import record
from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.runtime.arguments import FACTOR, pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import ModeRun
from batchkron.backends.cuda.timed_family import TimedFamily
from batchkron.spec.kron import Array


@dataclass(frozen=True, slots=True)
class KronKernel:
    """A kernel of a Kron-Matmul: a variant of a family for a run of neighbouring modes."""

    family: KronFamily
    run: ModeRun  # the modes that the kernel multiplies
    variant: Any  # an instance of the family's ``variant_type``
    modes: tuple[int, ...]  # the modes, in the order of the factors in the kernel's arguments
    # what is compiled. If it has constants, the factors lie in the kernel's constant memory, and
    # the kernel belongs to one operator.
    program: Program
    launch: LaunchShape  # grid, threads and memory
    # the kernel's arguments, without addresses; alpha is 1, beta 0
    arguments: Array = field(compare=False)
    seconds: float = field(compare=False)  # estimated time of a launch
    tile: Any = None  # the family's tiling, from which program and launch follow

    @property
    def elements(self) -> int:
        """Elements of the result."""
        return self.run.L * math.prod(self.run.outputs) * self.run.R


class KronFamily(TimedFamily[ModeRun, KronKernel]):
    """A `TimedFamily` for runs of neighbouring modes, of ``csrc/cuda/kron``."""

    operation = "kron"
    constants: ClassVar[dict[str, tuple[float, str]]]
    """The constants of the estimated time, in nanoseconds: where a fit begins, and what each is."""

    def near(
        self, run: ModeRun, centre: Any, changes: int, longer: float, device: DeviceLimits
    ) -> Iterable[Any]:
        """Return variants for a search near ``centre``, the most promising first.

        Each family takes the criterion that suits it: variants that differ from ``centre`` in at
        most ``changes`` numbers, or whose estimate is at most ``longer`` times as large.
        """
        return self.variants(run, device)


def empty_arguments(run: ModeRun) -> Array:
    """Return a record of the C++ struct KronArguments with the sizes of a run, and alpha 1."""
    layout = kron_arguments(run.dtype, len(run.inputs))
    return record(layout, L=run.L, R=run.R, alpha=1)


@cache
def kron_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct KronArguments for ``modes`` factors."""
    pointers = pointer_fields("x", "y", "previous")
    sizes = size_fields("L", "R")
    scalars = [("alpha", dtype), ("beta", dtype)]
    return np.dtype([*pointers, ("factors", FACTOR, (modes,)), *sizes, *scalars], align=True)
