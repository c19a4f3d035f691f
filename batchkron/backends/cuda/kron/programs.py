"""The kernels of Kron-Matmuls, of products with diagonal matrices, and of explicit products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from batchkron.backends.cuda.general_kernel import Tiling
from batchkron.backends.cuda.kron.registers.passes import RegisterPass, staged_elements
from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type
from batchkron.backends.cuda.steps import steps_type

if TYPE_CHECKING:  # a process loads the modules of the kernels that it uses
    from batchkron.backends.cuda.explicit.tiling import ExplicitKernel, SegmentKernel
    from batchkron.backends.cuda.kron.fibres.layout import FibrePass, FibreTile
    from batchkron.backends.cuda.kron.panels import PanelTile
    from batchkron.backends.cuda.kron.registers.tile import RegisterTile
    from batchkron.backends.cuda.kron.slices import SliceTile


def diagonal_program(dtype: np.dtype[np.generic], threads: int, repeated: bool) -> Program:
    """Return the kernel of products with diagonal matrices."""
    options = SCALARS[dtype], threads, flag(repeated)
    return Program("diagonal.cuh", template_type("diagonal_multiply", *options))


def group_program(dtype: np.dtype[np.generic], tiling: Tiling) -> Program:
    """Return the kernel of one pass of a Kron-Matmul."""
    scalar = SCALARS[dtype]
    return Program(
        "kron_group.cuh",
        template_type(
            "kron_group",
            scalar,
            steps_type(scalar, tiling.steps),
            tiling.input_size,
            tiling.output_size,
            tiling.width,
            tiling.row_length,
            tiling.threads,
            flag(tiling.staged),
            flag(tiling.in_shared),
        ),
    )


def _pass_type(one: RegisterPass) -> str:
    registers = (
        f"batchkron::RegisterAxis<{a.factor}, {a.C}, {a.K}, {a.from_}, {a.to}>"
        for a in one.registers
    )
    threads = (
        f"batchkron::ThreadAxis<{a.size}, {a.bound}, {a.from_}, {a.to}>" for a in one.threads
    )
    return (
        f"batchkron::Pass<batchkron::RegisterAxes<{', '.join(registers)}>, "
        f"batchkron::ThreadAxes<{', '.join(threads)}>>"
    )


def register_program(dtype: np.dtype[np.generic], tile: RegisterTile) -> Program:
    """Return the kernel of neighbouring small factors that go through registers."""
    scalar = SCALARS[dtype]
    sizes = (
        f"batchkron::FactorSize<{C}, {K}>" for C, K in zip(tile.inputs, tile.outputs, strict=True)
    )
    constants, kind = 0, "Shared"
    if tile.constant:
        constants, kind = staged_elements(tile.inputs, tile.outputs, dtype.itemsize), "Constant"
    shape = (tile.slices, tile.columns, tile.R, math.prod(tile.inputs), math.prod(tile.outputs))
    room = (tile.buffer, tile.buffers, tile.threads, tile.blocks)
    return Program(
        "kron_registers.cuh",
        template_type(
            "kron_registers",
            scalar,
            f"batchkron::RegisterTile<{', '.join(map(str, shape + room))}>",
            f"batchkron::{kind}Factors<{scalar}, {', '.join(sizes)}>",
            *map(_pass_type, tile.passes),
        ),
        constants,
        scalar,
    )


_LINES, _NO_LEAD = "batchkron::InnerLines", "batchkron::NoLead"


def _axes_type(axes: Sequence[tuple[int, int]]) -> str:
    return template_type(
        "TileAxes", *(template_type("TileAxis", size, stride) for size, stride in axes)
    )


def _fibre_pass(one: FibrePass) -> str:
    if one.products:
        shape = one.C, one.K, one.stride, one.rows, one.across, flag(one.along)
        return template_type("Tf32Pass", *shape, one.split, one.products, _axes_type(one.fibres))
    sizes = one.C, one.K, one.stride, one.rows, one.columns, one.across
    return template_type("FibrePass", *sizes, flag(one.along), one.split, _axes_type(one.fibres))


def fibre_program(dtype: np.dtype[np.generic], tile: FibreTile) -> Program:
    """Return the kernel of neighbouring factors whose fibres are multiplied in place."""
    shape = (tile.slices, tile.columns, tile.input_size, tile.output_size, tile.word)
    room = (tile.buffer, tile.threads, tile.teams, tile.stages)
    axes = _axes_type(tile.inputs), _axes_type(tile.outputs)
    direct = template_type("DirectTarget", tile.step, _axes_type(tile.rows))
    return Program(
        "kron_fibres.cuh",
        template_type(
            "kron_fibres",
            SCALARS[dtype],
            template_type("FibreTile", *shape, *room, *axes, direct),
            *map(_fibre_pass, tile.passes),
        ),
    )


def kron_slices_program(dtype: np.dtype[np.generic], tile: SliceTile) -> Program:
    """Return the kernel of neighbouring factors whose tiles come slice by slice."""

    def one(sizes: Sequence[int]) -> str:
        return template_type("Composite", *sizes)

    eights = len(tile.outer) > 1
    if tile.columns > 1:
        inner = template_type("InnerColumns", *map(one, tile.inner)) if tile.inner else _LINES
    else:
        inner = template_type("InnerEights" if eights else "InnerSixteens", *map(one, tile.inner))
    outer = template_type("OuterEights" if eights else "OuterSixteen", *map(one, tile.outer))
    modes = one(tile.lead) if tile.lead else _NO_LEAD, outer, inner
    return Program(
        "kron_slices.cuh",
        template_type("kron_slices", SCALARS[dtype], *modes, tile.slots, tile.held),
    )


def panel_program(tile: PanelTile) -> Program:
    """Return the kernel of one large factor."""
    cut = tile.cut
    sizes = tile.C, tile.K, flag(tile.along), cut.fibres, cut.results, cut.depth
    share = cut.rows, cut.columns, cut.threads, cut.stages, cut.blocks
    return Program(
        "kron_panels.cuh",
        template_type(
            "kron_panels", SCALARS[tile.dtype], template_type("PanelCut", *sizes, *share)
        ),
    )


def explicit_program(dtype: np.dtype[np.generic], kernel: ExplicitKernel) -> Program:
    """Return the kernel of the explicit product in bands."""
    word = kernel.elements, kernel.bytes, kernel.entries
    offset = "batchkron::Index" if kernel.wide else "unsigned"
    share = kernel.threads, kernel.words, kernel.batch, flag(kernel.streaming)
    return Program(
        "explicit_kron.cuh", template_type("explicit_kron", SCALARS[dtype], *word, offset, *share)
    )


def segments_program(dtype: np.dtype[np.generic], kernel: SegmentKernel) -> Program:
    """Return the kernel of the explicit product in segments."""
    word = kernel.elements, kernel.bytes, kernel.threads, flag(kernel.streaming)
    return Program(
        "explicit_segments.cuh", template_type("explicit_segments", SCALARS[dtype], *word)
    )
