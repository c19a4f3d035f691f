"""The search space of autotuning for batch lists in registers.

Pure arithmetic on sizes, no device needed. "The rule" is the tiling that is used without tuning,
`registers.register_tiling`; a choice's fields are called knobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from batchkron.backends.cuda.batch.registers import (
    RegisterTiling,
    output_team_counts,
    register_batch_program,
    register_tiling,
    thread_element_counts,
)
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import Step
from batchkron.backends.cuda.tuning.search import Kernel

_BLOCKS = (32, 64, 128, 256)  # threads of a thread block that are tried; chosen by hand
_STAGES = (2, 3, 4)  # products copied ahead that are tried; chosen by hand
# How many knobs of the best choice so far are changed in each round of the search; chosen by hand.
_CHANGED_KNOBS = (1, 2, 1, 2, 4)


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """The values of all knobs for one list.

    Attributes
    ----------
    held : int
        Elements of a block that a thread may hold, 0 for the rule's number.
    block, stages, teams_per_output : int
        Threads of a thread block, products that a team copies ahead, teams that share an output.
    cached : int
        1 if the first-level cache should get the memory that shared memory does not need, else 0.
    """

    held: int
    block: int
    stages: int
    teams_per_output: int
    cached: int


@dataclass(frozen=True, slots=True)
class BatchCase:
    """A batch list on a device; ``outputs`` and ``products`` count those of all systems."""

    steps: tuple[Step, ...]
    dtype: np.dtype[np.generic]
    outputs: int
    products: int
    short_ids: bool
    identities: bool
    limits: DeviceLimits

    def by_the_rule(self, held: int = 0) -> RegisterTiling | None:
        """Return the rule's tiling if a thread holds up to ``held`` elements, None if none fits."""
        return register_tiling(
            self.steps,
            self.dtype.itemsize,
            self.outputs,
            self.products,
            self.short_ids,
            self.identities,
            self.limits,
            held or None,
        )


def batch_choice(held: int, tiling: RegisterTiling) -> BatchChoice:
    """Return the choice of knobs that gives a tiling."""
    return BatchChoice(
        held, tiling.block, tiling.stages, tiling.teams_per_output, int(tiling.cached)
    )


def chosen_tiling(choice: BatchChoice, case: BatchCase) -> RegisterTiling | None:
    """Return the tiling of a choice, None if it does not fit the list or the device."""
    if choice.held and choice.held not in thread_element_counts(case.dtype.itemsize):
        return None
    rule = case.by_the_rule(choice.held)
    if rule is None or choice.stages not in _STAGES or choice.cached not in (0, 1):
        return None
    if choice.block != rule.block and (rule.team > 32 or choice.block not in _BLOCKS):
        return None
    cached = bool(choice.cached)
    tiling = replace(rule, block=choice.block, stages=choice.stages, cached=cached)
    if (
        choice.teams_per_output not in output_team_counts(tiling)
        or tiling.shared_bytes > case.limits.shared_bytes
    ):
        return None
    tiling = replace(tiling, teams_per_output=choice.teams_per_output)
    return tiling if tiling.outputs == 1 else replace(tiling, cluster=1)


def written_batch_choice(choice: BatchChoice) -> list[int]:
    """Return a choice as a list of numbers, for the store."""
    return list(astuple(choice))


def read_batch_choice(data: Any) -> BatchChoice | None:
    """Return the choice that `written_batch_choice` wrote, None for other data."""
    if not isinstance(data, list) or len(data) != len(fields(BatchChoice)):
        return None
    return BatchChoice(*data) if all(type(number) is int for number in data) else None


class BatchSpace:
    """All choices for a batch list, the most promising ones first."""

    def __init__(self, case: BatchCase, rule: RegisterTiling) -> None:
        self.case, self.rule = case, batch_choice(0, rule)

    def kernels(self, choice: BatchChoice) -> tuple[Kernel, ...] | None:
        """Return the kernels of a choice, None if it cannot run."""
        tiling = chosen_tiling(choice, self.case)
        if tiling is None:
            return None
        program = register_batch_program(self.case.dtype, tiling)
        room = tiling.shared_bytes, tiling.carveout
        return (Kernel(program, tiling.block, tiling.min_blocks, *room),)

    def steps(self) -> Iterator[Callable[[BatchChoice], Iterable[BatchChoice]]]:
        """Yield functions that map the best choice so far to candidates near it.

        The first one varies ``held``, with the rule's values of the other knobs; the others vary
        those, few of them first.
        """
        yield self._other_held
        for changes in _CHANGED_KNOBS:
            yield partial(self._neighbours, changes)

    def _other_held(self, best: BatchChoice) -> Iterator[BatchChoice]:
        for held in thread_element_counts(self.case.dtype.itemsize):
            tiling = self.case.by_the_rule(held)
            if tiling is not None:
                yield batch_choice(held, tiling)

    def _neighbours(self, changes: int, centre: BatchChoice) -> Iterator[BatchChoice]:
        """Yield choices that differ from one in at most ``changes`` knobs, the nearest first."""
        now = astuple(centre)[1:]
        blocks = sorted({centre.block, *_BLOCKS})
        team_counts = [1 << bit for bit in range(max(blocks).bit_length())]
        found = []
        for values in product(
            blocks, _STAGES, sorted({centre.teams_per_output, *team_counts}), (0, 1)
        ):
            changed = sum(value != old for value, old in zip(values, now, strict=True))
            if 0 < changed <= changes:
                pairs = zip(values[:3], now[:3], strict=True)
                found.append((changed, sum(abs(math.log2(a / b)) for a, b in pairs), values))
        for _, _, values in sorted(found):
            choice = BatchChoice(centre.held, *values)
            if chosen_tiling(choice, self.case) is not None:
                yield choice
