"""What ranks with a device each do: ``mpiexec -n G python -m mpi4py nccl_program.py G``."""

import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import cupy
import numpy as np

import batchkron as bk
from batchkron.distributed import NcclCommunicator, choose_device, distribute, world
from batchkron.distributed.operator import DistributedOperator
from batchkron.problems import PDE, Axis, Separable, div, make, mass, time
from batchkron.solvers import Run, Status, cg, evolve, gmres, steppers


def check(same, text):
    if not same:
        raise AssertionError(text)


def close(found, expected, scale=1e-12):
    np.testing.assert_allclose(found.get(), expected, rtol=0, atol=scale * abs(expected).max())


def check_products(comm, rng):
    for shapes, rows in [([(4, 4)] * 5, 1), ([(3, 5), (7, 2), (4, 6)], 3), ([(8, 8)] * 3, 40)]:
        whole = bk.KroneckerProduct([rng.standard_normal(shape) for shape in shapes])
        x = rng.standard_normal((rows, whole.shape[1]))
        for grid in {(1, comm.size), (comm.size, 1)}:
            for rule in ("group", "every"):
                op = distribute(whole.to("cuda"), comm, grid, rows=rows, exchange=rule)
                check(isinstance(op.communicator, NcclCommunicator), "ranks have no NCCL")
                block = op.scatter(x)
                before = op.communicator.traffic.elements
                y = op.apply(block)
                sent = op.communicator.traffic.elements - before
                check(sent == op.volume().own_elements, "the plan's volume is another one")
                close(op.gather(y), whole.apply(x))


def check_choices(comm, rng):
    """Devices of one machine that can access each other store, unless told otherwise."""
    can_access = cupy.cuda.runtime.deviceCanAccessPeer
    devices = comm.allgather(np.array([cupy.cuda.Device().id]))[:, 0].tolist()
    able = comm.size > 1 and all(can_access(a, b) for a in devices for b in devices if a != b)
    chosen = NcclCommunicator(comm).stores
    if len(set(devices)) == comm.size:  # else each process sees its own device only
        check(chosen == able, "another way than devices can")
    by_nccl = NcclCommunicator(comm, stores=False)
    check(not by_nccl.stores, "stores against the user's choice")
    check_products(by_nccl, rng)
    check_graph(by_nccl, rng)


def check_more_vectors(comm, rng):
    """A captured product keeps its buffers when a later one needs larger ones."""
    whole = bk.KroneckerProduct(rng.standard_normal((4, 6, 6)))
    op = distribute(whole.to("cuda"), comm, (1, comm.size))
    x = rng.standard_normal((5, 6**4))
    few, many = (op.scatter(rows) for rows in (x[:1], x))
    y, stream = cupy.full_like(few, np.nan), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        op.apply(few, out=y)
        stream.begin_capture()
        op.apply(few, out=y)
        graph = stream.end_capture()
        for _ in range(3):
            more = op.apply(many)
            y.fill(np.nan)
            graph.launch(stream)
        stream.synchronize()
    close(op.gather(more), whole.apply(x))
    close(op.gather(y), whole.apply(x[:1]))


def check_step(comm, rng):
    """A step of an explicit method, captured by hand, has the bits of eager ones."""
    part = distribute(make("pitch-angle-e", level=5, degree=2).to("cuda"), comm)
    stepper = steppers.get("ssp-rk3")(part, 1e-4)
    eager, stream = part.initial.copy(), cupy.cuda.Stream(non_blocking=True)
    for _ in range(6):
        stepper.step(eager, 0.0, 1e-4)
    u = part.initial.copy()
    cupy.cuda.Device().synchronize()
    with stream:
        stepper.step(u, 0.0, 1e-4)
        stream.begin_capture()
        stepper.step(u, 0.0, 1e-4)
        graph = stream.end_capture()
        for _ in range(5):
            graph.launch(stream)
        stream.synchronize()
    np.testing.assert_array_equal(u.get(), eager.get())


