"""A kernel of a Kron-Matmul, and the base class of all families of such kernels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from batchkron.backends.cuda.costs import constants_for
from batchkron.backends.cuda.estimates import Count
from batchkron.backends.cuda.kernel_family import LaunchShape
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
    modes : tuple of int
        The modes, in the order of the factors in the kernel's arguments.
    program : Program
        What is compiled. If it has constants, the factors lie in the kernel's constant memory, and
        the kernel belongs to one operator.
    launch : LaunchShape
        Grid, threads and memory.
    arguments : ndarray
        The kernel's arguments, without addresses and scalars.
    seconds : float
        Estimated time of a launch.
    tile : Any
        The family's tiling, from which program and launch follow.
    """

    family: KronFamily
    run: ModeRun
    variant: Any
    modes: tuple[int, ...]
    program: Program
    launch: LaunchShape
    arguments: Array = field(compare=False)
    seconds: float = field(compare=False)
    tile: Any = None

    @property
    def elements(self) -> int:
        """Elements of the result."""
        return self.run.L * math.prod(self.run.outputs) * self.run.R


class KronFamily(ABC):
    """A kernel template of ``csrc/cuda/kron`` and the choice of its template arguments.

    A ``Variant`` is one choice: a frozen dataclass of integers, so that tuning can store it.
    """

    operation = "kron"
    name: str
    variant_type: type[Any]
    has_many_variants = False
    """Whether many variants of a run are compared by their estimates."""
    constants: ClassVar[dict[str, tuple[float, str]]]
    """The constants of the estimated time, in nanoseconds: where a fit begins, and what each is."""

    @abstractmethod
    def accepts(self, run: ModeRun, device: DeviceLimits) -> bool:
        """Whether there is a kernel for this run of neighbouring modes."""

    @abstractmethod
    def variants(self, run: ModeRun, device: DeviceLimits) -> Iterable[Any]:
        """Return the variants worth comparing by their estimates."""

    @abstractmethod
    def work(self, run: ModeRun, variant: Any, device: DeviceLimits) -> SimpleNamespace | None:
        """Count what the kernel of a variant does; None if it does not fit."""

    @abstractmethod
    def seconds(self, work: SimpleNamespace, costs: SimpleNamespace) -> Count:
        """Return the estimated seconds of a launch.

        ``work`` has the counts of one kernel or, as arrays, those of many; ``costs`` has a value
        for each of the family's ``constants``.
        """

    @abstractmethod
    def kernel(self, run: ModeRun, variant: Any, device: DeviceLimits) -> KronKernel | None:
        """Return the kernel of a variant, None if it does not fit."""

    def estimate(self, run: ModeRun, variant: Any, device: DeviceLimits) -> float:
        """Return the estimated seconds of a launch; infinite if the variant does not fit."""
        work = self.work(run, variant, device)
        if work is None:
            return math.inf
        return float(self.seconds(work, constants_for(device.name, self.operation, self.name)))

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


def empty_arguments(run: ModeRun) -> Array:
    """Return a record of the C++ struct KronArguments with the sizes of a run."""
    arguments = np.zeros(1, kron_arguments(run.dtype, len(run.inputs)))
    arguments["L"], arguments["R"] = run.L, run.R
    return arguments


@cache
def kron_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct KronArguments for ``modes`` factors."""
    pointers = pointer_fields("x", "y", "previous")
    sizes = size_fields("L", "R")
    scalars = [("alpha", dtype), ("beta", dtype)]
    return np.dtype([*pointers, ("factors", FACTOR, (modes,)), *sizes, *scalars], align=True)
