"""The device templates, and the name of each specialisation of them.

A program is a header of ``csrc/cuda`` and a name expression in C++; NVRTC compiles it for the exact
shape. Nothing here needs a device.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from batchkron.backends.device_register_passes import RegisterPass, staged_elements
from batchkron.backends.device_tiling import MOST_FIXED_MODES, Step, Tiling

if TYPE_CHECKING:  # a process loads the modules of the kernels that it uses
    from batchkron.backends.device_batch_passes import BatchPass, HeldMode
    from batchkron.backends.device_batch_slices import SliceTiling
    from batchkron.backends.device_batch_unit_slices import UnitSliceTiling
    from batchkron.backends.device_batch_units import UnitTiling
    from batchkron.backends.device_batches import RegisterTiling
    from batchkron.backends.device_explicit import ExplicitKernel, SegmentKernel
    from batchkron.backends.device_fibre_layouts import FibrePass, FibreTile
    from batchkron.backends.device_kron_slices import SliceTile
    from batchkron.backends.device_panels import PanelTile
    from batchkron.backends.device_registers import RegisterTile
    from batchkron.backends.device_segments import SegmentTiling
    from batchkron.backends.device_staged_sums import StagedTiling
    from batchkron.backends.device_sums import SumTiling
    from batchkron.backends.krylov import Stage

_TYPES = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
    np.dtype(np.complex64): "batchkron::Complex<float>",
    np.dtype(np.complex128): "batchkron::Complex<double>",
}


@dataclass(frozen=True, slots=True)
class Program:
    """One kernel: the header that defines its template, and the specialisation's name.

    ``constants`` factors' elements of type ``scalar`` are constants of the kernel's module.
    """

    header: str
    expression: str
    constants: int = 0
    scalar: str = ""

    @property
    def source(self) -> str:
        """The translation unit to compile."""
        include = f'#include "{self.header}"\n'
        if not self.constants:
            return include
        return (
            '#include "scalar.cuh"\n'
            f"#define BATCHKRON_SCALAR {self.scalar}\n"
            f"#define BATCHKRON_CONSTANTS {self.constants}\n{include}"
        )


def _sources_folder() -> Traversable:
    """Return the folder of the templates.

    Wheels hold it as ``batchkron/cuda``. An editable install leaves files where they are in the
    source tree: ``csrc/cuda`` beside the package.
    """
    packaged = files("batchkron") / "cuda"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "csrc" / "cuda"


@lru_cache(maxsize=1)
def device_sources() -> Mapping[str, str]:
    """Return the text of every header, by name.

    Raises
    ------
    FileNotFoundError
        If the installation lacks them.
    """
    folder = _sources_folder()
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".cuh")]
    if not found:
        raise FileNotFoundError(f"{folder} holds no device templates; install batchkron again")
    return {entry.name: entry.read_text() for entry in sorted(found, key=lambda e: e.name)}


def compile_options(compute_capability: str) -> tuple[str, ...]:
    """Return NVRTC's options for a compute capability such as "90".

    Unmarked functions are the device's: NVRTC before 13.1 takes lambdas in them for the host's.
    """
    return (f"-arch=sm_{compute_capability}", "-std=c++17", "-lineinfo", "-default-device")


def program_key(
    program: Program, sources: Mapping[str, str], options: Sequence[str], compiler: str
) -> str:
    """Return a hash of all that decides what a compilation yields."""
    digest = hashlib.sha256()
    parts = [compiler, *options, program.source, program.expression]
    for name in sorted(sources):
        parts += [name, sources[name]]
    for part in parts:
        encoded = part.encode()
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()


def has_fixed_steps(steps: Sequence[Step]) -> bool:
    """Whether the sizes of the steps are compiled into the kernel."""
    return len(steps) <= MOST_FIXED_MODES


def _steps_type(scalar: str, steps: Sequence[Step]) -> str:
    if not has_fixed_steps(steps):
        return f"batchkron::RuntimeSteps<{scalar}>"
    fixed = (f"batchkron::FixedStep<{s.L}, {s.C}, {s.K}, {s.R}, {s.tile}>" for s in steps)
    return f"batchkron::FixedSteps<{scalar}, {', '.join(fixed)}>"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _type(template: str, *arguments: object) -> str:
    return f"batchkron::{template}<{', '.join(map(str, arguments))}>"


def batch_program(dtype: np.dtype[np.generic], tiling: Tiling, owner: bool) -> Program:
    """Return the kernel of a batch list."""
    scalar = _TYPES[dtype]
    return Program(
        "batched_kron.cuh",
        _type(
            "batched_kron",
            scalar,
            _steps_type(scalar, tiling.steps),
            tiling.width,
            tiling.threads,
            _flag(owner),
            _flag(tiling.staged),
            _flag(tiling.in_shared),
        ),
    )


def diagonal_program(dtype: np.dtype[np.generic], threads: int, repeated: bool) -> Program:
    """Return the kernel of products with diagonal matrices."""
    options = _TYPES[dtype], threads, _flag(repeated)
    return Program("diagonal.cuh", _type("diagonal_multiply", *options))


def group_program(dtype: np.dtype[np.generic], tiling: Tiling) -> Program:
    """Return the kernel of one pass of a Kron-Matmul."""
    scalar = _TYPES[dtype]
    return Program(
        "kron_group.cuh",
        _type(
            "kron_group",
            scalar,
            _steps_type(scalar, tiling.steps),
            tiling.input_size,
            tiling.output_size,
            tiling.width,
            tiling.row_length,
            tiling.threads,
            _flag(tiling.staged),
            _flag(tiling.in_shared),
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
    scalar = _TYPES[dtype]
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
        _type(
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
    return _type("TileAxes", *(_type("TileAxis", size, stride) for size, stride in axes))


def _fibre_pass(one: FibrePass) -> str:
    if one.products:
        shape = one.C, one.K, one.stride, one.rows, one.across, _flag(one.along)
        return _type("Tf32Pass", *shape, one.split, one.products, _axes_type(one.fibres))
    sizes = one.C, one.K, one.stride, one.rows, one.columns, one.across
    return _type("FibrePass", *sizes, _flag(one.along), one.split, _axes_type(one.fibres))


def fibre_program(dtype: np.dtype[np.generic], tile: FibreTile) -> Program:
    """Return the kernel of neighbouring factors whose fibres are multiplied in place."""
    shape = (tile.slices, tile.columns, tile.input_size, tile.output_size, tile.word)
    room = (tile.buffer, tile.threads, tile.teams, tile.stages)
    axes = _axes_type(tile.inputs), _axes_type(tile.outputs)
    direct = _type("DirectTarget", tile.step, _axes_type(tile.rows))
    return Program(
        "kron_fibres.cuh",
        _type(
            "kron_fibres",
            _TYPES[dtype],
            _type("FibreTile", *shape, *room, *axes, direct),
            *map(_fibre_pass, tile.passes),
        ),
    )


def kron_slices_program(dtype: np.dtype[np.generic], tile: SliceTile) -> Program:
    """Return the kernel of neighbouring factors whose tiles come slice by slice."""

    def one(sizes: Sequence[int]) -> str:
        return _type("Composite", *sizes)

    eights = len(tile.outer) > 1
    if tile.columns > 1:
        inner = _type("InnerColumns", *map(one, tile.inner)) if tile.inner else _LINES
    else:
        inner = _type("InnerEights" if eights else "InnerSixteens", *map(one, tile.inner))
    outer = _type("OuterEights" if eights else "OuterSixteen", *map(one, tile.outer))
    modes = one(tile.lead) if tile.lead else _NO_LEAD, outer, inner
    return Program(
        "kron_slices.cuh", _type("kron_slices", _TYPES[dtype], *modes, tile.slots, tile.held)
    )


def panel_program(tile: PanelTile) -> Program:
    """Return the kernel of one large factor."""
    cut = tile.cut
    sizes = tile.C, tile.K, _flag(tile.along), cut.fibres, cut.results, cut.depth
    share = cut.rows, cut.columns, cut.threads, cut.stages, cut.blocks
    return Program(
        "kron_panels.cuh",
        _type("kron_panels", _TYPES[tile.dtype], _type("PanelCut", *sizes, *share)),
    )


def explicit_program(dtype: np.dtype[np.generic], kernel: ExplicitKernel) -> Program:
    """Return the kernel of the explicit product in bands."""
    word = kernel.elements, kernel.bytes, kernel.entries
    offset = "batchkron::Index" if kernel.wide else "unsigned"
    share = kernel.threads, kernel.words, kernel.batch, _flag(kernel.streaming)
    return Program(
        "explicit_kron.cuh", _type("explicit_kron", _TYPES[dtype], *word, offset, *share)
    )


def segments_program(dtype: np.dtype[np.generic], kernel: SegmentKernel) -> Program:
    """Return the kernel of the explicit product in segments."""
    word = kernel.elements, kernel.bytes, kernel.threads, _flag(kernel.streaming)
    return Program("explicit_segments.cuh", _type("explicit_segments", _TYPES[dtype], *word))


def register_batch_program(dtype: np.dtype[np.generic], tiling: RegisterTiling) -> Program:
    """Return the kernel of a batch list of single vectors whose blocks fit in registers."""
    elements = (step.C * step.K for step in tiling.steps)
    sizes = tiling.input_size, tiling.output_size, tiling.run, tiling.gap, tiling.area
    layout = _type("BlockLayout", *sizes, *elements)
    cut = _type(
        "RegisterCut",
        tiling.team,
        tiling.crew,
        tiling.cluster,
        tiling.block,
        tiling.stages,
        tiling.pitch,
        tiling.exchange,
    )
    flags = _flag(tiling.short_ids), _flag(tiling.identities)
    passes = map(_batch_pass, tiling.passes)
    return Program(
        "batched_registers.cuh",
        _type(
            "batched_registers_cluster" if tiling.cluster > 1 else "batched_registers",
            _TYPES[dtype],
            layout,
            cut,
            tiling.least_blocks,
            *flags,
            *passes,
        ),
    )


def _batch_pass(one: BatchPass) -> str:
    spread = (_type("SpreadMode", m.size, m.source, m.target) for m in one.spread)
    return _type("RegisterPass", _held_type(one.held), _type("SpreadModes", *spread))


def _held_type(held: Sequence[HeldMode]) -> str:
    modes = (_type("HeldMode", m.step, m.C, m.K, m.source, m.target) for m in held)
    return _type("HeldModes", *modes)


def slice_program(dtype: np.dtype[np.generic], tiling: SliceTiling) -> Program:
    """Return the kernel of a batch list of single vectors whose blocks are cut into slices."""
    split = tiling.steps[tiling.split]
    elements = (step.C * step.K for step in tiling.steps)
    sizes = tiling.split, split.C, split.K, tiling.parts, *tiling.slice_sizes
    cut = tiling.warps, tiling.outputs, tiling.batch, _flag(tiling.slots > 0)
    exchanged, stride = [], tiling.parts
    for s in tiling.exchanged:
        stride //= tiling.steps[s].C
        exchanged.append(_type("ExchangedMode", s, tiling.steps[s].C, stride))
    return Program(
        "batched_slices.cuh",
        _type(
            "batched_slices",
            _TYPES[dtype],
            _type("BlockSlices", *sizes, *elements),
            _type("SliceCut", *cut),
            tiling.least_blocks,
            _flag(tiling.short_ids),
            _flag(tiling.identities),
            _held_type(tiling.held),
            _type("ExchangedModes", *exchanged),
        ),
    )


def system_sum_type(dtype: np.dtype[np.generic], tiling: SumTiling) -> str:
    """Return how a thread block applies the Kronecker sum of a system."""
    return _type("SystemSum", _TYPES[dtype], tiling.threads, *tiling.sizes)


def sum_program(dtype: np.dtype[np.generic], tiling: SumTiling) -> Program:
    """Return the kernel of Kronecker sums of many systems."""
    return Program("kron_sum.cuh", _type("kron_sum", _TYPES[dtype], system_sum_type(dtype, tiling)))


def unit_program(dtype: np.dtype[np.generic], tiling: UnitTiling) -> Program:
    """Return the kernel of a batch list of single vectors on matrix units of double precision."""
    elements = (step.C * step.K for step in tiling.steps)
    leading = (
        "batchkron::NoMode" if s is None else _type("UnitMode", s, tiling.steps[s].C)
        for s in (tiling.split, tiling.lanes)
    )
    matrices = (_unit_matrix(dtype, tiling.steps, part) for part in (tiling.slow, tiling.fast))
    return Program(
        "batched_units.cuh",
        _type(
            "batched_units",
            _TYPES[dtype],
            _type("UnitLayout", *elements),
            _type("UnitCut", tiling.crew, tiling.outputs, tiling.chunk),
            _flag(tiling.short_ids),
            *leading,
            *matrices,
        ),
    )


def _unit_matrix(dtype: np.dtype[np.generic], steps: Sequence[Step], modes: Sequence[int]) -> str:
    """Return the type of a matrix of one or two modes."""
    if len(modes) == 2:
        return _type("PairedModes", _TYPES[dtype], *modes)
    (mode,) = modes
    C, K = steps[mode].C, steps[mode].K
    return _type("WideMode" if K > 8 else "NarrowMode", _TYPES[dtype], mode, C, K)


def unit_slice_program(dtype: np.dtype[np.generic], tiling: UnitSliceTiling) -> Program:
    """Return the kernel of a batch list whose products warps share on matrix units."""
    elements = (step.C * step.K for step in tiling.steps)
    return Program(
        "batched_unit_slices.cuh",
        _type(
            "batched_unit_slices",
            _TYPES[dtype],
            _type("UnitLayout", *elements),
            tiling.warps,
            tiling.blocks,
            _flag(tiling.short_ids),
            _type("UnitMode", tiling.leading, tiling.steps[tiling.leading].C),
            *(_unit_matrix(dtype, tiling.steps, (mode,)) for mode in (tiling.slow, tiling.fast)),
        ),
    )


BASIS_KERNELS = {  # of the passes of GMRES over its basis
    ("GmresProject",): "krylov_project",
    ("GmresExtend",): "krylov_extend",
    ("GmresProject", "GmresExtend"): "krylov_step",
    ("GmresCombine",): "krylov_combine",
}


def krylov_program(
    dtype: np.dtype[np.generic], names: Sequence[str], threads: int, whole: bool
) -> Program:
    """Return the kernel of passes of a Krylov method over single elements.

    Several at once where a thread block owns a system (``whole``), else one.
    """
    scalar = _TYPES[dtype]
    passes = (f"batchkron::device::{name}<{scalar}>" for name in names)
    kernel = "krylov_whole" if whole else "krylov_part"
    return Program("krylov_passes.cuh", _type(kernel, scalar, threads, *passes))


def basis_program(
    dtype: np.dtype[np.generic], names: Sequence[str], threads: int, staged: bool
) -> Program:
    """Return the kernel of passes of ``BASIS_KERNELS``; ``staged`` matters to all but the last."""
    kernel = BASIS_KERNELS[tuple(names)]
    options = [] if kernel == "krylov_combine" else [_flag(staged)]
    return Program("krylov_basis.cuh", _type(kernel, _TYPES[dtype], threads, *options))


def krylov_systems_program(
    dtype: np.dtype[np.generic], tiling: SumTiling, stages: Sequence[Stage], kept: int, count: int
) -> Program:
    """Return the kernel of whole iterations of a method with ``count`` vectors."""
    scalar = _TYPES[dtype]
    types = []
    for stage in stages:
        if stage.name:
            one = f"batchkron::device::{stage.name}<{scalar}>"
            types.append(_type("device::Do", one, *stage.vectors))
        else:
            types.append(_type("device::Product", *stage.vectors))
    of = scalar, system_sum_type(dtype, tiling), kept, count
    return Program("krylov_systems.cuh", _type("krylov_systems", *of, *types))


def segmented_program(dtype: np.dtype[np.generic], tiling: SegmentTiling) -> Program:
    """Return the kernel of mode multiplies that are summed over lists of edges."""
    cut = _type("SegmentCut", tiling.team, tiling.teams, tiling.width, _flag(tiling.in_shared))
    modes = (
        _type("SegmentMode", mode.L, mode.C, mode.K, mode.R, mode.items, mode.tile)
        for mode in tiling.modes
    )
    return Program(
        "segmented_multiply.cuh", _type("segmented_multiply", _TYPES[dtype], cut, *modes)
    )


def staged_sums_program(dtype: np.dtype[np.generic], tiling: StagedTiling) -> Program:
    """Return the kernel of such sums whose blocks are staged in shared memory."""
    numbers = tiling.team, tiling.teams, tiling.slots, tiling.blocks, tiling.column
    cut = _type("StagedCut", *numbers, _flag(tiling.between))
    bundles = (_type("ModeBundle", b.n, b.modes, b.L, b.R, b.items) for b in tiling.bundles)
    name = _type("staged_sums", _TYPES[dtype], cut, *bundles)
    return Program("staged_sums.cuh", name)
