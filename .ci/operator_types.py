"""What mypy takes results of operator algebra for; checked by .ci/type_docs, never run."""

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
