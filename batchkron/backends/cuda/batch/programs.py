"""The kernels of batch lists, and of sums over lists of edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from batchkron.backends.cuda.general_kernel import Tiling
from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type
from batchkron.backends.cuda.steps import Step, steps_type

if TYPE_CHECKING:  # a process loads the modules of the kernels that it uses
    from batchkron.backends.cuda.batch.matrix_units import UnitTiling
    from batchkron.backends.cuda.batch.passes import BatchPass, HeldMode
    from batchkron.backends.cuda.batch.registers import RegisterTiling
    from batchkron.backends.cuda.batch.slices import SliceTiling
    from batchkron.backends.cuda.batch.unit_slices import UnitSliceTiling
    from batchkron.backends.cuda.segmented.staged_sums import StagedTiling
    from batchkron.backends.cuda.segmented.tiling import SegmentTiling


def batch_program(dtype: np.dtype[np.generic], tiling: Tiling, owner: bool) -> Program:
    """Return the kernel of a batch list."""
    scalar = SCALARS[dtype]
    return Program(
        "batched_kron.cuh",
        template_type(
            "batched_kron",
            scalar,
            steps_type(scalar, tiling.steps),
            tiling.width,
            tiling.threads,
            flag(owner),
            flag(tiling.staged),
            flag(tiling.in_shared),
        ),
    )


def register_batch_program(dtype: np.dtype[np.generic], tiling: RegisterTiling) -> Program:
    """Return the kernel of a batch list of single vectors whose blocks fit in registers."""
    elements = (step.C * step.K for step in tiling.steps)
    sizes = tiling.input_size, tiling.output_size, tiling.run, tiling.gap, tiling.area
    layout = template_type("BlockLayout", *sizes, *elements)
    cut = template_type(
        "RegisterCut",
        tiling.team,
        tiling.crew,
        tiling.cluster,
        tiling.block,
        tiling.stages,
        tiling.pitch,
        tiling.exchange,
    )
    flags = flag(tiling.short_ids), flag(tiling.identities)
    passes = map(_batch_pass, tiling.passes)
    return Program(
        "batched_registers.cuh",
        template_type(
            "batched_registers_cluster" if tiling.cluster > 1 else "batched_registers",
            SCALARS[dtype],
            layout,
            cut,
            tiling.least_blocks,
            *flags,
            *passes,
        ),
    )


def _batch_pass(one: BatchPass) -> str:
    spread = (template_type("SpreadMode", m.size, m.source, m.target) for m in one.spread)
    return template_type(
        "RegisterPass", _held_type(one.held), template_type("SpreadModes", *spread)
    )


def _held_type(held: Sequence[HeldMode]) -> str:
    modes = (template_type("HeldMode", m.step, m.C, m.K, m.source, m.target) for m in held)
    return template_type("HeldModes", *modes)


def slice_program(dtype: np.dtype[np.generic], tiling: SliceTiling) -> Program:
    """Return the kernel of a batch list of single vectors whose blocks are cut into slices."""
    split = tiling.steps[tiling.split]
    elements = (step.C * step.K for step in tiling.steps)
    sizes = tiling.split, split.C, split.K, tiling.parts, *tiling.slice_sizes, *tiling.run_sizes
    cut = tiling.warps, tiling.outputs, tiling.batch, flag(tiling.slots > 0)
    exchanged, stride = [], tiling.parts
    for s in tiling.exchanged:
        stride //= tiling.steps[s].C
        exchanged.append(template_type("ExchangedMode", s, tiling.steps[s].C, stride))
    return Program(
        "batched_slices.cuh",
        template_type(
            "batched_slices",
            SCALARS[dtype],
            template_type("BlockSlices", *sizes, *elements),
            template_type("SliceCut", *cut),
            tiling.least_blocks,
            flag(tiling.short_ids),
            flag(tiling.identities),
            _held_type(tiling.held),
            template_type("ExchangedModes", *exchanged),
        ),
    )


def unit_program(dtype: np.dtype[np.generic], tiling: UnitTiling) -> Program:
    """Return the kernel of a batch list of single vectors on matrix units of double precision."""
    elements = (step.C * step.K for step in tiling.steps)
    leading = (
        "batchkron::NoMode" if s is None else template_type("UnitMode", s, tiling.steps[s].C)
        for s in (tiling.split, tiling.lanes)
    )
    matrices = (_unit_matrix(dtype, tiling.steps, part) for part in (tiling.slow, tiling.fast))
    return Program(
        "batched_units.cuh",
        template_type(
            "batched_units",
            SCALARS[dtype],
            template_type("UnitLayout", *elements),
            template_type("UnitCut", tiling.crew, tiling.outputs, tiling.chunk),
            flag(tiling.short_ids),
            *leading,
            *matrices,
        ),
    )


def _unit_matrix(dtype: np.dtype[np.generic], steps: Sequence[Step], modes: Sequence[int]) -> str:
    """Return the type of a matrix of one or two modes."""
    if len(modes) == 2:
        return template_type("PairedModes", SCALARS[dtype], *modes)
    (mode,) = modes
    C, K = steps[mode].C, steps[mode].K
    return template_type("WideMode" if K > 8 else "NarrowMode", SCALARS[dtype], mode, C, K)


def unit_slice_program(dtype: np.dtype[np.generic], tiling: UnitSliceTiling) -> Program:
    """Return the kernel of a batch list whose products warps share on matrix units."""
    elements = (step.C * step.K for step in tiling.steps)
    return Program(
        "batched_unit_slices.cuh",
        template_type(
            "batched_unit_slices",
            SCALARS[dtype],
            template_type("UnitLayout", *elements),
            tiling.warps,
            tiling.blocks,
            flag(tiling.short_ids),
            template_type("UnitMode", tiling.leading, tiling.steps[tiling.leading].C),
            *(_unit_matrix(dtype, tiling.steps, (mode,)) for mode in (tiling.slow, tiling.fast)),
        ),
    )


def segmented_program(dtype: np.dtype[np.generic], tiling: SegmentTiling) -> Program:
    """Return the kernel of mode multiplies that are summed over lists of edges."""
    cut = template_type(
        "SegmentCut", tiling.team, tiling.teams, tiling.width, flag(tiling.in_shared)
    )
    modes = (
        template_type("SegmentMode", mode.L, mode.C, mode.K, mode.R, mode.items, mode.tile)
        for mode in tiling.modes
    )
    return Program(
        "segmented_multiply.cuh", template_type("segmented_multiply", SCALARS[dtype], cut, *modes)
    )


def staged_sums_program(dtype: np.dtype[np.generic], tiling: StagedTiling) -> Program:
    """Return the kernel of such sums whose blocks are staged in shared memory."""
    numbers = tiling.team, tiling.teams, tiling.slots, tiling.blocks, tiling.column
    cut = template_type("StagedCut", *numbers, flag(tiling.between))
    bundles = (template_type("ModeBundle", b.n, b.modes, b.L, b.R, b.items) for b in tiling.bundles)
    name = template_type("staged_sums", SCALARS[dtype], cut, *bundles)
    return Program("staged_sums.cuh", name)
