"""How many elements of a block a thread holds, and what that costs.

Pure arithmetic on sizes, without any device.
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

_MAX_TEAM_THREADS = 512  # threads that share a product; chosen by hand
_MAX_THREAD_BYTES = 256  # of a block in the registers of one thread; chosen by hand
_MAX_WASTE = 1.1  # registers of idle threads, relative to the best team size; chosen by hand
_REGISTER_BYTES = 4
# Multiply-adds of one thread, all unrolled: with so many a kernel compiles in a second or two.
_MAX_THREAD_MULTIPLIES = 4096
# Elements of a block that one thread may have in registers: products of small factor sizes.
_THREAD_ELEMENTS = (4, 8, 9, 12, 16, 25, 27, 32, 36, 48, 64)


@dataclass(frozen=True, slots=True)
class RegisterCosts:
    """What the time of a product is made of, relative to the work of its threads.

    Attributes
    ----------
    latency_warps : float
        A product's time grows as 1 + this / (warps of a multiprocessor): fitted to 1000 measured
        kernels (H200).
    partial_warp : float
        Factor of the time where teams do not fill a warp: fitted with these.
    useful_warps : int
        Warps of a multiprocessor, of which more hide no more latency.
    barriers : float
        Factor of the time where a team is a whole thread block: a last resort.
    """

    latency_warps: float = 7
    partial_warp: float = 1.3
    useful_warps: int = 20
    barriers: float = 1e3


COSTS = RegisterCosts()


def input_size(steps: Sequence[Step]) -> int:
    """Return the elements of a block before the first step."""
    return steps[0].L * steps[0].C * steps[0].R


@dataclass(frozen=True, slots=True)
class Cutting:
    """Which steps a thread does at once, and how many threads share a product.

    ``shapes`` are the items of each pass, and elements of an item.
    """

    steps: tuple[Step, ...]
    cuts: Sequence[Sequence[int]]
    shapes: tuple[tuple[int, int], ...]
    team: int
    itemsize: int

    @property
    def resident(self) -> int:
        """Threads whose registers fit in a multiprocessor."""
        held = max(-(-items // self.team) * elements for items, elements in self.shapes)
        registers = min(
            MAX_THREAD_REGISTERS, 45 + 5 * held * self.itemsize // (2 * _REGISTER_BYTES)
        )
        return REGISTER_FILE // registers

    def cost(self, costs: RegisterCosts = COSTS) -> float:
        """Return about how long products take, in no unit."""
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
    """Return how many elements of a block a thread may hold."""
    return tuple(size for size in _THREAD_ELEMENTS if size * itemsize <= _MAX_THREAD_BYTES)


def best_cutting(steps: tuple[Step, ...], held: Sequence[int], itemsize: int) -> Cutting | None:
    """Return the cutting of least cost, of equal ones that with the fewest threads."""
    found: list[Cutting] = []
    for maximum in reversed(held):
        cuts = cut_steps(steps, maximum)
        shapes = tuple(_shape(steps, cut) for cut in cuts)
        team = _team(steps, shapes, maximum)
        if team is not None:
            found.append(Cutting(steps, cuts, shapes, team, itemsize))
    return min(found, key=Cutting.cost, default=None)


def _shape(steps: Sequence[Step], cut: Sequence[int]) -> tuple[int, int]:
    """Return the items of a pass, and the elements of an item."""
    first = steps[cut[0]]
    size = first.L * first.C * first.R
    elements = largest_tile([(steps[s].C, steps[s].K) for s in cut])
    return size // math.prod(steps[s].C for s in cut), elements


def _team(steps: Sequence[Step], shapes: Sequence[tuple[int, int]], maximum: int) -> int | None:
    """Return the fewest threads that hold a block, with hardly more idle ones than need be."""
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
