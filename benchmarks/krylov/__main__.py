"""Time Krylov methods beside SciPy's or CuPy's: `python -m benchmarks.krylov --help`."""

import fnmatch
import sys
import warnings
from functools import partial
from itertools import cycle

import numpy as np

import batchkron as bk
from batchkron import solvers
from batchkron.solvers import Cg, Gmres
from benchmarks.core.checks import on_host
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, recorded, version_of
from benchmarks.core.timing import seconds_of, waiter
from benchmarks.krylov import cases

RTOL = 1e-8
SAMPLED = 32  # systems of the loop that are solved; it is taken to be as long for the others
TARGETS_OF_LOOPS = {True: 1.0, False: 3000.0}  # time of a loop over ours, on the CPU or not
TARGET_OF_FLOOR = 0.4  # floor over time
# times the peer's speed
TARGETS = {"cpu": lambda case: 1.0, "cuda": lambda case: 5.0 if case.unknowns <= 100_000 else 1.5}


def batch_records(systems, module):
    op, factors, b = cases.batch(systems, module)
    size = b.shape[1]
    wait = waiter("cpu" if module is np else "cuda")
    matrices = module.asarray(cases.dense(factors[:SAMPLED]))
    lu = torch_seconds(factors, b, module)
    for workspace, loop in ((Cg, "cg"), (Gmres, "gmres")):
        solver = workspace(size, like=b, batched="leading")
        result = solver.solve(op, b, rtol=RTOL)
        sampled = b[:SAMPLED] - (matrices @ result.x[:SAMPLED, :, None])[..., 0]
        errors = module.linalg.norm(sampled, axis=1) / module.linalg.norm(b[:SAMPLED], axis=1)
        seconds = cases.times_of({"batchkron": partial(solver.solve, op, b, rtol=RTOL)}, wait)
        ours = seconds["batchkron"]
        turns = f"a loop of {loop} ({min(SAMPLED, systems)} of {systems} solved)"
        seconds[turns] = loop_seconds(loop, factors, b, module, wait) * systems
        record = {"case": f"{systems} systems of {size}, {loop}", "seconds": seconds}
        record["right"] = bool(result.converged and float(errors.max()) <= 2 * RTOL)
        record["iterations"] = [int(result.iterations.min()), int(result.iterations.max())]
        record |= {"ratio": seconds[turns] / ours, "target": TARGETS_OF_LOOPS[module is np]}
        if lu is not None:
            seconds["torch's batched LU"] = lu
            record["over_lu"] = lu / ours
        if module is not np:
            record |= floors(size, result, ours, bandwidth(module), workspace is Cg)
        yield record


def floors(size, result, seconds, speed, is_cg):
    # in float64: matrices, b and x once; of cg in memory x, r, p read and written, p, q and q
    solve, iteration = 8 * (3 * cases.FACTOR**2 + 2 * size), 9 * 8 * size
    found = {"of_floor_once": solve * result.iterations.size / speed / seconds}
    if is_cg:
        moved = iteration * int(result.iterations.sum())
        found |= {"of_floor": moved / speed / seconds, "of_floor_target": TARGET_OF_FLOOR}
    return found


def loop_seconds(name, factors, b, module, wait):
    solve = getattr(cases.library_of(module), name)
    tolerance = cases.tolerance_name(solve)
    ops = [bk.KroneckerSum(list(each)) for each in factors[:SAMPLED]]
    if module is not np:
        ops = [op.to("cuda") for op in ops]
    systems = cycle(zip(ops, b, strict=False))

    def next_one():
        solve(*next(systems), **{tolerance: RTOL})

    seconds_of(next_one, len(ops), wait)
    return seconds_of(next_one, len(ops), wait)


