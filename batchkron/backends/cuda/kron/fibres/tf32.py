"""The cost of multiplying float32 fibres on matrix units in TF32, whose significands have 11 bits.

Pure arithmetic on sizes, no device needed; the kernel's part is ``csrc/cuda/kron/fibres/tf32.cuh``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from batchkron.spec.kron import Precision

# TF32 multiply-adds of matrix units for each one in float32, by requested precision; 0: none.
PRODUCTS: dict[Precision | None, int] = {None: 0, "tf32": 1, "tf32x3": 3}

_FRAGMENT_FIBRES = 16  # fibres of a matrix-unit multiply-add of 16 x 8 x 8
_BLOCKS = (1, 2, 4)  # choices for the blocks of 16 fibres that a warp multiplies at a time
_SHARERS = (1, 2, 4, 8)  # choices for the warps that share a fibre's results
_OTHER_REGISTERS = 52  # registers of a thread for parts of factors and addresses

# Estimated times in cycles of a multiprocessor of an H200. They follow from the rate of its matrix
# units, 318 TFLOP/s, and from counts of instructions; they were not fitted to measured kernels.
_SCALE = 0.75  # makes them comparable with the fitted weights of `cuts`
_MATRIX_MULTIPLY_ADD = 6  # a 16 x 8 x 8 multiply-add on one of four matrix units
_MATRIX_LATENCY = 35  # between two of these that add to the same sums
_SPLIT_INSTRUCTIONS = 3  # instructions to split a number into a leading and a trailing TF32 part
_ROUNDING_INSTRUCTIONS = 4  # instructions to round a number to TF32, as compiled
_HIDDEN_SHARE = 0.3  # share of the time of all resources but the slowest that adds to the total
_FRAGMENT_OVERHEAD = 60  # addresses of a warp's fibres, and the barrier before they are overwritten


@dataclass(frozen=True, slots=True)
class Tf32Cut:
    """How the warps of a team share a pass, see ``Tf32Pass`` of the kernel.

    Attributes
    ----------
    cycles : float
        Estimated time on one of the four schedulers of a multiprocessor.
    blocks : int
        Blocks of 16 fibres that a warp multiplies at a time.
    sharers : int
        Warps that share a fibre's results.
    staged : int
        Elements of the factor in shared memory.
    """

    cycles: float
    blocks: int
    sharers: int
    staged: int


@lru_cache(maxsize=8192)  # cuts of many runs have the same passes
def tf32_cut(
    C: int, K: int, fibres: int, warps: int, registers: int, products: int
) -> Tf32Cut | None:
    """Return the fastest division among ``warps`` warps, None if no sums fit in ``registers``."""
    steps, all_tiles = -(-C // 8), -(-K // 8)
    best: Tf32Cut | None = None
    for sharers in _SHARERS:
        if warps % sharers or sharers > all_tiles:
            continue
        tiles = -(-all_tiles // sharers)
        for blocks in _BLOCKS:
            sums = 4 * blocks * tiles * (2 if products > 1 else 1)
            entries = blocks * (12 if products > 1 else 8)
            if sums + entries + _OTHER_REGISTERS > registers:
                continue
            cycles = _step(blocks, tiles, products) * steps
            cycles += 16 * blocks * tiles + _FRAGMENT_OVERHEAD  # storing results in shared memory
            items = -(-fibres // (_FRAGMENT_FIBRES * blocks))
            cycles *= _SCALE * -(-items // (warps // sharers))
            if best is None or cycles < best.cycles:
                best = Tf32Cut(cycles, blocks, sharers, sharers * tiles * steps * 64)
    return best


def _step(blocks: int, tiles: int, products: int) -> float:
    """Return the cycles in which a warp multiplies 8 entries of its fibres."""
    multiplies = products * blocks * tiles
    loads = 4 * (4 * blocks + 2 * tiles)  # from shared memory, whose bandwidth four warps share
    prepared = (
        _SPLIT_INSTRUCTIONS * (4 * blocks + 2 * tiles)
        if products > 1
        else _ROUNDING_INSTRUCTIONS * 4 * blocks
    )
    issued = multiplies + 4 * blocks + tiles + prepared
    parts = [_MATRIX_MULTIPLY_ADD * multiplies, loads, issued]
    slowest = max(*parts, _MATRIX_LATENCY * min(products, 2))
    return slowest + _HIDDEN_SHARE * (sum(parts) - max(parts))
