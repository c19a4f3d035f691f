"""Batch lists beyond ASGarD's, and operators on sparse grids: which are measured, and their floors.

Lists have any factors, 32 million unknowns, or several vectors.
"""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from benchmarks.gpu.cases.cases import BATCH_FLOPS, COPY, FLOPS, GATHER, ListCase, power

SECTOR = 32  # bytes that memory and caches move at least
HUGE = 32_000_000  # unknowns of an x larger than the second-level cache
OVER_FLOOR = 1.7  # goal: time over the floor
OVER_MEASURED_FLOOR = 1.5  # the goal where the rate of gathers is measured in the same run
EDGE_BYTES = 8  # the indices of a block and of a matrix
GOAL = 0.4  # floor over time, on grids of at least LARGE unknowns
LARGE = 10_000_000


def padded_flops(case):
    """Flops on matrix units of 16 × 8 × 4 multiply-adds, each product padded to whole units."""
    rows = case.as_rows
    size, total = rows.columns[0], 0
    for mode in rows.cheapest_order:
        C, K = rows.factors[mode]
        fibres = size // C
        pairs = min(_up(fibres, 16) * _up(K, 8), _up(fibres, 8) * _up(K, 16))
        total += 2 * pairs * _up(C, 4)
        size = fibres * K
    return float(total * rows.rows)


def _up(size, unit):
    return -(-size // unit) * unit


def arithmetic_seconds(case, dtype):
    """Time on ordinary cores, or on the matrix units of float64, whichever is less."""
    ordinary = case.flops / BATCH_FLOPS[dtype]
    return min(ordinary, padded_flops(case) / FLOPS) if dtype == "float64" else ordinary


def sector_bytes(elements, itemsize):
    """Bytes of whole sectors that a block touches, in the mean over all places it may have."""
    size = elements * itemsize
    places = [k * size % SECTOR for k in range(SECTOR // math.gcd(size, SECTOR))]
    return float(np.mean([_up(place + size, SECTOR) for place in places]))


def list_floor(case, dtype, gather_rate=None):
    """Least µs: of arithmetic, of whole sectors through the second-level cache, and of memory.

    ``gather_rate``: bytes per second of random blocks, where x is larger than that cache.
    """
    itemsize = np.dtype(dtype).itemsize
    blocks = case.products * case.vectors * sector_bytes(case.input_block, itemsize)
    # matrices of pools begin at sectors, and are gathered once for all vectors
    factors = case.products * sum(_up(p * q * itemsize, SECTOR) for p, q in case.factors)
    ids = case.products * (4 + 2 * len(case.factors))  # inputs of four bytes, ids of two
    written = case.vectors * case.blocks * case.output_block * itemsize
    cached = (blocks + factors + ids) / GATHER
    if gather_rate is None:
        memory = (ids + 2 * written) / COPY
    else:
        exact = case.products * case.vectors * case.input_block * itemsize
        memory = (ids + written) / COPY + exact / gather_rate
    return 1e6 * max(arithmetic_seconds(case, dtype), cached, memory)


LISTS = (
    *(power(d, n) for n in (5, 7, 12, 16) for d in (2, 3)),
    *(ListCase(((4, 3),) * 3), ListCase(((2, 5), (6, 3), (4, 4)))),
    *(ListCase(((8, 4), (4, 8))), ListCase(((12, 10), (9, 14)))),
    *(power(d, n, HUGE) for d, n in ((3, 4), (5, 3), (6, 3))),
    *(power(d, n, vectors=k) for d, n in ((2, 4), (3, 4), (6, 3)) for k in (4, 8)),
)


@dataclass(frozen=True)
class SweepCase:
    """Advection with upwind fluxes on a regular sparse grid, three functions per direction.

    ``product``: one term, advection along the first axis times a multiplication by a function along
    each other one. Otherwise one term per axis, as in a continuity equation.
    """

    axes: int
    level: int
    product: bool = False

    SIZE = 3

    @property
    def name(self):
        return f"{self.axes}-D level {self.level}" + (" product" if self.product else "")

    def operator(self, dtype):
        import batchkron as bk
        from batchkron.problems import Axis, ModeOperator, SparseGrid
        from batchkron.problems.discretization.matrices.dg_matrices import div_matrix, mass_matrix

        degree = self.SIZE - 1
        advections, masses = [], []
        for number in range(self.axes):
            axis = Axis(f"x{number}", 0.0, 1.0 + number)
            upwind = div_matrix(axis, self.level, degree, -1.0, flux="upwind")
            advections.append(converted(ModeOperator.from_nodal(upwind, degree), dtype))
            mass = mass_matrix(axis, self.level, degree, lambda s: 1 + s**2)
            masses.append(converted(ModeOperator.from_nodal(mass, degree), dtype))
        terms = [[advections[0], *masses[1:]]]
        if not self.product:
            modes = range(self.axes)
            terms = [[advections[m] if m == mode else None for m in modes] for mode in modes]
        return bk.SparseGridOperator(SparseGrid.sparse([self.level] * self.axes), terms, self.SIZE)


def converted(given, dtype):
    blocks = given.blocks.astype(dtype)
    return SimpleNamespace(rows=given.rows, columns=given.columns, blocks=blocks)


def sweep_floors(op, dtype):
    """The least µs for memory, arithmetic, and gathers."""
    itemsize, block = np.dtype(dtype).itemsize, op.shape[0] // op.num_inputs
    edges = op._program.num_edges
    moved = 2 * op.shape[0] * itemsize + edges * EDGE_BYTES
    return {
        "memory": 1e6 * moved / COPY,
        "arithmetic": 1e6 * 2 * op.multiply_adds / BATCH_FLOPS[dtype],
        "gathers": 1e6 * edges * sector_bytes(block, itemsize) / GATHER,
    }


SWEEPS = (
    *(SweepCase(2, 8), SweepCase(2, 13), SweepCase(3, 7), SweepCase(3, 7, product=True)),
    *(SweepCase(6, 4), SweepCase(6, 4, product=True)),
    *(SweepCase(6, level) for level in (5, 7, 8, 10)),
)
