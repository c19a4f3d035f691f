"""Files of measured kernels of Kron-Matmuls: one kernel a line, after a header."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import ModeRun


class MeasuredKernel(NamedTuple):
    """One kernel x (L, inputs, R) -> (L, outputs, R), how it was chosen, and its time.

    ``variant``: the numbers of the family's variant. ``constant``: whether
    factors might be constants of the kernel. ``chosen``: whether it is the one that the family
    would choose, not one near it.
    """

    family: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    L: int
    R: int
    dtype: str
    products: int
    constant: bool
    variant: tuple[int, ...]
    chosen: bool
    microseconds: float

    @property
    def run(self) -> ModeRun:
        sizes = self.inputs, self.outputs, self.L, self.R
        dtype = np.dtype(self.dtype)
        return ModeRun(0, *sizes, dtype, self.products, self.constant, fixed_columns=True)


@dataclass(frozen=True)
class Measurements:
    """Kernels that were measured on one device."""

    device: str
    limits: DeviceLimits
    date: str
    kernels: tuple[MeasuredKernel, ...]


def read(path: Path) -> Measurements:
    content = json.loads(path.read_text())
    kernels = tuple(map(_kernel, content["kernels"]))
    return Measurements(
        content["device"], DeviceLimits(*content["limits"]), content["date"], kernels
    )


def write(path: Path, measured: Measurements) -> None:
    header: dict[str, Any] = {
        "device": measured.device,
        "date": measured.date,
        "limits": astuple(measured.limits),
        "columns": MeasuredKernel._fields,
    }
    lines = [json.dumps(header)[:-1] + ', "kernels": [']
    lines.append(",\n".join(json.dumps(one, separators=(",", ":")) for one in measured.kernels))
    path.write_text("\n".join([*lines, "]}"]) + "\n")


def _kernel(row: Sequence[Any]) -> MeasuredKernel:
    one = MeasuredKernel(*row)
    return one._replace(
        inputs=tuple(one.inputs), outputs=tuple(one.outputs), variant=tuple(one.variant)
    )
