"""The kernel of formulas at points, ``csrc/cuda/formula.cuh``, and its arguments."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.program import Program, device_program, template_type
from batchkron.spec.formula import FormulaSpec

_LEAVES = {"variable": "Variable", "number": "Number"}
_BINARY = {"+": "Sum", "-": "Difference", "*": "Product", "/": "Quotient", "**": "Power"}


def formula_program(spec: FormulaSpec, threads: int) -> Program:
    """Return the kernel of a formula."""
    options = threads, spec.variables, _tree(spec)
    return device_program("formula", "formula_values", *options)


def _tree(spec: FormulaSpec) -> str:
    """Return the C++ type of a formula."""
    stack: list[str] = []
    for name, number in spec.code:
        if name in _LEAVES:
            stack.append(template_type(f"formula::{_LEAVES[name]}", number))
            continue
        count = 2 if name in _BINARY else 1
        operands = stack[-count:]
        stack[-count:] = [template_type(f"formula::{_BINARY.get(name, name.title())}", *operands)]
    (tree,) = stack
    return tree


@cache
def formula_arguments(variables: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct FormulaArguments."""
    return struct(f"*x[{variables}] *y *numbers count")
