"""Poisson's equation in a cube, three ways: by batchkron's direct solver, by cg and by SciPy.

-Δf = 1 on (0, 1)³ with f = 0 on the boundary, by second differences on n³ inner points. The matrix
is the Kronecker sum A ⊗ I ⊗ I + I ⊗ A ⊗ I + I ⊗ I ⊗ A, which nobody writes out.
"""

import numpy as np
import scipy.sparse.linalg

import batchkron as bk
from batchkron.solvers import cg

n = 31
A = (n + 1) ** 2 * (2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1))
laplace = bk.KroneckerSum([A, A, A])
right = np.ones(n**3)

direct = laplace.solve(right)  # by the eigenvalues of the three small matrices
iterative = cg(laplace, right, rtol=1e-10)
scipys, info = scipy.sparse.linalg.cg(laplace, right, rtol=1e-10)

middle = direct.reshape(n, n, n)[n // 2, n // 2, n // 2]
print(f"{n**3} unknowns; in the middle f = {middle:.5f} (exact: 0.05621)")
print(f"cg {iterative.status} after {iterative.iterations} iterations")
for name, solution in (("cg", iterative.x), ("SciPy's cg", scipys)):
    difference = np.abs(solution - direct).max() / np.abs(direct).max()
    print(f"{name} differs from the direct solution by {difference:.1e}")
