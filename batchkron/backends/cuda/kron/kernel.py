"""One kernel of a Kron-Matmul, and what all families of such kernels share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.runtime.arguments import FACTOR, pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import ModeRun
from batchkron.spec.kron import Array


@dataclass(frozen=True, slots=True)
class KronKernel:
    """One kernel of a Kron-Matmul: a family's variant for a run of neighbouring modes.

    Attributes
    ----------
    family : KronFamily
    run : ModeRun
        What it is given.
    variant : Any
        The way to do it, of the family's ``variant_type``.
    tile : Any
        What the kernel is compiled for, in the family's own terms.
    seconds : float
        Estimated.
    constant : bool
        Whether the factors are constants of the kernel: it belongs to one operator then.
    """

    family: KronFamily
    run: ModeRun
    variant: Any
    tile: Any
    seconds: float = field(compare=False)
    constant: bool = False

    @property
    def modes(self) -> tuple[int, ...]:
        """The modes whose factors the arguments take, in their order."""
        modes: tuple[int, ...] = self.tile.modes
        return modes

    @property
    def elements(self) -> int:
        """Elements of the result."""
        return self.run.L * math.prod(self.run.outputs) * self.run.R

    def program(self) -> Program:
        """Return the template instance to compile."""
        return self.family.program(self)

    def launch(self, device: DeviceLimits) -> LaunchShape:
        """Return the launch: grid, threads and memory."""
        return self.family.launch(self, device)

    def arguments(self) -> Array:
        """Return the arguments but for addresses and scalars."""
        return self.family.arguments(self)


class KronFamily(ABC):
    """A `KernelFamily` whose work is a run of neighbouring modes."""

    operation = "kron"
    name: str
    variant_type: type[Any]

    @abstractmethod
    def accepts(self, run: ModeRun, device: DeviceLimits) -> bool:
        """Whether there is a kernel for this run."""

    @abstractmethod
    def variants(self, run: ModeRun, device: DeviceLimits) -> Iterable[Any]:
        """Return the variants worth comparing by their estimates."""

    @abstractmethod
    def estimate(self, run: ModeRun, variant: Any, device: DeviceLimits) -> float:
        """Return the estimated seconds of a launch; infinite if the variant does not fit."""

    @abstractmethod
    def kernel(self, run: ModeRun, variant: Any, device: DeviceLimits) -> KronKernel | None:
        """Return the kernel of a variant, None if it does not fit."""

    @abstractmethod
    def program(self, kernel: KronKernel) -> Program:
        """Return the template instance to compile."""

    @abstractmethod
    def launch(self, kernel: KronKernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch: grid, threads and memory."""

    def arguments(self, kernel: KronKernel) -> Array:
        """Return the arguments but for addresses and scalars."""
        run = kernel.run
        arguments = np.zeros(1, kron_arguments(run.dtype, len(run.inputs)))
        arguments["L"], arguments["R"] = run.L, run.R
        return arguments

    def fastest(self, run: ModeRun, device: DeviceLimits) -> KronKernel | None:
        """Return the kernel of the least estimated time, None where there is none."""
        if not self.accepts(run, device):
            return None
        variants = self.variants(run, device)
        best = min(variants, key=lambda one: self.estimate(run, one, device), default=None)
        return None if best is None else self.kernel(run, best, device)

    def near(
        self, run: ModeRun, centre: Any, changes: int, longer: float, device: DeviceLimits
    ) -> Iterable[Any]:
        """Return variants for a search near ``centre``, the most promising first.

        Those that differ from it in at most ``changes`` numbers, or that take at most ``longer``
        times as long by estimate: what tells more about the family.
        """
        return self.variants(run, device)


@cache
def kron_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return KronArguments for a kernel of ``modes`` factors."""
    pointers = pointer_fields("x", "y", "previous")
    sizes = size_fields("L", "R")
    scalars = [("alpha", dtype), ("beta", dtype)]
    return np.dtype([*pointers, ("factors", FACTOR, (modes,)), *sizes, *scalars], align=True)
