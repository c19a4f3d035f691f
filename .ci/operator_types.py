"""What mypy takes results for, and what it refuses; checked by .ci/type_docs, never run."""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import batchkron as bk
from batchkron.operators.algebra import SumOperator

A = bk.KroneckerProduct([np.eye(2), np.eye(3)])
B = bk.KroneckerSum([np.eye(2), np.eye(3)])

assert_type(A + B, SumOperator)
assert_type(A - B, SumOperator)
assert_type(-A, bk.Operator)
assert_type(A @ B, bk.Operator)
assert_type(A * B, bk.Operator)
assert_type(A(B), bk.Operator)
assert_type(A.dot(B), bk.Operator)
assert_type(A**2, bk.Operator)
assert_type(A / 2, bk.Operator)
assert_type(2 * A, bk.Operator)
assert_type(0.5 * A, bk.Operator)
assert_type(1j * A, bk.Operator)
assert_type(np.float32(0.5) * A, bk.Operator)
assert_type(A * 0.5, bk.Operator)
assert_type(0.5 * A + bk.Identity(6), SumOperator)
assert_type((A + B).solve(np.ones(6)), NDArray[Any])
assert_type(sum([B, B], start=2 * A), bk.Operator)
assert_type(A.T, bk.Operator)
assert_type(A.H @ A, bk.Operator)
assert_type(A.adjoint(), bk.Operator)
assert_type(A.transpose(), bk.Operator)
assert_type(A.to("cpu"), bk.Operator)
assert_type(A.astype("complex128"), bk.Operator)
assert_type(A @ np.ones(6), NDArray[Any])
assert_type(A @ [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], NDArray[Any])
assert_type(A * np.ones((6, 2)), NDArray[Any])
assert_type(np.ones(6) @ A, NDArray[Any])
assert_type((A @ B).matvec(np.ones(6)), NDArray[Any])

K = bk.KroneckerSparse(np.ones((1, 2, 2, 3)))
assert_type(K.T, bk.Operator)
assert_type(K + B, SumOperator)
assert_type(K @ bk.KroneckerSparseChain([K, K]), bk.Operator)
assert_type(K.apply(np.ones((4, 6))), NDArray[Any])
assert_type(bk.KroneckerSparseChain([K]).factors[0], bk.KroneckerSparse)
assert_type(bk.kronecker_sparse_multiply(K.values, np.ones((4, 6))), NDArray[Any])
assert_type((2 * B).solve(np.ones(6)), NDArray[Any])
assert_type(B.T.solve(np.ones(6)), NDArray[Any])
assert_type(B.inverse(), bk.Operator)
assert_type(B.eigvalsh(), NDArray[Any])
assert_type(B.eigh()[1], bk.KroneckerProduct)
assert_type(bk.eigh(A, k=2)[0], NDArray[Any])
assert_type(B @ np.ones((2, 3)), NDArray[Any])

# packages are attributes, and misspelt words are errors (unused ignores are errors, too)
x = bk.problems.Axis("x", 0, 1)
pde = bk.problems.PDE([x], [bk.problems.div("x", -1.0)], boundary="periodic", initial=1.0)
problem = pde.discretize(4, grid="sparse", method="rk4")
assert_type(problem.rhs(0.0, problem.initial), NDArray[np.float64])
bk.solvers.evolve(problem, until=0.1, method="rk4", solver="gmres")
bk.problems.PDE([x], [], boundary="peridic", initial=1.0)  # type: ignore[arg-type]
walls = {x: "periodic"}
bk.problems.PDE([x], [], boundary=walls, initial=1.0)
pde.discretize(4, grid="spase")  # type: ignore[arg-type]
pde.discretize(4, method="rk5")  # type: ignore[arg-type]
pde.discretize(levels=4)  # type: ignore[call-arg]
bk.solvers.evolve(problem, until=0.1, method="rk5")  # type: ignore[arg-type]
bk.solvers.evolve(problem, until=0.1, solver="gmers")  # type: ignore[arg-type]
bk.solvers.evolve(problem, t_eval=[0.1])  # type: ignore[call-arg]
bk.problems.make("continuity-1d", grid="spase")  # type: ignore[arg-type]