def check_stores(comm, rng):
    """Results that are written straight to their owners' memory, also by a captured product."""
    direct = NcclCommunicator(comm, stores=True)
    for shapes, rows in [([(4, 4)] * 5, 1), ([(3, 5), (7, 2), (4, 6)], 3), ([(8, 8)] * 3, 40)]:
        whole = bk.KroneckerProduct([rng.standard_normal(shape) for shape in shapes])
        x = rng.standard_normal((rows, whole.shape[1]))
        for rule in ("group", "every"):
            for redistribute in (True, False):
                options = {"rows": rows, "exchange": rule, "redistribute": redistribute}
                op = distribute(whole.to("cuda"), direct, (1, comm.size), **options)
                block = op.scatter(x)
                for _ in range(5):
                    y = op.apply(block)
                close(op.gather(y), whole.apply(x))
    check_graph(direct, rng)


def check_others(comm, rng):
    factors = [rng.standard_normal((n, n)) for n in (4, 5, 6, 3)]
    pool = rng.standard_normal((5, 3, 3))
    ids, blocks = rng.integers(0, 5, (90, 2)), rng.integers(0, 20, (2, 90))
    for whole in (
        bk.KroneckerSum(factors),
        bk.BatchedKron(pool, ids, *blocks, num_inputs=20, num_outputs=20),
        make("continuity-2d", level=4, degree=2).operator,
        bk.KroneckerSparseChain([rng.standard_normal((1 << k, 2, 2, 64 >> k)) for k in range(7)]),
    ):
        x = rng.standard_normal(whole.shape[1])
        op = distribute(whole.to("cuda"), comm)
        before = op.communicator.traffic.elements
        y = op.apply(op.scatter(x))
        sent = op.communicator.traffic.elements - before
        check(sent == op.volume().own_elements, "the plan's volume is another one")
        close(op.gather(y), whole.matvec(x))


def check_solvers(comm, rng):
    factors = [rng.standard_normal((n, n)) for n in (12, 11, 13, 10)]
    definite = bk.KroneckerSum([m @ m.T / len(m) + np.eye(len(m)) for m in factors])
    general = bk.KroneckerProduct([m / 40 + np.eye(len(m)) for m in factors])
    for method, whole in ((cg, definite), (gmres, general)):
        op = distribute(whole.to("cuda"), comm)
        x = rng.standard_normal(whole.shape[0])
        for _ in range(8):  # the later ones by captured graphs
            result = method(op, op.scatter(whole.matvec(x)), rtol=1e-10)
        check(result.status is Status.CONVERGED, f"{method.__name__}: {result.status}")
        close(op.gather(result.x), x, 1e-7)
        same = comm.broadcast(np.asarray(result.residual_norms), 0)
        np.testing.assert_array_equal(result.residual_norms, same)


def check_sweeps(comm, rng):
    """Own blocks beside the exchange, after it, stored or sent: the same bits, also in a graph."""
    whole = make("continuity-3d", level=5, degree=2).operator
    x = rng.standard_normal(whole.shape[1])
    aside, in_turn = NcclCommunicator(comm), NcclCommunicator(comm)
    in_turn.overlaps = False
    sent = NcclCommunicator(comm, stores=False)
    results, stream = [], cupy.cuda.Stream(non_blocking=True)
    for communicator in (aside, in_turn, sent):
        op = distribute(whole.to("cuda"), communicator)
        block = op.scatter(x)
        eager, y = op.apply(block), cupy.full_like(block, np.nan)
        close(op.gather(eager), whole.matvec(x), 1e-11)
        cupy.cuda.Device().synchronize()
        with stream:
            op.apply(block, out=y)
            stream.begin_capture()
            op.apply(block, out=y)
            graph = stream.end_capture()
            for _ in range(20):
                y.fill(np.nan)
                graph.launch(stream)
            stream.synchronize()
        np.testing.assert_array_equal(y.get(), eager.get())
        results.append(y.get())
    np.testing.assert_array_equal(results[1:], [results[0]] * 2)


