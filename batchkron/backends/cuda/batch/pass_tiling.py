"""What tilings of products in passes have in common (see `passes`). No device is needed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from batchkron.backends.cuda.batch.cutting import best_cutting, input_size
from batchkron.backends.cuda.batch.passes import BatchPass, pass_type, plan_passes
from batchkron.backends.cuda.batch.records import matrix_bytes
from batchkron.backends.cuda.runtime.program import template_type
from batchkron.backends.cuda.steps import MAX_FIXED_MODES, Step

_MAX_FACTOR_SIZE = 32  # largest number of rows or columns of a factor; chosen by hand


@dataclass(frozen=True)
class PassTiling:
    """How a kernel evaluates products in passes."""

    steps: tuple[Step, ...]  # multiplies along one mode each, in the order of evaluation
    passes: tuple[BatchPass, ...]  # the steps grouped into passes over the block
    # run, gap: after each ``run`` elements of a block in shared memory there are ``gap`` of padding
    run: int
    gap: int
    area: int  # elements of shared memory for a block, in whole 16-byte words
    exchange: int  # elements of a second buffer; 0 if results can overwrite their inputs
    # team, block: threads that evaluate one product, and of a thread block
    team: int
    block: int
    # thread blocks that a multiprocessor should hold, which bounds the registers of a thread
    min_blocks: int
    itemsize: int  # bytes of an element

    @property
    def group(self) -> int:
        """Threads that copy products together: a warp, or one team that is larger."""
        return 32 if self.team <= 32 else self.block

    @property
    def products(self) -> int:
        """Products that such a group evaluates at the same time."""
        return self.group // self.team

    @property
    def teams(self) -> int:
        """Teams of a thread block."""
        return self.block // self.group * self.products

    @property
    def product_words(self) -> int:
        """Words of 16 bytes of a block and its matrices in shared memory."""
        matrices = sum(matrix_bytes(step.C * step.K, self.itemsize) for step in self.steps)
        return (self.area * self.itemsize + matrices) // 16

    def types(self) -> tuple[str, list[str]]:
        """Return the C++ types of the block's layout, and of the passes."""
        elements, last = (step.C * step.K for step in self.steps), self.steps[-1]
        sizes = input_size(self.steps), last.L * last.K * last.R, self.run, self.gap, self.area
        return template_type("BlockLayout", *sizes, *elements), list(map(pass_type, self.passes))


def pass_fields(
    steps: tuple[Step, ...], itemsize: int, held: Sequence[int], small_block: int, shift: int = 0
) -> dict[str, Any] | None:
    """Return the attributes of a `PassTiling`, None where the registers of a team do not suffice.

    Parameters
    ----------
    held : sequence of int
        Numbers of elements that a thread may hold; that of the least estimated cost is taken.
    small_block : int
        Threads of a thread block of small teams.
    shift : int
        Bytes by which a block may begin inside its first 16-byte word.
    """
    if len(steps) > MAX_FIXED_MODES or max(max(s.C, s.K) for s in steps) > _MAX_FACTOR_SIZE:
        return None
    cutting = best_cutting(steps, held, itemsize)
    if cutting is None:
        return None
    team = cutting.team
    passes, run, gap = plan_passes(steps, cutting.cuts, itemsize)
    square = all(step.C == step.K for step in steps)
    largest = max(step.L * max(step.C, step.K) * step.R for step in steps)
    padded = largest + (largest // run - 1) * gap if gap else largest
    block = team if team > 32 else small_block
    return {
        "steps": steps,
        "passes": passes,
        "run": run,
        "gap": gap,
        "area": (matrix_bytes(padded, itemsize) + shift) // itemsize,
        "exchange": 0 if square or len(passes) == 1 else largest,
        "team": team,
        "block": block,
        "min_blocks": max(1, min(512 // block, cutting.resident // block)),
        "itemsize": itemsize,
    }
