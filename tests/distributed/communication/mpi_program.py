"""What the tests of MPI run on each rank: products next to one process, counted traffic."""

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import batchkron as bk
from batchkron.distributed import distribute, world
from batchkron.problems import make
from batchkron.solvers import Adapt, cg, evolve, gmres
from batchkron.solvers.preconditioners import CombinationPreconditioner


def check(comm, shapes, rows, dtype, **options):
    """A product of integers is exact, and sends what is planned."""
    rng = np.random.default_rng([rows, *np.ravel(shapes)])
    factors = [rng.integers(-3, 4, shape).astype(dtype) for shape in shapes]
    whole = bk.KroneckerProduct(factors)
    x = rng.integers(-3, 4, (rows, whole.shape[1])).astype(dtype)
    op = distribute(whole, comm, rows=rows, **options)
    block = op.scatter(x if comm.rank == 0 else None, root=0)
    out = np.full((len(block), op.shape[0]), np.nan, dtype)
    before = comm.traffic.elements
    op.apply(block, out)
    assert comm.traffic.elements - before == op.volume().own_elements
    np.testing.assert_array_equal(op.gather(out), whole.apply(x))
    other_order = out.astype(out.dtype.newbyteorder(">"))  # which MPI does not know
    np.testing.assert_array_equal(op.gather(other_order), whole.apply(x))
    if op.options.redistribute:
        back = op.T.apply(out)
        np.testing.assert_array_equal(
            op.gather(back, layout=op.layout), whole.T.apply(whole.apply(x))
        )


def check_sum_and_list(comm):
    """The same bits as one process; inputs of a batch list are gathered from other ranks."""
    rng = np.random.default_rng(5)
    whole = bk.KroneckerSum([rng.integers(-3, 4, (n, n)).astype(float) for n in (4, 5, 6)])
    outputs, inputs = rng.integers(0, 9, (2, 30))
    ids = rng.integers(0, 4, (30, 2))
    batch = bk.BatchedKron(rng.integers(-3, 4, (4, 2, 2)).astype(float), ids, inputs, outputs)
    for operator in (whole, batch):
        op = distribute(operator, comm, (1, comm.size))
        x = rng.integers(-3, 4, operator.shape[1]).astype(float)
        np.testing.assert_array_equal(op.gather(op @ op.scatter(x)), operator @ x)
    right, op = np.arange(120.0), distribute(whole, comm)
    shifted = op + 100 * bk.Identity(op.shape[0])
    solution = op.gather(gmres(shifted, op.scatter(right), rtol=1e-10).x)
    residual = right - (whole @ solution + 100 * solution)
    assert np.linalg.norm(residual) <= 1.01e-10 * np.linalg.norm(right)


def check_sparse(comm):
    """Kronecker-sparse matrices, alone and in chains: integers are exact, in both layouts."""
    rng = np.random.default_rng(6)
    values = [rng.integers(-3, 4, shape) for shape in ((1, 2, 2, 12), (4, 3, 3, 2), (8, 3, 2, 1))]
    for chosen, layout in (
        (values, "batch-first"),
        (values, "batch-last"),
        (values[:1], "batch-first"),
    ):
        whole = bk.KroneckerSparseChain(chosen, layout=layout)
        op = distribute(whole, comm, (1, comm.size), rows=2)
        x = rng.integers(-3, 4, (2, whole.shape[1])).astype(float)
        given = x if layout == "batch-first" else x.T
        block = op.scatter(given if comm.rank == 0 else None, root=0)
        before = comm.traffic.elements
        y = op.apply(block)
        assert comm.traffic.elements - before == op.volume().own_elements
        np.testing.assert_array_equal(op.gather(y), whole.apply(given))
        back = op.gather(op.T.apply(y), layout=op.layout)
        np.testing.assert_array_equal(back, whole.T.apply(whole.apply(given)))


