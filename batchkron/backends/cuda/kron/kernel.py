"""A kernel of a Kron-Matmul, and the base class of all families of such kernels."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel_family import KernelFamily, LaunchShape
from batchkron.backends.cuda.runtime.arguments import FACTOR, pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import ModeRun
from batchkron.spec.kron import Array


@dataclass(frozen=True, slots=True)
class KronKernel:
    """A kernel of a Kron-Matmul: a variant of a family for a run of neighbouring modes.

    Attributes
    ----------
    family : KronFamily
    run : ModeRun
        The modes that the kernel multiplies.
    variant : Any
        An instance of the family's ``variant_type``.
    tile : Any
        The family's tiling, from which template arguments and launch follow.
    seconds : float
        Estimated time of a launch.
    constant : bool
        Whether the factors lie in the kernel's constant memory; it then belongs to one operator.
    """

    family: KronFamily
    run: ModeRun
    variant: Any
    tile: Any
    seconds: float = field(compare=False)
    constant: bool = False

    @property
    def modes(self) -> tuple[int, ...]:
        """The modes, in the order of the factors in the kernel's arguments."""
        modes: tuple[int, ...] = self.tile.modes
        return modes

    @property
    def elements(self) -> int:
        """Elements of the result."""
        return self.run.L * math.prod(self.run.outputs) * self.run.R

    def program(self) -> Program:
        """Return the program to compile."""
        return self.family.program(self)

    def launch(self, device: DeviceLimits) -> LaunchShape:
        """Return the launch: grid, threads and memory."""
        return self.family.launch(self, device)

    def arguments(self) -> Array:
        """Return the kernel's arguments, without addresses and scalars."""
        return self.family.arguments(self)


class KronFamily(KernelFamily[ModeRun, Any, KronKernel]):
    """A `KernelFamily` for runs of neighbouring modes; estimates are seconds of a launch."""

    operation = "kron"

    @abstractmethod
    def launch(self, kernel: KronKernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch: grid, threads and memory."""

    def arguments(self, kernel: KronKernel) -> Array:
        """Return the kernel's arguments, without addresses and scalars."""
        run = kernel.run
        arguments = np.zeros(1, kron_arguments(run.dtype, len(run.inputs)))
        arguments["L"], arguments["R"] = run.L, run.R
        return arguments

    def choose(self, run: ModeRun, device: DeviceLimits) -> tuple[float, Any] | None:
        """Return the best variant and its estimated seconds; None where there is none."""
        if not self.accepts(run, device):
            return None
        timed = [(self.estimate(run, one, device), one) for one in self.variants(run, device)]
        best = min(timed, key=lambda way: way[0], default=(math.inf, None))
        return None if math.isinf(best[0]) else best

    def fastest(self, run: ModeRun, device: DeviceLimits) -> KronKernel | None:
        """Return the kernel of the variant that `choose` returns; None where there is none."""
        chosen = self.choose(run, device)
        return None if chosen is None else self.kernel(run, chosen[1], device)

    def near(
        self, run: ModeRun, centre: Any, changes: int, longer: float, device: DeviceLimits
    ) -> Iterable[Any]:
        """Return variants for a search near ``centre``, the most promising first.

        Each family takes the criterion that suits it: variants that differ from ``centre`` in at
        most ``changes`` numbers, or whose estimate is at most ``longer`` times as large.
        """
        return self.variants(run, device)


@cache
def kron_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct KronArguments for ``modes`` factors."""
    pointers = pointer_fields("x", "y", "previous")
    sizes = size_fields("L", "R")
    scalars = [("alpha", dtype), ("beta", dtype)]
    return np.dtype([*pointers, ("factors", FACTOR, (modes,)), *sizes, *scalars], align=True)
