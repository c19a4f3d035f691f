"""The kernels of Kronecker sums of many systems, and of Krylov methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type

if TYPE_CHECKING:  # a process loads the modules of the kernels that it uses
    from batchkron.backends.cuda.kron_sum.tiling import SumTiling
    from batchkron.backends.krylov_arguments import Stage


def system_sum_type(dtype: np.dtype[np.generic], tiling: SumTiling) -> str:
    """Return how a thread block applies the Kronecker sum of a system."""
    return template_type("SystemSum", SCALARS[dtype], tiling.threads, *tiling.sizes)


def sum_program(dtype: np.dtype[np.generic], tiling: SumTiling) -> Program:
    """Return the kernel of Kronecker sums of many systems."""
    return Program(
        "kron_sum.cuh", template_type("kron_sum", SCALARS[dtype], system_sum_type(dtype, tiling))
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
    scalar = SCALARS[dtype]
    passes = (f"batchkron::device::{name}<{scalar}>" for name in names)
    kernel = "krylov_whole" if whole else "krylov_part"
    return Program("krylov_passes.cuh", template_type(kernel, scalar, threads, *passes))


def basis_program(
    dtype: np.dtype[np.generic], names: Sequence[str], threads: int, staged: bool
) -> Program:
    """Return the kernel of passes of ``BASIS_KERNELS``; ``staged`` matters to all but the last."""
    kernel = BASIS_KERNELS[tuple(names)]
    options = [] if kernel == "krylov_combine" else [flag(staged)]
    return Program("krylov_basis.cuh", template_type(kernel, SCALARS[dtype], threads, *options))


def krylov_systems_program(
    dtype: np.dtype[np.generic], tiling: SumTiling, stages: Sequence[Stage], kept: int, count: int
) -> Program:
    """Return the kernel of whole iterations of a method with ``count`` vectors."""
    scalar = SCALARS[dtype]
    types = []
    for stage in stages:
        if stage.name:
            one = f"batchkron::device::{stage.name}<{scalar}>"
            types.append(template_type("device::Do", one, *stage.vectors))
        else:
            types.append(template_type("device::Product", *stage.vectors))
    of = scalar, system_sum_type(dtype, tiling), kept, count
    return Program("krylov_systems.cuh", template_type("krylov_systems", *of, *types))
