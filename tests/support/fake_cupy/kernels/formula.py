"""Formulas at points."""

import operator

import numpy as np

from batchkron.backends.cuda.formula.kernel import formula_arguments
from fake_cupy.memory import at

BINARY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": np.divide, "**": np.power}
UNARY = {"square": np.square, "negative": np.negative, "exp": np.exp, "sqrt": np.sqrt,
         "sin": np.sin, "cos": np.cos}  # fmt: skip


def evaluate_formula(kernel, address):
    """What the kernel of a formula does; its formula is in the place of a dtype."""
    spec = kernel.dtype
    given = at(address, (), formula_arguments(spec.variables))
    shape = (int(given["count"]),)
    x = [at(one, shape, np.dtype(np.float64)) for one in given["x"]]
    numbers = at(given["numbers"], (spec.numbers,), np.dtype(np.float64))
    leaves, stack = {"variable": x, "number": numbers}, []
    for name, number in spec.code:
        if name in leaves:
            stack.append(leaves[name][number])
        elif name in BINARY:
            right, left = stack.pop(), stack.pop()
            stack.append(BINARY[name](left, right))
        else:
            stack.append(UNARY[name](stack.pop()))
    at(given["y"], shape, np.dtype(np.float64))[...] = stack.pop()
