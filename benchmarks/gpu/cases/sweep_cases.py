"""Operators on sparse grids: which are measured, and their floors."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.gpu.cases.cases import BATCH_FLOPS, COPY, GATHER
from benchmarks.gpu.cases.list_cases import sector_bytes

if TYPE_CHECKING:
    from batchkron.operators import SparseGridOperator

EDGE_BYTES = 8  # the indices of a block and of a matrix
GOAL = 0.4  # floor over time, on grids of at least LARGE unknowns
LARGE = 10_000_000


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
    def name(self) -> str:
        return f"{self.axes}-D level {self.level}" + (" product" if self.product else "")

    def operator(self, dtype: str) -> SparseGridOperator:
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
        terms: list[list[Any]] = [[advections[0], *masses[1:]]]
        if not self.product:
            modes = range(self.axes)
            terms = [[advections[m] if m == mode else None for m in modes] for mode in modes]
        return bk.SparseGridOperator(SparseGrid.sparse([self.level] * self.axes), terms, self.SIZE)


def converted(given: Any, dtype: str) -> SimpleNamespace:
    blocks = given.blocks.astype(dtype)
    return SimpleNamespace(rows=given.rows, columns=given.columns, blocks=blocks)


def sweep_floors(op: SparseGridOperator, dtype: str) -> dict[str, float]:
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
