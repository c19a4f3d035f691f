"""Which kernels a Kron-Matmul of factors up to a size has: in registers, or in place of fibres."""

from __future__ import annotations

import numpy as np

from batchkron.backends.device_fibres import FibreGroup, fibre_groups
from batchkron.backends.device_programs import Program, fibre_program, register_program
from batchkron.backends.device_registers import RegisterGroup, register_groups
from batchkron.backends.device_tiling import DeviceLimits
from batchkron.spec import Precision

KronGroup = FibreGroup | RegisterGroup


def rule_groups(
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    outer: int,
    inner: int,
    dtype: np.dtype[np.generic],
    constant: bool,
    limits: DeviceLimits,
    precision: Precision | None = None,
) -> tuple[KronGroup, ...] | None:
    """Return the kernels that the rule chooses, None where it takes the general ones.

    ``constant``: the factors may be constants of the kernels.
    """
    shape = inputs, outputs, outer, inner, dtype
    in_fibres = fibre_groups(*shape, limits, precision)
    return register_groups(*shape, constant, limits) if in_fibres is None else in_fibres


def kron_group_program(group: KronGroup, dtype: np.dtype[np.generic]) -> Program:
    """Return what is compiled for a group."""
    if isinstance(group, FibreGroup):
        return fibre_program(dtype, group.tile)
    return register_program(dtype, group.tile)
