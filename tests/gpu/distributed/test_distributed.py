"""Vectors that are spread over ranks on devices: simulated ranks on one, NCCL's with one each."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dense_oracle import DTYPES, random_array
from mpi_launcher import MPIEXEC

import batchkron as bk
from batchkron.distributed import NcclCommunicator, SimulatedCommunicator, distribute, simulate
from batchkron.distributed.operator import DistributedOperator
from batchkron.problems import make
from batchkron.solvers import Adapt, Run, Status, bicgstab, cg, evolve, fgmres, gmres, minres
from batchkron.solvers.preconditioners import CombinationPreconditioner

pytestmark = pytest.mark.gpu
HERE = Path(__file__).parent


def close(found, expected, dtype, factor=1.0):
    scale = factor * np.abs(expected).max(initial=1e-300)
    np.testing.assert_allclose(
        found.get(), expected, rtol=0, atol=2000 * np.finfo(dtype).eps * scale
    )


def random_shapes(rng):
    """Factors of a product, and its number of vectors."""
    modes = int(rng.integers(1, 5))
    sizes = rng.integers(1, 7, (modes, 2))
    if rng.random() < 0.5:
        sizes[:, 1] = sizes[:, 0]
    return [tuple(int(n) for n in pair) for pair in sizes], int(rng.integers(1, 6))


@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize("part", range(3))
def test_random_products_on_simulated_ranks(cupy, rng, part, stores):
    for _ in range(8):
        shapes, rows = random_shapes(rng)
        dtype = np.dtype(rng.choice(DTYPES))
        ranks = int(rng.choice([2, 3, 4]))
        across = int(rng.choice([n for n in range(2, ranks + 1) if ranks % n == 0]))
        rule, redistribute = rng.choice(["group", "every"]), bool(rng.random() < 0.7)
        whole = bk.KroneckerProduct([random_array(rng, shape, dtype) for shape in shapes])
        x = random_array(rng, (rows, whole.shape[1]), dtype)
        added = random_array(rng, (rows, whole.shape[0]), dtype)

        def program(
            comm,
            whole=whole,
            x=x,
            added=added,
            grid=(ranks // across, across),
            rule=str(rule),
            redistribute=redistribute,
        ):
            comm.stores = stores
            op = distribute(
                whole.to("cuda"), comm, grid, rows=len(x), exchange=rule, redistribute=redistribute
            )
            before = comm.traffic.elements
            y = op.apply(op.scatter(x))
            sent = comm.traffic.elements - before
            out = cupy.asarray(op.output_layout.block_of(added, comm.rank))
            op.accumulate(op.scatter(x), out, alpha=-2)
            return op.gather(y), op.gather(out), sent, op.volume().own_elements

        expected = whole.apply(x)
        for y, out, sent, planned in simulate(ranks, program):
            assert sent == planned
            close(y, expected, dtype, 10)
            close(out, added - 2 * expected, dtype, 20)


@pytest.mark.parametrize("stores", [False, True])
def test_chunks_are_exchanged_while_others_are_multiplied(cupy, rng, stores):
    whole = bk.KroneckerProduct(rng.standard_normal((4, 16, 16)))
    x = rng.standard_normal((24, 16**4))

    def program(comm):
        comm.stores = stores
        op = distribute(whole.to("cuda"), comm, (1, 2), rows=24)
        return op.gather(op.apply(op.scatter(x)))

    for y in simulate(2, program):
        close(y, whole.apply(x), float)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("ranks", "stores"), [(2, False), (3, True), (4, True)])
def test_sums_lists_and_sparse_grids(cupy, rng, dtype, ranks, stores):
    factors = [random_array(rng, (n, n), dtype) for n in (4, 5, 6)]
    pool = random_array(rng, (5, 3, 3), dtype)
    ids, blocks = rng.integers(0, 5, (90, 2)), rng.integers(0, 20, (2, 90))
    for whole in (
        bk.KroneckerSum(factors),
        bk.BatchedKron(pool, ids, *blocks, num_inputs=20, num_outputs=20),
        make("continuity-2d", level=4, degree=2).operator.astype(dtype),
        bk.KroneckerSparse(random_array(rng, (1, 5, 5, 1), dtype)),
        bk.KroneckerSparseChain(
            [random_array(rng, (n, 2, 2, 32 // n), dtype) for n in (1, 2, 4, 8, 16, 32)]
        ),
    ):
        for shape in [(whole.shape[1],), (2, whole.shape[1])]:
            x = random_array(rng, shape, dtype)

            def program(comm, whole=whole, x=x):
                comm.stores = stores
                op = distribute(whole.to("cuda"), comm, (1, ranks))
                before = comm.traffic.elements
                y = op.apply(op.scatter(x, root=0) if comm.rank == 0 else op.scatter(root=0))
                sent = comm.traffic.elements - before
                return op.gather(y), op.gather(op.H.apply(y)), sent, op.volume().own_elements

            sizes = whole.shape[1]
            expected = np.stack([whole.matvec(row) for row in x.reshape(-1, sizes)])
            back = np.stack([whole.H.matvec(row) for row in expected]).reshape(shape)
            for y, again, _, _ in simulate(ranks, program):
                close(y, expected.reshape(y.shape), dtype, 20)
                close(again, back, dtype, 100)


@pytest.mark.parametrize("method", [cg, minres, bicgstab, gmres, fgmres])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_solvers_on_simulated_ranks(cupy, rng, method, dtype):
    matrices = [random_array(rng, (n, n), dtype) for n in (5, 6, 7)]
    definite = [m @ m.conj().T / len(m) + 2 * np.eye(len(m)) for m in matrices]
    whole = bk.KroneckerSum(definite)
    x = random_array(rng, (210,), dtype)
    b = whole.matvec(x)

    def program(comm):
        op = distribute(whole.to("cuda"), comm)
        result = method(op, op.scatter(b), rtol=1e-11)
        return op.gather(result.x), result

    results = simulate(3, program)
    for found, result in results:
        assert result.status is Status.CONVERGED
        np.testing.assert_array_equal(result.residual_norms, results[0][1].residual_norms)
        close(found, x, float, 1e4)
    alone = method(whole.to("cuda"), cupy.asarray(b), rtol=1e-11)
    assert abs(results[0][1].iterations - alone.iterations) <= 1


def test_solvers_on_large_parts(cupy, rng):
    """Several thread blocks share a rank's part."""
    whole = bk.KroneckerSum([np.diag(1 + np.arange(n) / n) for n in (40, 41, 42)])
    b = rng.standard_normal(whole.shape[0])

    def program(comm):
        op = distribute(whole.to("cuda"), comm)
        return [op.gather(method(op, op.scatter(b), rtol=1e-11).x) for method in (cg, gmres)]

    for solutions in simulate(2, program):
        for x in solutions:
            close(x, b / whole.diagonal(), float, 1e4)