def check_preconditioners(comm):
    """Full grids are dealt out to ranks; cg and gmres take as many iterations as one process."""
    for name, scale, method in (("diffusion-2d", None, cg), ("continuity-2d", 0.02, gmres)):
        A = make(name, 4, 1).operator
        M = CombinationPreconditioner(A, scale, composition="symmetric")
        b = np.random.default_rng(7).standard_normal(A.shape[0])
        op = distribute(A, comm)
        part = distribute(M, comm, like=op)
        block = op.scatter(b)
        before = comm.traffic.elements
        y = op.gather(part.matvec(block))
        assert comm.traffic.elements - before >= part.volume().own_elements
        np.testing.assert_allclose(y, M.matvec(b), rtol=0, atol=1e-12 * np.abs(y).max())
        whole = -A if scale is None else bk.Identity(A.shape[0]) - scale * A
        own = -op if scale is None else bk.Identity(op.shape[0]) - scale * op
        sign = -1 if scale is None else 1
        alone = method(whole, b, M=_Scaled(M, sign), rtol=1e-8)
        found = method(own, block, M=_Scaled(part, sign), rtol=1e-8)
        assert abs(found.iterations - alone.iterations) <= 1
        x = op.gather(found.x)
        assert np.linalg.norm(b - whole @ x) <= 1.01e-8 * np.linalg.norm(b)


class _Scaled:
    """A multiple of a preconditioner."""

    def __init__(self, M, number):
        self.M, self.number, self.shape, self.dtype = M, number, M.shape, M.dtype

    def matvec(self, x, out=None):
        y = self.M.matvec(x, out)
        y *= self.number
        return y


def check_runs(comm):
    """Explicit steps have the bits of one process; implicit ones solve on all ranks."""
    for name, options, tolerance in (
        ("continuity-2d", {"method": "rk4", "dt": 0.005}, 0),
        ("continuity-2d", {"method": "dormand-prince", "rtol": 1e-6}, 1e-9),
        ("diffusion-2d", {"dt": 0.01}, 1e-9),
    ):
        problem = make(name, 3, 2)
        part = distribute(problem, comm)
        result = evolve(part, until=0.02, **options)
        u = part.gather(result.u, root=0)
        if comm.rank == 0:
            alone = evolve(problem, until=0.02, **options)
            assert result.steps == alone.steps
            atol = tolerance * np.abs(alone.u).max()
            np.testing.assert_allclose(u, alone.u, rtol=0, atol=atol)


# Of a grid that follows the solution: explicit steps have the bits of one process.
ADAPTIVE = (
    ("continuity-2d", 2, {"dt": 2e-3, "method": "rk4"}, 0),
    ("continuity-2d", 2, {"dt": 2e-3, "method": "bogacki-shampine", "rtol": 1e-3}, 1e-10),
    ("diffusion-2d", 1, {"dt": 5e-3, "method": "backward-euler"}, 1e-8),
    ("diffusion-2d", 1, {"dt": 5e-3, "preconditioner": "auto"}, 1e-8),
    ("diffusion-2d", 1, {"dt": 5e-3, "preconditioner": "block-jacobi"}, 1e-8),
    ("diffusion-2d", 1, {"dt": 5e-3, "method": "exponential-euler"}, 1e-8),
)


def check_adaptive_runs(comm):
    """The grids are those of one process, step for step; cells are dealt out whenever they change.

    Half of the ranks go on from a checkpoint of the first half of the run.
    """
    folder = Path(comm.broadcast(tempfile.mkdtemp() if comm.rank == 0 else None, root=0))
    half = comm.split(comm.rank % 2)
    chosen = ADAPTIVE if comm.size <= 4 else ADAPTIVE[::3]  # a few processors are enough for these
    for number, (name, degree, options, tolerance) in enumerate(chosen):
        problem = make(name, 3, degree)
        run = {"until": 0.02, "adapt": Adapt(1e-3, every=2, horizon=1e-3, max_level=4), **options}
        own, found = [], []  # the problem of each step
        part, path = distribute(problem, comm, max_imbalance=1), folder / f"{number}.h5"
        evolve(part, **{**run, "until": 0.01}, checkpoint=path)
        result = evolve(part, **run, callback=lambda state, own=own: own.append(state.problem))
        u = result.problem.gather(result.u)
        alone = evolve(
            problem, **run, callback=lambda state, found=found: found.append(state.problem)
        )
        assert len({each.grid.num_cells for each in found}) > 1
        assert any(each.is_rebalanced for each in own)
        assert len(own) == len(found)
        for one, other in zip(own, found, strict=True):
            np.testing.assert_array_equal(one.whole.grid.cells, other.grid.cells)
        atol = tolerance * np.abs(alone.u).max()
        np.testing.assert_allclose(u, alone.u, rtol=0, atol=atol)
        del run["dt"]
        resumed = evolve(distribute(problem, half), **run, resume=path)
        rest = evolve(problem, **run, resume=path)
        np.testing.assert_array_equal(resumed.problem.whole.grid.cells, rest.problem.grid.cells)
        u = resumed.problem.gather(resumed.u)
        np.testing.assert_allclose(u, rest.u, rtol=0, atol=atol)
    comm.allgather(np.zeros(1))  # all have read the files
    if comm.rank == 0:
        shutil.rmtree(folder)


