"""A kernel that is ready to be compiled and launched, and the families of such kernels.

Each operation has a table of its families, in order of preference. No device is needed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel_family import LaunchShape, enabled
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.spec.kron import Array


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a family for given work."""

    family: Family
    work: Any  # what it computes, such as the sizes of a batch list
    variant: Any  # the choice among the family's kernels for this work; None if there is only one
    program: Program
    launch: LaunchShape
    # the kernel's arguments, without addresses and scalars that a plan or a call fills in
    arguments: Array = field(compare=False)


@dataclass(eq=False)
class Family:
    """A kernel template of ``csrc/cuda`` and the choice of its template arguments."""

    operation: str
    name: str
    # ``kernel(work, device)`` returns the kernel, None where there is none for this work or others
    # are faster; ``kernel(work, device, variant)`` that of a variant
    kernel: Callable[..., Kernel | None]


def record(layout: np.dtype[Any], **values: Any) -> Array:
    """Return arguments of this layout with these values, and zeros elsewhere."""
    arguments = np.zeros(1, layout)
    for name, value in values.items():
        arguments[name] = value
    return arguments


def first_kernel(families: tuple[Family, ...], work: Any, device: DeviceLimits) -> Kernel | None:
    """Return the kernel of the first family that has one and is not switched off, else None."""
    kernels: Iterable[Kernel | None] = (one.kernel(work, device) for one in enabled(families))
    return next(filter(None, kernels), None)
