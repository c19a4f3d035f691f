"""How kernels for small matrices are specialised, ``csrc/cuda/kron_sparse/registers.cuh``."""

from __future__ import annotations

from dataclasses import dataclass

from batchkron.backends.cuda.kron_sparse.kernel import (
    SPARSE_SCALARS,
    SparseShape,
    common_pack,
    sum_dtype,
)
from batchkron.backends.cuda.runtime.program import Program, flag, template_type

THREADS = 128  # of a thread block
# Registers of a thread for its values and for what it reads of x, 4 bytes each; chosen by hand.
_MAX_REGISTERS = 112
_MAX_SIZE = 16  # largest number of rows or columns, as loops over them are unrolled
TURNS = (1, 4, 16)  # vectors that a thread multiplies by its values


@dataclass(frozen=True, slots=True)
class RegisterVariant:
    """Neighbouring places of a thread, and vectors that it multiplies."""

    width: int
    turns: int


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """All that the kernel is compiled for; ``shared_j``: a thread's places have one j."""

    dtype: str
    b: int
    c: int
    width: int
    shared_j: bool
    turns: int


def register_variants(shape: SparseShape) -> list[RegisterVariant]:
    """Return the variants that fit in registers."""
    widths = [width for width in (1, 2, 4, 8) if width <= shape.pack]
    found = (RegisterVariant(width, turns) for width in widths for turns in TURNS)
    return [one for one in found if register_tile(shape, one) is not None]


def register_tile(shape: SparseShape, variant: RegisterVariant) -> RegisterTile | None:
    """Return the tile of a variant, None if there is no such kernel."""
    width, turns = variant.width, variant.turns
    if width < 1 or turns not in TURNS or max(shape.b, shape.c) > _MAX_SIZE:
        return None
    if shape.inner > 1 and shape.inner % max(width, 1):
        return None
    if width != common_pack(max(1, shape.pack), width) or shape.d * shape.inner % width:
        return None
    if turns > 1 and turns >= 2 * shape.outer:
        return None
    shared_j = shape.inner > 1
    of_sum = sum_dtype(shape.dtype).itemsize
    values = shape.b * shape.c * (1 if shared_j else width) * of_sum
    read = shape.c * width * shape.itemsize + 2 * width * of_sum
    if (values + read) // 4 > _MAX_REGISTERS:
        return None
    return RegisterTile(shape.dtype, shape.b, shape.c, width, shared_j, turns)


def register_program(tile: RegisterTile, *options: str) -> Program:
    """Return the kernel of a tile; ``options``: further template arguments."""
    sizes = tile.b, tile.c, tile.width, flag(tile.shared_j), tile.turns, THREADS, *options
    return Program(
        "cuda/kron_sparse/registers.cuh",
        template_type("kron_sparse_registers", SPARSE_SCALARS[tile.dtype], *sizes),
    )
