"""Files of measured kernels of Kron-Matmuls: one kernel a line, after a header."""

import json
from collections.abc import Sequence
from dataclasses import astuple
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


def read(path: Path) -> tuple[str, DeviceLimits, list[MeasuredKernel]]:
    content = json.loads(path.read_text())
    made = (MeasuredKernel(*row) for row in content["kernels"])
    kernels = [
        one._replace(
            inputs=tuple(one.inputs), outputs=tuple(one.outputs), variant=tuple(one.variant)
        )
        for one in made
    ]
    return content["device"], DeviceLimits(*content["limits"]), kernels


def write(path: Path, limits: DeviceLimits, date: str, kernels: Sequence[MeasuredKernel]) -> None:
    header: dict[str, Any] = {"device": limits.name, "date": date, "limits": astuple(limits)}
    header["columns"] = MeasuredKernel._fields
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in kernels)
    path.write_text(f'{json.dumps(header)[:-1]}, "kernels": [\n{lines}\n]}}\n')
