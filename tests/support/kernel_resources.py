"""The kernels of `device_programs`, compiled without a device, and their registers.

Registers and stack of each kernel are read from its machine code. They are kept in
``tests/support/kernel_resources.json``, so that a change that spills does not go by unnoticed:

    python tests/support/kernel_resources.py

writes that file again, by the release of NVRTC that pyproject.toml names for the tests.
"""

import json
import multiprocessing
import os
import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

import numpy as np
from dense_oracle import DTYPES
from device_programs import (
    PRECISIONS,
    SHAPES,
    explicit_programs,
    precision_programs,
    programs_of,
    segmented_programs,
    sliced_programs,
    staged_programs,
    unit_programs,
)
from nvrtc import DEVICES, compile_program

from batchkron.backends.cuda.runtime.cubin import resources
from batchkron.backends.cuda.runtime.program import compile_options, device_sources

TABLE = Path(__file__).with_suffix(".json")
NVRTC = version("nvidia-cuda-nvrtc")
EXPLICIT = "explicit product"
SEGMENTED = "sums over edges"
STAGED = "staged sums over edges"
UNITS = "lists on matrix units"
SLICES = "products by slices"
MORE_REGISTERS = 8  # than in the table are no failure: the hardware hands them out in eights

# Shapes that the tests compile for each capability; the table has all of them for both. On sm_80
# these have every template in every dtype and with every flag, which a test says.
TESTED = {
    "80": [1, 3, 12, 15, 16, 17, 18, 20, 21, 22, 28, 32, 37, 45],
    "90": [*range(len(SHAPES))],
}


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel: its header, lowered name, registers and bytes of stack of a thread."""

    header: str
    name: str
    registers: int
    stack: int


def dtype_of(index):
    """The dtype that a shape is compiled for."""
    return np.dtype(DTYPES[index % len(DTYPES)])


def _sizes(factors):
    runs = [(p, q, len(list(run))) for (p, q), run in groupby(factors)]
    return " ".join(f"{p if p == q else f'{p}×{q}'}" + f"^{n}" * (n > 1) for p, q, n in runs)


def label_of(index):
    """A shape as the table names it."""
    factors, rows, inner = SHAPES[index]
    vectors = f", {inner} vectors" if inner > 1 else ""
    return f"{rows}: {_sizes(factors)}{vectors} {dtype_of(index)}"


def precision_label(case):
    """An entry of PRECISIONS as the table names it."""
    factors, rows, precision = case
    return f"{rows}: {_sizes(factors)} {precision}"


def compile_kernel(program, capability):
    """Compile a program."""
    name, code = compile_program(
        program.source, device_sources(), program.expression, compile_options(capability)
    )
    return Kernel(program.header, name, *resources(code))


@cache
def _processes():
    """One for each processor: within a process the compiler does one program at a time."""
    return ProcessPoolExecutor(min(8, os.cpu_count() or 1), multiprocessing.get_context("spawn"))


@cache
def _begun(program, capability):
    """Begin to compile a program, once for all tests."""
    return _processes().submit(compile_kernel, program, capability)


def compiled(programs, capability):
    """The kernels of programs, each once."""
    begun = [_begun(program, capability) for program in dict.fromkeys(programs)]
    return [kernel.result() for kernel in begun]


def kernels_for(programs, dtype, capability):
    """The kernels of a function of a dtype and a device's limits."""
    return compiled(programs(np.dtype(dtype), DEVICES[capability]), capability)


@cache
def _begun_shape(index, capability):
    programs = programs_of(*SHAPES[index], dtype_of(index), DEVICES[capability])
    return [_begun(program, capability) for program in programs]


def kernels_of(index, capability):
    """All kernels of a shape; those of the next one are begun."""
    kernels = _begun_shape(index, capability)
    following = next((other for other in TESTED[capability] if other > index), None)
    if following is not None:
        _begun_shape(following, capability)
    return [kernel.result() for kernel in kernels]


def is_of_its_header(kernel):
    """Whether a kernel's name is that of a kernel that its header defines."""
    text = device_sources()[kernel.header]
    names = re.findall(r"__global__[^;{]*?\b(\w+)\(const", text)
    return any(name in kernel.name for name in names)


def rows_of(kernels):
    """Kernels as the table has them."""
    names = [k.header.removeprefix("cuda/").removesuffix(".cuh") for k in kernels]
    return [[name, k.registers, k.stack] for name, k in zip(names, kernels, strict=True)]


def all_kernels(capability):
    """All kernels of one capability, by the table's names."""
    table = {label_of(index): kernels_of(index, capability) for index in range(len(SHAPES))}
    for dtype in DTYPES:
        table[f"{EXPLICIT} {dtype}"] = kernels_for(explicit_programs, dtype, capability)
        table[f"{SEGMENTED} {dtype}"] = kernels_for(segmented_programs, dtype, capability)
        table[f"{STAGED} {dtype}"] = kernels_for(staged_programs, dtype, capability)
    table[UNITS] = compiled(unit_programs(DEVICES[capability]), capability)
    table[SLICES] = compiled(sliced_programs(DEVICES[capability]), capability)
    for case in PRECISIONS:
        table[precision_label(case)] = compiled(
            precision_programs(case, DEVICES[capability]), capability
        )
    return table


def growth(kernels, rows):
    """What is wrong with kernels where the table has ``rows``, a line for each."""
    if [row[0] for row in rows_of(kernels)] != [row[0] for row in rows]:
        yield f"other kernels than in the table: {rows_of(kernels)} instead of {rows}"
        return
    for kernel, (header, registers, stack) in zip(kernels, rows, strict=True):
        if kernel.registers > registers + MORE_REGISTERS:
            yield f"{header} takes {kernel.registers} registers, {registers} in the table"
        if kernel.stack > stack:
            yield f"{header} takes {kernel.stack} bytes of stack, {stack} in the table"


def main():
    table = {
        f"sm_{capability}": {
            label: rows_of(kernels) for label, kernels in all_kernels(capability).items()
        }
        for capability in DEVICES
    }
    text = json.dumps({"nvrtc": NVRTC, "kernels": table}, ensure_ascii=False, indent=1)
    # a kernel a line
    lines = text.replace("[\n     ", "[").replace("\n    ]", "]").replace(",\n     ", ", ")
    TABLE.write_text(lines + "\n")


if __name__ == "__main__":
    main()