def driven():
    """Terms and a source that depend on time."""
    x, y = Axis("x", 0, 1), Axis("y", -1, 1)
    terms = [div(x, -1.0, time=time.polynomial([1.0, 1.0])), div(y), mass(x, time=time.cos(1.0))]
    source = Separable(x=lambda x: np.sin(2 * np.pi * x), t=time.exp(1.0))
    start = Separable(x=lambda x: np.cos(2 * np.pi * x), y=lambda y: 1 + np.cos(np.pi * y))
    both = {x: "periodic", y: "periodic"}
    return PDE([x, y], terms, boundary=both, sources=source, initial=start).discretize(4, 2)


def check_graphs_of_runs(comm, rng):
    """Steps as graphs have the bits of steps without; so has a run that is resumed."""
    cases = [
        (driven(), {"method": "ssp-rk3", "dt": 1e-4, "until": 0.05}),
        (driven(), {"method": "dormand-prince", "dt": 1e-4, "until": 0.05}),
        (driven(), {"method": "dormand-prince", "rtol": 1e-10, "until": 0.2}),
        (make("continuity-6d", level=3, degree=2), {"method": "rk4", "dt": 1e-5, "until": 3e-3}),
    ]
    for problem, options in cases:
        part = distribute(problem.to("cuda"), comm)
        run = Run(part, **options)
        result = run.to_end()
        recorder = run._stepping.stepper._runner._recorder
        check(any(recorder._graphs.values()), "no step was a graph")
        with patch.object(DistributedOperator, "capturable", False):
            plain = evolve(part, **options)
        check(result.steps == plain.steps, "other steps")
        np.testing.assert_array_equal(result.u.get(), plain.u.get())
        norms = [record.get("norm") for record in result.history]
        check(norms == [record.get("norm") for record in plain.history], "other norms")
        close(part.gather(result.u), evolve(problem, **options).u, 1e-6)

    def stops(state):
        return state.step >= 300

    stops.may_skip = True
    problem, options = cases[1]
    part = distribute(problem.to("cuda"), comm)
    with tempfile.TemporaryDirectory() as own:
        file = Path(comm.broadcast(own, 0)) / "run.h5"
        first = evolve(part, callback=stops, checkpoint=file, checkpoint_every=70, **options)
        check(300 <= first.steps < 500, "it was not stopped")
        last = evolve(part, resume=file, **options)
        np.testing.assert_array_equal(last.u.get(), evolve(part, **options).u.get())


def check_runs(comm):
    for name in ("continuity-2d", "diffusion-2d"):
        problem = make(name, level=4, degree=1)
        part = distribute(problem.to("cuda"), comm)
        result = evolve(part, until=0.02)
        expected = evolve(problem, until=0.02).u
        close(part.gather(result.u), expected, 1e-8)


def check_graph(comm, rng):
    """A captured product, several times."""
    whole = bk.KroneckerProduct(rng.standard_normal((4, 6, 6)))
    op = distribute(whole.to("cuda"), comm, (1, comm.size))
    x = rng.standard_normal(6**4)
    block = op.scatter(x)
    y, stream = cupy.full_like(block, np.nan), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        op.apply(block, out=y)
        stream.synchronize()
        stream.begin_capture()
        op.apply(block, out=y)
        graph = stream.end_capture()
        for _ in range(20):
            y.fill(np.nan)
            graph.launch(stream)
        stream.synchronize()
    close(op.gather(y), whole.matvec(x))


def main():
    comm = world()
    choose_device(comm)
    check(comm.size == int(sys.argv[1]), "another number of ranks")
    rng = np.random.default_rng(0)
    for check_part in (
        check_products,
        check_others,
        check_solvers,
        check_graph,
        check_stores,
        check_choices,
        check_step,
        check_more_vectors,
        check_sweeps,
        check_graphs_of_runs,
    ):
        check_part(comm, rng)
        if comm.rank == 0:
            print(check_part.__name__, flush=True)
    check_runs(comm)
    if comm.rank == 0:
        print(f"{comm.size} ranks agree")


if __name__ == "__main__":
    main()
