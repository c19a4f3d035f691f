"""What is solved: operators and right-hand sides, on NumPy's or CuPy's arrays."""

import inspect
import math
from typing import NamedTuple

import numpy as np
import scipy.sparse.linalg as scipy_linalg

import batchkron as bk
from benchmarks.core.timing import in_turn, medians, nothing

METHODS = ("cg", "minres", "bicgstab", "gmres")
OPERATORS = ("diagonal", "kronecker sum")
DEVICE_OPERATORS = ("diagonal", "function", "kronecker sum")
UNKNOWNS = (100, 1_000, 10_000, 100_000, 1_000_000)
DEVICE_UNKNOWNS = (1_000, 100_000, 10_000_000)
ITERATIONS = 40  # of each solve, whatever the residual is
ROUNDS, TURN = 5, 0.05  # turns of a contender, and their seconds
SETTLING = 0.15  # seconds until the threads of the contender before have stopped spinning
FACTOR = 8  # unknowns of each of the three modes of a system of a batch


def times_of(contenders, wait=nothing):
    return medians(in_turn(contenders, ROUNDS, TURN, wait, SETTLING))


def tolerance_name(solve):
    """What a solver calls its relative tolerance: CuPy's functions have the old name, or had it."""
    return "rtol" if "rtol" in inspect.signature(solve).parameters else "tol"


class Case(NamedTuple):
    """One method on one operator with about ``unknowns`` unknowns."""

    method: str
    operator: str
    unknowns: int

    @property
    def name(self):
        return f"{self.method}, {self.operator}, {self.unknowns}"


def second_difference(n):
    return 2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)


def operator_of(case, module):
    """The operator that we are given, for arrays of ``module``: NumPy or CuPy."""
    if case.operator == "diagonal" and module is not np:
        return bk.Diagonal(np.geomspace(1.0, 1e4, case.unknowns)).to("cuda")
    return peer_operator(case, module)


def library_of(module):
    """The solvers of SciPy, or CuPy's."""
    if module is np:
        return scipy_linalg
    import cupyx.scipy.sparse.linalg

    return cupyx.scipy.sparse.linalg


def peer_operator(case, module):
    """The operator that the peer is given: nothing but a product with a vector."""
    if case.operator != "kronecker sum":
        entries = module.asarray(np.geomspace(1.0, 1e4, case.unknowns))

        def product(x):
            return entries * x

        shape = (case.unknowns, case.unknowns)
        return library_of(module).LinearOperator(shape, matvec=product, dtype=np.float64)
    op = bk.KroneckerSum([second_difference(n) for n in modes_of(case)])
    return op if module is np else op.to("cuda")


def modes_of(case):
    modes = 2 if case.unknowns < 1_000_000 else 3
    return [round(case.unknowns ** (1 / modes))] * modes


def right_hand_side(size, module):
    return module.asarray(np.random.default_rng(1).standard_normal(size))


def batch(systems, module):
    """Systems of 512 unknowns, Kronecker sums of symmetric factors of condition 10 at most."""
    rng = np.random.default_rng(2)
    columns = np.linalg.qr(rng.standard_normal((systems, 3, FACTOR, FACTOR)))[0]
    values = rng.uniform(1.0, 10.0, (systems, 3, 1, FACTOR))
    factors = (columns * values) @ columns.swapaxes(-1, -2)
    op = bk.KroneckerSum([factors[:, mode] for mode in range(3)])
    b = module.asarray(rng.standard_normal((systems, FACTOR**3)))
    return (op if module is np else op.to("cuda")), factors, b


def dense(factors):
    size = FACTOR**3
    result = np.zeros((len(factors), size, size))
    for mode in range(3):
        before, after = FACTOR**mode, FACTOR ** (2 - mode)
        for system, factor in enumerate(factors[:, mode]):
            result[system] += np.kron(np.kron(np.eye(before), factor), np.eye(after))
    return result


def side(case):
    return case.unknowns if case.operator != "kronecker sum" else math.prod(modes_of(case))
