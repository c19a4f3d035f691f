"""What multiplying fibres of single precision costs on matrix units, whose operands have 11 bits.

See ``csrc/cuda/kron/fibres/tf32.cuh``. Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchkron.spec.kron import Precision

# multiply-adds of matrix units for each one of single precision
PRODUCTS: dict[Precision | None, int] = {None: 0, "tf32": 1, "tf32x3": 3}

_FRAGMENT_FIBRES = 16  # of a matrix-unit multiply-add of 16 x 8 x 8
_BLOCKS = (1, 2, 4)  # how many times 16 fibres a warp takes at a time
_SHARERS = (1, 2, 4, 8)  # warps that share a fibre's results
_OTHER_REGISTERS = 52  # of a thread for parts of factors and addresses

# Estimated times, in cycles of a multiprocessor of an H200: its units do 318 TFLOP/s, the others
# are counts of instructions, not fitted to measured kernels.
_SCALE = 0.75  # makes them comparable with the fitted ones of `cost`
_MATRIX_MULTIPLY_ADD = 6  # a 16 x 8 x 8 multiply-add on one of four matrix units
_MATRIX_LATENCY = 35  # between two of these that add to the same sums
_SPLIT_INSTRUCTIONS = 3  # that split a number into a leading and a trailing TF32 part
_ROUNDING_INSTRUCTIONS = 4  # that round a number to TF32, as the compiler makes them
_HIDDEN_SHARE = 0.3  # of the time of all but the slowest resource that adds to the total
_FRAGMENT_OVERHEAD = 60  # addresses of a warp's fibres, and the wait before they are overwritten


@dataclass(frozen=True, slots=True)
class Tf32Cut:
    """How the warps of a team share a pass, see ``Tf32Pass`` of the kernel.

    Attributes
    ----------
    cycles : float
        Estimated, on a quarter of a multiprocessor.
    blocks : int
        Of 16 fibres, of a warp.
    sharers : int
        Warps that share a fibre's results.
    staged : int
        Elements of the factor in shared memory.
    """

    cycles: float
    blocks: int
    sharers: int
    staged: int


def tf32_cut(
    C: int, K: int, fibres: int, warps: int, registers: int, products: int
) -> Tf32Cut | None:
    """Return the fastest way for a team of ``warps``, None where no sums fit in ``registers``."""
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
            cycles += 16 * blocks * tiles + _FRAGMENT_OVERHEAD  # its results go to shared memory
            items = -(-fibres // (_FRAGMENT_FIBRES * blocks))
            cycles *= _SCALE * -(-items // (warps // sharers))
            if best is None or cycles < best.cycles:
                best = Tf32Cut(cycles, blocks, sharers, sharers * tiles * steps * 64)
    return best


def _step(blocks: int, tiles: int, products: int) -> float:
    """Return the cycles of eight entries of a warp's fibres and of their factors' rows."""
    multiplies = products * blocks * tiles
    loads = 4 * (4 * blocks + 2 * tiles)  # of shared memory, which four warps share
    prepared = (
        _SPLIT_INSTRUCTIONS * (4 * blocks + 2 * tiles)
        if products > 1
        else _ROUNDING_INSTRUCTIONS * 4 * blocks
    )
    issued = multiplies + 4 * blocks + tiles + prepared
    parts = [_MATRIX_MULTIPLY_ADD * multiplies, loads, issued]
    slowest = max(*parts, _MATRIX_LATENCY * min(products, 2))
    return slowest + _HIDDEN_SHARE * (sum(parts) - max(parts))
