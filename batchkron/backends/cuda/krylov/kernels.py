"""Kernels and launches for the passes of Krylov methods.

If systems are small or many, one thread block owns each system, and passes over single elements
are fused into one kernel. Otherwise several thread blocks share a system, and each pass is a kernel
of its own; the blocks write partial sums, which the last block of a system adds up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape
from batchkron.backends.cuda.kron_sum.systems import SumTiling, system_sum_type
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import SCALARS, Program, device_program, template_type
from batchkron.backends.krylov_arguments import MAX_SUMS, Stage

# Numbers below were chosen by hand where no source is given.
_SINGLE_BLOCK_UNKNOWNS = 8192  # unknowns of a system up to which one thread block is fastest
_PART_THREADS = 256  # threads of a thread block that shares a system
# With fewer elements per thread, adding up the sums of another thread block costs more than it
# gains.
_MIN_ELEMENTS_PER_THREAD = 4
_BLOCKS_PER_PROCESSOR = 4  # thread blocks wanted on each multiprocessor
_THREAD_ELEMENTS = 4  # kThreadElements of cuda/krylov/basis.cuh; kRow is _PART_THREADS
# Threads of a thread block in passes over the basis, if a multiprocessor has one block at most,
# which can use all its registers.
_PROJECT_THREADS, _EXTEND_THREADS = 512, 1024
# The kernels of the passes of GMRES over its basis, by names of passes.
BASIS_KERNELS = {
    ("GmresProject",): "krylov_project",
    ("GmresExtend",): "krylov_extend",
    ("GmresProject", "GmresExtend"): "krylov_step",
    ("GmresCombine",): "krylov_combine",
}
# Passes that have no sums; those over vectors of several ranks need no exchange then.
SUMLESS = {
    "BicgstabDirection",
    "CgDirection",
    "GmresAccept",
    "GmresCombine",
    "GmresCorrect",
    "MinresBegin",
    "ScaleResidual",
}
_AFTER_THREADS = 128  # threads of a block that goes on with the scalars of as many systems
_BASIS_PASSES = {name for names in BASIS_KERNELS for name in names}
# Registers of a thread for a system's vectors; the product needs as many more.
_SYSTEM_REGISTERS = 128


FAMILY = Family("krylov", "passes", lambda *work: None)


def _kernel(program: Program, blocks: int, threads: int, shared: int) -> Kernel:
    """Return a kernel; a call passes all of its arguments."""
    launch = LaunchShape(blocks, threads, 1, shared)
    return Kernel(FAMILY, None, None, program, launch, np.empty(0, np.uint8))


def parts_of(n: int, systems: int, processors: int) -> int:
    """Return how many thread blocks share a system; 1 if one block owns it."""
    wanted = _BLOCKS_PER_PROCESSOR * processors
    if n <= _SINGLE_BLOCK_UNKNOWNS or systems >= wanted:
        return 1
    useful = -(-n // (_PART_THREADS * _MIN_ELEMENTS_PER_THREAD))
    return max(1, min(useful, wanted // max(systems, 1)))


def _threads(n: int, per_thread: int, maximum: int) -> int:
    wanted = -(-n // per_thread)
    return max(32, min(maximum, -(-wanted // 32) * 32))


def _pass(name: str, scalar: str) -> str:
    return f"batchkron::device::{name}<{scalar}>"


def _element_room(threads: int) -> int:
    """Return the bytes of shared memory of a kernel of passes over single elements."""
    return 8 * ((threads // 32 + 1) * MAX_SUMS + 1)


def _basis_room(
    names: Sequence[str], dtype: np.dtype[np.generic], threads: int, restart: int, staged: bool
) -> int:
    """Return the shared bytes of a pass over the basis, small arrays included if ``staged``."""
    warps, reals = threads // 32, _reals(dtype)
    words = warps + 3
    if "GmresProject" in names:
        words = warps * (2 * restart * reals + 2 + reals) + 1
    if staged:
        words += (7 * reals + 2) * (restart + 1)
    return 8 * words + (0 if names == ["GmresProject"] else 2 * restart * dtype.itemsize)


def _reals(dtype: np.dtype[np.generic]) -> int:
    return 2 if dtype.kind == "c" else 1


def _fitting_room(
    names: Sequence[str],
    dtype: np.dtype[np.generic],
    threads: int,
    restart: int,
    staged: bool,
    maximum: int,
) -> tuple[int, int]:
    """Return threads and shared bytes of a pass over the basis that fit; ValueError if none do."""
    shared = _basis_room(names, dtype, threads, restart, staged)
    while shared > maximum and threads > 32:
        threads //= 2
        shared = _basis_room(names, dtype, threads, restart, staged)
    if shared > maximum:
        raise ValueError(
            f"restart is {restart}; the device has shared memory for the sums of "
            f"{restart * maximum // shared} basis vectors"
        )
    return threads, shared


def systems_kernel(
    dtype: np.dtype[np.generic],
    tiling: SumTiling,
    systems: int,
    stages: Sequence[Stage],
    kept: int,
    count: int,
    limits: DeviceLimits,
) -> Kernel | None:
    """Return the kernel of whole iterations, None if a system does not fit in a thread block.

    ``count`` vectors of a system are in registers; the first ``kept`` of them are read before the
    iterations and written after them.
    """
    words = tiling.held * count * dtype.itemsize // 4
    shared = tiling.elements * dtype.itemsize + 8 * ((tiling.threads // 32 + 1) * MAX_SUMS + 2)
    if words > _SYSTEM_REGISTERS or shared > limits.shared_bytes:
        return None
    scalar = SCALARS[dtype]
    work = (
        template_type("device::Do", _pass(stage.name, scalar), *stage.vectors)
        if stage.name
        else template_type("device::Product", *stage.vectors)
        for stage in stages
    )
    of = scalar, system_sum_type(dtype, tiling), kept, count
    program = device_program("krylov/systems", "krylov_systems", *of, *work)
    return _kernel(program, systems, tiling.threads, shared)


def krylov_kernels(
    names: Sequence[str],
    dtype: np.dtype[np.generic],
    n: int,
    systems: int,
    restart: int,
    limits: DeviceLimits,
) -> list[Kernel]:
    """Return the kernels of passes in order; ValueError if ``restart`` vectors do not fit."""
    parts, scalar = parts_of(n, systems, limits.multiprocessors), SCALARS[dtype]
    kernels: list[Kernel] = []
    for group in _groups(names, parts == 1):
        if tuple(group) in BASIS_KERNELS:
            kernels.append(_basis_kernel(group, dtype, n, systems, parts, restart, limits))
            continue
        threads = _PART_THREADS if parts > 1 else _threads(n, 2, 1024)
        kernel = "krylov_whole" if parts == 1 else "krylov_part"
        passes = (_pass(name, scalar) for name in group)
        program = device_program("krylov/passes", kernel, scalar, threads, *passes)
        kernels.append(_kernel(program, systems * parts, threads, _element_room(threads)))
    return kernels


def _basis_kernel(
    names: list[str],
    dtype: np.dtype[np.generic],
    n: int,
    systems: int,
    parts: int,
    restart: int,
    limits: DeviceLimits,
) -> Kernel:
    """Return the kernel of passes over the basis, a key of ``BASIS_KERNELS``."""
    combines, maximum = names == ["GmresCombine"], limits.shared_bytes
    threads = _PART_THREADS if parts > 1 else _threads(n, _THREAD_ELEMENTS, _PART_THREADS)
    if systems * parts <= limits.multiprocessors and not combines and threads == _PART_THREADS:
        threads = _PROJECT_THREADS if "GmresProject" in names else _EXTEND_THREADS
    staged = not combines and _basis_room(names, dtype, 32, restart, True) <= maximum
    threads, shared = _fitting_room(names, dtype, threads, restart, staged, maximum)
    options = [] if combines else [staged]
    kernel = BASIS_KERNELS[tuple(names)]
    program = device_program("krylov/basis", kernel, dtype, threads, *options)
    return _kernel(program, systems * parts, threads, shared)


RankPass = tuple[Kernel, Kernel | None, str]
"""A pass over vectors that are spread over ranks: over this rank's elements, all of it if it has no
sums; what follows from the sums of all ranks; its name."""


def rank_sums(name: str, column: int, dtype: np.dtype[np.generic]) -> int:
    """Return how many sums of a system ranks exchange in a pass, in a column of a basis."""
    reals = _reals(dtype)
    if name == "GmresProject":
        return 2 * column * reals + 2 + reals
    return 1 if name == "GmresExtend" else MAX_SUMS


def rank_passes(
    names: Sequence[str],
    dtype: np.dtype[np.generic],
    n: int,
    systems: int,
    restart: int,
    limits: DeviceLimits,
) -> list[RankPass]:
    """Return passes over this rank's n elements of each system; ValueError as `krylov_kernels`."""
    parts = parts_of(n, systems, limits.multiprocessors)
    threads = _PART_THREADS if parts > 1 else _threads(n, 2, _PART_THREADS)
    scalar, found = SCALARS[dtype], list[RankPass]()
    for name in names:
        if name in SUMLESS:
            (alone,) = krylov_kernels([name], dtype, n, systems, restart, limits)
            found.append((alone, None, name))
        elif name in _RANK_KERNELS:
            own, shared = _fitting_room([name], dtype, threads, restart, False, limits.shared_bytes)
            sums, after = _RANK_KERNELS[name]
            room = 8 * (2 * restart * _reals(dtype) + 4) if name == "GmresProject" else 0
            first = _rank_kernel((sums, scalar, own), systems * parts, own, shared)
            found.append((first, _rank_kernel((after, scalar), systems, 32, room), name))
        else:
            one, room = _pass(name, scalar), _element_room(threads)
            sums_of = "krylov_part_sums", scalar, threads, one
            after_of = "krylov_after_sums", scalar, _AFTER_THREADS, one
            blocks = -(-systems // _AFTER_THREADS)
            first = _rank_kernel(sums_of, systems * parts, threads, room)
            found.append((first, _rank_kernel(after_of, blocks, _AFTER_THREADS, 0), name))
    return found


def _rank_kernel(template: tuple[object, ...], blocks: int, threads: int, shared: int) -> Kernel:
    program = device_program("krylov/ranks", str(template[0]), *template[1:])
    return _kernel(program, blocks, threads, shared)


# The kernels of a pass over the basis: before and after the ranks exchange their sums.
_RANK_KERNELS = {
    "GmresProject": ("krylov_project_sums", "krylov_after_project"),
    "GmresExtend": ("krylov_extend_sums", "krylov_after_extend"),
}


def _groups(names: Sequence[str], whole: bool) -> list[list[str]]:
    """Return which passes share a kernel: neighbours of one kind where a block owns a system."""
    groups: list[list[str]] = []
    for name in names:
        together = [*groups[-1], name] if groups and whole else []
        known = tuple(together) in BASIS_KERNELS
        if known or (together and not _BASIS_PASSES.intersection(together)):
            groups[-1] = together
        else:
            groups.append([name])
    return groups
