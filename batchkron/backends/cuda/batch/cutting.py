"""How many elements of a block a thread holds, chosen by estimated time.

Pure arithmetic on sizes, no device needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from batchkron.backends.cuda.batch.passes import cut_steps, largest_tile
from batchkron.backends.cuda.batch.records import matrix_bytes
from batchkron.backends.cuda.runtime.hardware import (
    MAX_THREAD_REGISTERS,
    MULTIPROCESSOR_SHARED_BYTES,
    REGISTER_FILE,
    round_up,
)
from batchkron.backends.cuda.steps import Step

_MAX_TEAM_THREADS = 512  # largest number of threads that share a product; chosen by hand
_MAX_THREAD_BYTES = 256  # bytes of a block in the registers of one thread; chosen by hand
# A team size may waste this factor more registers (of idle threads) than the best one, if it is
# smaller; chosen by hand.
_MAX_WASTE = 1.1
_REGISTER_BYTES = 4  # bytes of a register
# Multiply-adds of one thread, all unrolled; with this many a kernel compiles in a second or two.
_MAX_THREAD_MULTIPLIES = 4096
# Choices for the elements of a block in one thread's registers: products of small factor sizes.
_THREAD_ELEMENTS = (4, 8, 9, 12, 16, 25, 27, 32, 36, 48, 64)


@dataclass(frozen=True, slots=True)
class RegisterCosts:
    """Constants of the estimated time of a product, relative to the work of its threads."""

    # the time is proportional to 1 + latency_warps / (warps of a multiprocessor); fitted to 1000
    # measured kernels (H200)
    latency_warps: float = 7
    # factor of the time if teams do not fill a warp; fitted to the same kernels
    partial_warp: float = 1.3
    useful_warps: int = 20  # warps of a multiprocessor; more do not hide more latency
    # factor of the time if a team is larger than a warp and needs block-wide barriers; so large
    # that such teams are used only if nothing else fits
    barriers: float = 1e3


COSTS = RegisterCosts()


def input_size(steps: Sequence[Step]) -> int:
    """Return the elements of a block before the first step."""
    return steps[0].L * steps[0].C * steps[0].R


@dataclass(frozen=True, slots=True)
class Cutting:
    """Steps cut into passes, and the number of threads that share a product (``team``).

    ``shapes`` has for each pass the number of items and the elements of an item.
    """

    steps: tuple[Step, ...]
    cuts: Sequence[Sequence[int]]
    shapes: tuple[tuple[int, int], ...]
    team: int
    itemsize: int

    @property
    def resident(self) -> int:
        """Estimated number of threads whose registers fit in a multiprocessor."""
        held = max(-(-items // self.team) * elements for items, elements in self.shapes)
        registers = min(
            MAX_THREAD_REGISTERS, 45 + 5 * held * self.itemsize // (2 * _REGISTER_BYTES)
        )
        return REGISTER_FILE // registers

    def cost(self, costs: RegisterCosts = COSTS) -> float:
        """Return an estimate proportional to a product's time, for comparing cuttings."""
        threads = round_up(self.team, 32)
        products = threads // self.team
        matrices = sum(matrix_bytes(s.C * s.K, self.itemsize) for s in self.steps)
        product = matrix_bytes(input_size(self.steps), self.itemsize) + matrices
        fitting = MULTIPROCESSOR_SHARED_BYTES * threads // (64 * products * product)
        warps = max(1, min(costs.useful_warps, fitting))
        slots = sum(-(-items // self.team) * self.team * held for items, held in self.shapes)
        uneven = 1.0 if 32 % self.team == 0 or self.team % 32 == 0 else costs.partial_warp
        barriers = costs.barriers if self.team > 32 else 1.0
        return (
            slots
            * threads
            / (self.team * products)
            * (1 + costs.latency_warps / warps)
            * uneven
            * barriers
        )


def thread_element_counts(itemsize: int) -> tuple[int, ...]:
    """Return the numbers of elements of a block that a thread may hold."""
    return tuple(size for size in _THREAD_ELEMENTS if size * itemsize <= _MAX_THREAD_BYTES)


def best_cutting(steps: tuple[Step, ...], held: Sequence[int], itemsize: int) -> Cutting | None:
    """Return the cutting of least estimated cost; the first found among equals, None if none."""
    found: list[Cutting] = []
    for maximum in reversed(held):
        cuts = cut_steps(steps, maximum)
        shapes = tuple(_shape(steps, cut) for cut in cuts)
        team = _team(steps, shapes, maximum)
        if team is not None:
            found.append(Cutting(steps, cuts, shapes, team, itemsize))
    return min(found, key=Cutting.cost, default=None)


def _shape(steps: Sequence[Step], cut: Sequence[int]) -> tuple[int, int]:
    """Return the number of items of a pass, and the elements of an item."""
    first = steps[cut[0]]
    size = first.L * first.C * first.R
    elements = largest_tile([(steps[s].C, steps[s].K) for s in cut])
    return size // math.prod(steps[s].C for s in cut), elements


def _team(steps: Sequence[Step], shapes: Sequence[tuple[int, int]], maximum: int) -> int | None:
    """Return the smallest team that holds a block and wastes at most `_MAX_WASTE` of the least."""
    multiplies = sum(step.L * step.C * step.K * step.R for step in steps)

    def waste(team: int) -> float:
        slots: int = sum(-(-items // team) * team * elements for items, elements in shapes)
        group = round_up(team, 32)
        return slots * (group / (group // team * team))

    fits: list[int] = [
        team
        for team in [*range(1, 33), *range(64, _MAX_TEAM_THREADS + 1, 32)]
        if all(-(-items // team) * elements <= maximum for items, elements in shapes)
        and multiplies <= _MAX_THREAD_MULTIPLIES * team
    ]
    if not fits:
        return None
    bound = _MAX_WASTE * min(map(waste, fits))
    team: int = next(team for team in fits if waste(team) <= bound)
    return team
