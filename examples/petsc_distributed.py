"""PETSc's conjugate gradients on a distributed operator, as a matrix of Python of petsc4py.

Poisson's equation in a cube, as in poisson.py. Each rank has a block of consecutive elements of
every vector, which is how PETSc deals out its own. Run it on one rank as it is, and on four by
mpiexec -n 4 python -m mpi4py petsc_distributed.py; mpi4py and PETSc must use one MPI library.
"""

import sys

import numpy as np

import batchkron as bk
from batchkron.distributed import distribute
from batchkron.solvers import cg

try:
    import petsc4py

    petsc4py.init(sys.argv)
    from petsc4py import PETSc
except ImportError as error:
    print(f"this example needs petsc4py, which cannot be imported ({error}); nothing is done")
    raise SystemExit(0) from None


class PetscMatrix:
    """The products that PETSc asks a matrix of Python for, on this rank's blocks."""

    def __init__(self, operator):
        self.operator, self.transposed = operator, operator.T

    def mult(self, matrix, x, y):
        self.operator.matvec(x.getArray(readonly=True), y.getArray())

    def multTranspose(self, matrix, x, y):  # noqa: N802, PETSc's name
        self.transposed.matvec(x.getArray(readonly=True), y.getArray())


n = 15
A = (n + 1) ** 2 * (2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1))
petsc_comm = PETSc.COMM_WORLD
comm = petsc_comm.tompi4py() if petsc_comm.size > 1 else None
laplace = distribute(bk.KroneckerSum([A, A, A]), comm)
right = laplace.scatter(np.ones(n**3))

size = (laplace.shape[0], n**3)  # of this rank's blocks, and of whole vectors
matrix = PETSc.Mat().createPython((size, size), PetscMatrix(laplace), petsc_comm)
matrix.setUp()
x, b = matrix.createVecs()
b.setArray(right)
solver = PETSc.KSP().create(petsc_comm)
solver.setOperators(matrix)
solver.setType("cg")
solver.getPC().setType("none")
solver.setTolerances(rtol=1e-10)
solver.solve(b, x)

ours = cg(laplace, right, rtol=1e-10)
found = laplace.gather(x.getArray(readonly=True))
expected = laplace.gather(ours.x)
difference = np.abs(found - expected).max() / np.abs(expected).max()
if petsc_comm.rank == 0:
    print(f"{n**3} unknowns on {petsc_comm.size} ranks")
    print(f"PETSc's cg: {solver.getIterationNumber()} iterations; batchkron's: {ours.iterations}")
    print(f"the solutions differ by {difference:.1e}")