@pytest.mark.parametrize("composition", ["additive", "symmetric"])
def test_full_grids_on_simulated_ranks(cupy, rng, composition):
    A = make("diffusion-2d", level=4, degree=1).operator
    b = rng.standard_normal(A.shape[0])
    whole = CombinationPreconditioner(A, 0.1, composition=composition)
    on_device = CombinationPreconditioner(A.to("cuda"), 0.1, composition=composition)
    alone = cg(bk.Identity(A.shape[0]) - 0.1 * A, b, M=whole, rtol=1e-9)

    def program(comm):
        op = distribute(A.to("cuda"), comm)
        M = distribute(on_device, comm, like=op)
        block, before = op.scatter(b), comm.traffic.elements
        y = M.matvec(block)
        assert comm.traffic.elements - before == M.volume().own_elements
        system = bk.Identity(op.shape[0]).to("cuda") - 0.1 * op
        result = cg(system, block, M=M, rtol=1e-9)
        return op.gather(y), op.gather(result.x), result.iterations

    for y, x, iterations in simulate(3, program):
        close(y, whole.matvec(b), float)
        close(x, alone.x, float, 1e4)
        assert abs(iterations - alone.iterations) <= 1


def test_a_grid_follows_the_solution_on_simulated_ranks(cupy):
    problem, rule = make("continuity-2d", level=3, degree=2), Adapt(1e-3, every=5)
    alone = evolve(problem, until=0.03, dt=2e-3, adapt=rule)

    def program(comm):
        part = distribute(problem.to("cuda"), comm, max_imbalance=1.0)
        result = evolve(part, until=0.03, dt=2e-3, adapt=rule)
        return result.problem.gather(result.u), result.problem.whole.grid.cells

    for u, cells in simulate(2, program):
        np.testing.assert_array_equal(cells, alone.problem.grid.cells)
        close(u, alone.u, float)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "backward-euler", "preconditioner": "block-jacobi"},
        {"method": "backward-euler", "preconditioner": "symmetric-combination"},
        {"method": "exponential-euler"},
    ],
    ids=lambda options: "-".join(options.values()),
)
def test_stiff_steps_on_grids_that_follow_the_solution(cupy, options):
    """Preconditioners are made for each grid, on the devices of its cells."""
    problem, rule = make("diffusion-2d", 3, 1), Adapt(1e-3, every=2, horizon=1e-3, max_level=4)
    run = {"until": 0.02, "dt": 5e-3, "adapt": rule, **options}
    alone = evolve(problem, **run)
    assert alone.u.size != problem.unknowns

    def program(comm):
        part = distribute(problem.to("cuda"), comm, max_imbalance=1.0)
        result = evolve(part, **run)
        return result.problem.gather(result.u), result.problem.whole.grid.cells

    for u, cells in simulate(3, program):
        np.testing.assert_array_equal(cells, alone.problem.grid.cells)
        close(u, alone.u, float, 1e4)