def check_common_memory(comm):
    """Ranks of one machine read each other's vectors where they are: the bits of messages."""
    rng = np.random.default_rng(8)
    for level in (3, 5, 4):
        whole = make("continuity-3d", level, 2).operator
        shared = distribute(whole, comm)
        x = rng.standard_normal((comm.size, whole.shape[1]))
        expected = np.stack([whole @ row for row in x])
        if comm.size > 1 and Path("/dev/shm").exists():
            assert shared._memory.is_common
        comm.shares_memory = False
        sent = distribute(whole, comm)
        comm.shares_memory = True
        assert not sent._memory.is_common
        for op in (shared, sent, shared, shared):
            np.testing.assert_array_equal(op.gather(op @ op.scatter(x[0])), expected[0])
            block = np.ascontiguousarray(x[:, op.layout.columns(comm.rank)])
            y = op.apply(block)  # several vectors need more memory
            np.testing.assert_array_equal(y, expected[:, op.output_layout.columns(comm.rank)])


def check_collectives(comm):
    """Sums, groups and traffic of single messages."""
    sums = np.array([float(comm.rank), 1.0])
    comm.allreduce(sums)
    np.testing.assert_array_equal(sums, [comm.size * (comm.size - 1) / 2, comm.size])
    group = comm.split(comm.rank % 2)
    assert group.size == len(range(comm.rank % 2, comm.size, 2))
    largest = np.array([comm.rank])
    group.allreduce(largest, maxima=True)
    assert largest[0] == max(range(comm.rank % 2, comm.size, 2))
    assert comm.broadcast({"rank": comm.rank}, root=comm.size - 1) == {"rank": comm.size - 1}


def check_that_communicators_are_kept(comm):
    """Those of mpi4py are taken; MPI has a few thousand of them, and operators are made often."""
    whole = bk.KroneckerProduct([np.eye(2)])
    first, second = (distribute(whole, comm.comm, (comm.size, 1)) for _ in range(2))
    assert first.communicator is second.communicator
    assert first.ranks.all is comm


def check_that_others_are_refused(comm):
    """What is no communicator of this process, and operators that differ between ranks."""
    whole = bk.KroneckerProduct([np.eye(2)])
    freed = comm.comm.Dup()
    freed.Free()
    for wrong in (MPI.COMM_NULL, freed):
        with pytest.raises(ValueError, match="COMM_NULL: this process is none of its ranks"):
            distribute(whole, wrong)
    with pytest.raises(TypeError, match="comm is a Group of mpi4py"):
        distribute(whole, comm.comm.Get_group())
    if comm.size > 1:
        with pytest.raises(ValueError, match="pass another operator or problem"):
            distribute(bk.KroneckerProduct([(1.0 + comm.rank) * np.eye(4)]), comm)


def main():
    bk.set_num_threads(1)
    comm = world()
    assert comm.size == int(sys.argv[1])
    check_collectives(comm)
    check_common_memory(comm)
    check_sum_and_list(comm)
    check_sparse(comm)
    check_preconditioners(comm)
    check_runs(comm)
    check_adaptive_runs(comm)
    check_that_communicators_are_kept(comm)
    check_that_others_are_refused(comm)
    grids = [(comm.size // k, k) for k in range(1, comm.size + 1) if comm.size % k == 0]
    for grid in [*grids, "auto"]:
        check(comm, [(4, 4)] * 4, 3, "float64", grid=grid)
        check(comm, [(3, 5), (7, 2), (4, 4)], 5, "complex64", grid=grid)
        check(comm, [(4, 4)] * 3, 4, "float32", grid=grid, exchange="every", transpose=True)
        check(comm, [(6, 6)] * 3, 1, "complex128", grid=grid, redistribute=False)
    if comm.rank == 0:
        print(f"{comm.size} ranks agree")


if __name__ == "__main__":
    main()