def torch_seconds(factors, b, module):
    if module is np or version_of("torch") is None:
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    few = torch.from_numpy(cases.dense(factors[:64])).cuda()
    matrices = few.repeat(-(-len(b) // 64), 1, 1)[: len(b)]
    rhs = torch.from_dlpack(b)[..., None]

    solve = partial(torch.linalg.solve, matrices, rhs)
    return cases.times_of({"torch": solve}, torch.cuda.synchronize)["torch"]


def bandwidth(module):
    source = module.zeros(1 << 27)
    copy = partial(module.copyto, module.empty_like(source), source)
    return 2 * source.nbytes / cases.times_of({"copy": copy}, waiter("cuda"))["copy"]


def cases_on(device):
    unknowns, operators = cases.UNKNOWNS, cases.OPERATORS
    if device == "cuda":
        unknowns, operators = cases.DEVICE_UNKNOWNS, cases.DEVICE_OPERATORS
    return [cases.Case(m, o, n) for n in unknowns for o in operators for m in cases.METHODS]


def solve_record(case, device, module):
    A, b = cases.operator_of(case, module), cases.right_hand_side(cases.side(case), module)
    options = {"rtol": 1e-15, "maxiter": cases.ITERATIONS}
    library = cases.library_of(module)
    name, peer = "SciPy" if device == "cpu" else "CuPy", getattr(library, case.method, None)
    if peer is None:  # CuPy has no bicgstab; its cgs has two products an iteration as well
        name, peer = f"{name}'s cgs", library.cgs
    peer_options = {"maxiter": cases.ITERATIONS, cases.tolerance_name(peer): 1e-15}
    made = {}
    if case.method == "gmres":
        restart = cases.ITERATIONS // 2
        options["maxiter"], made = 2, {"restart": restart}
        cycles = 2 if device == "cpu" else cases.ITERATIONS
        peer_options |= {"maxiter": cycles, "restart": restart}
    ours, peers = getattr(solvers, case.method), cases.peer_operator(case, module)
    solver = getattr(solvers, case.method.capitalize())(cases.side(case), like=b, **made)
    contenders = {
        "batchkron, kept": lambda: solver.solve(A, b, **options),
        "batchkron": lambda: ours(A, b, **made, **options),
        name: lambda: peer(peers, b, **peer_options),
    }
    result = contenders["batchkron"]()
    residual = float(np.linalg.norm(on_host(b - A @ result.x)))
    right = abs(residual - result.residual_norm) <= 1e-6 * float(np.linalg.norm(on_host(b)))
    seconds = cases.times_of(contenders, waiter(device))
    ratio = seconds[name] / seconds["batchkron"]
    target = 1.0 if case.method == "gmres" and case.unknowns > 100_000 else TARGETS[device](case)
    found = {"case": case.name, "seconds": seconds, "iterations": int(result.iterations)}
    return {**found, "right": right, "ratio": ratio, "target": target}


def records(options, module):
    patterns = options.case or ["*"]
    for case in cases_on(options.device):
        if any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns):
            yield solve_record(case, options.device, module)
    if any(fnmatch.fnmatch("batch", pattern) for pattern in patterns):
        systems = options.systems or (4096 if module is not np else 256)
        yield from batch_records(systems, module)


def main(given=None):
    parser = parser_of(__doc__, "device", "json")
    parser.add_argument("--case", action="append", help="name or pattern, as --list prints them")
    parser.add_argument("--systems", type=int, help="of the batch; 4096, on the CPU 256")
    parser.add_argument("--list", action="store_true", help="print the cases")
    options = parser.parse_args(given)
    if options.list:
        print(*[case.name for case in cases_on(options.device)], "batch", sep="\n")
        return 0
    module = np
    if options.device == "cuda":
        import cupy as module
    about = {"machine": machine(options.device, threads=bk.get_num_threads())}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = recorded(records(options, module), options.json, about)
    for record in found:
        pairs = ("ratio", "target"), ("of_floor", "of_floor_target")
        short = [one for one, target in pairs if one in record and record[one] < record[target]]
        short += ["over_lu"] if record.get("over_lu", 1.0) < 1.0 else []
        if short:
            print(f"{record['case']}: missed {', '.join(short)}")
    return int(any(not record["right"] for record in found))


if __name__ == "__main__":
    sys.exit(main())