@pytest.mark.parametrize("name", ["continuity-2d", "diffusion-2d"])
def test_runs_on_simulated_ranks(cupy, name):
    problem = make(name, level=3, degree=2)
    expected = evolve(problem, until=0.02).u

    def program(comm):
        part = distribute(problem.to("cuda"), comm)
        result = evolve(part, until=0.02)
        return part.gather(result.u), part.l2_error(result.u, result.t)

    for u, error in simulate(2, program):
        close(u, expected, float, 1e4)
        assert error == pytest.approx(problem.l2_error(expected, 0.02), rel=1e-9)


@pytest.fixture(scope="module")
def alone(cupy):
    pytest.importorskip("cupy.cuda.nccl")
    return NcclCommunicator(SimulatedCommunicator())


def test_one_rank_of_nccl(cupy, alone, rng):
    whole = bk.KroneckerProduct(rng.standard_normal((3, 5, 5)))
    op = distribute(whole.to("cuda"), alone)
    x = rng.standard_normal(125)
    close(op.gather(op.apply(op.scatter(x))), whole.matvec(x), float, 10)
    assert alone.traffic.elements == 0
    values, gathered = cupy.arange(5.0), cupy.full((1, 5), np.nan)
    alone.gather_into(values, gathered)
    np.testing.assert_array_equal(gathered.get(), [np.arange(5.0)])


@pytest.mark.parametrize(
    "options",
    [
        {"method": "ssp-rk3", "dt": 1e-4},
        {"method": "dormand-prince", "dt": 1e-4},
        {"method": "dormand-prince", "rtol": 1e-10},
    ],
    ids=["equal", "first-is-last", "chosen"],
)
def test_steps_of_one_rank_are_graphs(cupy, alone, monkeypatch, options):
    part = distribute(make("continuity-3d", level=4, degree=2).to("cuda"), alone)
    run = Run(part, until=0.04, **options)
    result = run.to_end()
    assert any(run._stepping.stepper._runner._recorder._graphs.values())
    monkeypatch.setattr(DistributedOperator, "capturable", False)
    plain = evolve(part, until=0.04, **options)
    assert result.steps == plain.steps
    np.testing.assert_array_equal(result.u.get(), plain.u.get())


@pytest.mark.parametrize("method", ["ssp-rk3", "dormand-prince"])
def test_several_steps_of_simulated_ranks_are_those_taken_one_by_one(cupy, method):
    problem = make("continuity-3d", level=3, degree=2)
    options = {"until": 0.02, "dt": 1e-4, "method": method}

    def program(comm):
        part = distribute(problem.to("cuda"), comm)
        run, seen = Run(part, **options), []
        take = run._stepping.take_several
        run._stepping.take_several = lambda most, record: seen.append(most) or take(most, record)
        several, single = run.to_end(), evolve(part, callback=lambda state: None, **options)
        assert seen
        assert several.steps == single.steps == 200
        np.testing.assert_array_equal(several.u.get(), single.u.get())
        return part.gather(several.u)

    expected = evolve(problem, **options).u
    for u in simulate(3, program):
        close(u, expected, float, 1e3)


@pytest.mark.parametrize("overlaps", [False, True])
def test_an_exchange_is_captured(cupy, alone, captured, overlaps):
    sent, received = cupy.arange(100.0), cupy.full(100, np.nan)
    stream = cupy.cuda.Stream(non_blocking=True)
    alone.overlaps = overlaps
    graph = captured(stream, lambda: alone.ialltoallv(sent, [100], received, [100]).wait())
    received.fill(np.nan)
    cupy.cuda.Device().synchronize()
    sent += 1
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(received.get(), np.arange(100.0) + 1)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_with_a_device_each(cupy, ranks):
    pytest.importorskip("mpi4py")
    mpiexec = MPIEXEC or shutil.which("mpiexec")
    if mpiexec is None or cupy.cuda.runtime.getDeviceCount() < ranks:
        pytest.skip("there are fewer devices, or no mpiexec")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    environment.pop("PYTHONSAFEPATH", None)  # with it, mpi4py takes the first folder off the path
    run = subprocess.run(
        [
            mpiexec,
            "-n",
            str(ranks),
            sys.executable,
            "-m",
            "mpi4py",
            HERE / "nccl_program.py",
            str(ranks),
        ],
        capture_output=True,
        text=True,
        timeout=400,
        env=environment,
        cwd=HERE,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{ranks} ranks agree" in run.stdout
