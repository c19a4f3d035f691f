"""Many small systems at once, beside a loop of solves and dense factorisations."""

from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import scipy.sparse.linalg as scipy_linalg

import batchkron as bk
from batchkron.solvers import Cg, Gmres
from benchmarks.core.records import version_of
from benchmarks.core.timing import Call, seconds_of, waiter
from benchmarks.krylov import cases
from benchmarks.krylov.cases import dense, times_of

RTOL = 1e-8
SAMPLED = 32  # systems of the loop that are solved; it is taken to be as long for the others
TARGET = 3000.0  # time of a loop of solves over ours, on a device
TARGET_ON_CPU = 1.0
TARGET_OF_FLOOR = 0.4  # floor over time


def batch_records(systems: int, module: Any) -> Iterator[dict[str, Any]]:
    op, factors, b = cases.batch(systems, module)
    size = b.shape[1]
    wait = waiter("cpu" if module is np else "cuda")
    matrices = module.asarray(dense(factors[:SAMPLED]))
    lu = torch_seconds(factors, b, module)
    for workspace, loop in ((Cg, "cg"), (Gmres, "gmres")):
        solver = workspace(size, like=b, batched="leading")
        result = solver.solve(op, b, rtol=RTOL)
        sampled = b[:SAMPLED] - (matrices @ result.x[:SAMPLED, :, None])[..., 0]
        errors = module.linalg.norm(sampled, axis=1) / module.linalg.norm(b[:SAMPLED], axis=1)
        right = bool(result.converged and float(errors.max()) <= 2 * RTOL)
        seconds = times_of({"batchkron": partial(solver.solve, op, b, rtol=RTOL)}, wait)
        turns = f"a loop of {loop} ({min(SAMPLED, systems)} of {systems} solved)"
        seconds[turns] = loop_seconds(loop, factors, b, module, wait) * systems
        if lu is not None:
            seconds["torch's batched LU"] = lu
        record = {
            "case": f"{systems} systems of {size}, {loop}",
            "seconds": seconds,
            "right": right,
        }
        record["iterations"] = [int(result.iterations.min()), int(result.iterations.max())]
        record["ratio"] = seconds[turns] / seconds["batchkron"]
        record["target"] = TARGET_ON_CPU if module is np else TARGET
        if lu is not None:
            record["over_lu"] = lu / seconds["batchkron"]
        if module is not np:
            record |= floors(size, result, seconds["batchkron"], bandwidth(module), workspace is Cg)
        yield record


def floors(size: int, result: Any, seconds: float, speed: float, is_cg: bool) -> dict[str, float]:
    # in float64: matrices, b and x once; of cg in memory x, r, p read and written, p, q and q
    solve, iteration = 8 * (3 * cases.FACTOR**2 + 2 * size), 9 * 8 * size
    found = {"of_floor_once": solve * result.iterations.size / speed / seconds}
    if is_cg:
        moved = iteration * int(result.iterations.sum())
        found |= {"of_floor": moved / speed / seconds, "of_floor_target": TARGET_OF_FLOOR}
    return found


def loop_seconds(name: str, factors: np.ndarray, b: Any, module: Any, wait: Any) -> float:
    library = scipy_linalg
    if module is not np:
        import cupyx.scipy.sparse.linalg as library
    solve = getattr(library, name)
    tolerance = cases.tolerance_name(solve)
    ops = [bk.KroneckerSum(list(each)) for each in factors[:SAMPLED]]
    if module is not np:
        ops = [op.to("cuda") for op in ops]
    systems = cycle(zip(ops, b, strict=False))

    def next_one() -> None:
        solve(*next(systems), **{tolerance: RTOL})

    seconds_of(next_one, len(ops), wait)
    return seconds_of(next_one, len(ops), wait)


def torch_seconds(factors: np.ndarray, b: Any, module: Any) -> float | None:
    if module is np or version_of("torch") is None:
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    few = torch.from_numpy(dense(factors[:64])).cuda()
    matrices = few.repeat(-(-len(b) // 64), 1, 1)[: len(b)]
    rhs = torch.from_dlpack(b)[..., None]

    solve = partial(torch.linalg.solve, matrices, rhs)
    return times_of({"torch": solve}, torch.cuda.synchronize)["torch"]


def bandwidth(module: Any) -> float:
    source = module.zeros(1 << 27)
    target = module.empty_like(source)

    copy: Call = partial(module.copyto, target, source)
    seconds = times_of({"copy": copy}, waiter("cuda"))["copy"]
    return 2 * source.nbytes / seconds
