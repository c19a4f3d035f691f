"""Batch lists as gathers, batched multiplies and sums: what one writes without a kernel."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import cupy

from benchmarks.gpu.cases.cases import BatchCase
from benchmarks.gpu.peers import cublas, torch_chain
from benchmarks.gpu.peers.chains import Call, Multiply, gemm, run_all

Array = Any


def needed_bytes(case: BatchCase, itemsize: int) -> int:
    """Memory of one chain: two buffers, factors of one mode, indices."""
    elements = 2 * case.block + case.size**2
    return case.products * (elements * itemsize + 8 * (case.modes + 2))


def _steps(case: BatchCase, *given: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """A batch of multiplies for each mode, where it reads and writes, and what each mode has."""
    n, buffers = case.size, given[0]
    for mode, own in enumerate(zip(*given[1:], strict=True)):
        step = Multiply("turned", mode, case.products, n, n, case.block // n)
        yield step, buffers[mode % 2], buffers[(mode + 1) % 2], *own


def cublas_calls(
    case: BatchCase, pools: Sequence[Array], ids: Sequence[Array], inputs: Array, x: Array, y: Array
) -> dict[str, list[Call]]:
    """Gathers and sums by CuPy, multiplies by cuBLAS."""
    buffers = [cupy.empty((case.products, case.block), x.dtype) for _ in range(2)]
    gathered = cupy.empty((case.products, case.size, case.size), x.dtype)
    calls: list[Call] = [partial(cupy.take, x, inputs, axis=0, out=buffers[0])]
    for step, source, target, pool, indices in _steps(case, buffers, pools, ids):
        calls.append(partial(cupy.take, pool, indices, axis=0, out=gathered))
        one = gemm(step, own_factors=True)
        calls.append(cublas.library().call(one, gathered, source, target))
    result = buffers[case.modes % 2].reshape(-1, case.CONTRIBUTIONS, case.block)
    calls.append(partial(cupy.sum, result, axis=1, out=y))
    return {"": [partial(run_all, calls)]}


def torch_calls(
    case: BatchCase, pools: Any, ids: Any, inputs: Array, outputs: Array, x: Array, y: Array
) -> dict[str, list[Call]]:
    """index_select, bmm and index_add_."""
    torch, tensor = torch_chain.torch, torch_chain.tensor
    first, result, count, n = tensor(x), tensor(y), case.products, case.size
    made = {"dtype": first.dtype, "device": "cuda"}
    buffers = [torch.empty((count, case.block), **made) for _ in range(2)]
    gathered = torch.empty((count, n, n), **made)
    select = torch.index_select
    calls: list[Call] = [partial(select, first, 0, tensor(inputs), out=buffers[0]), result.zero_]
    for step, source, target, pool, indices in _steps(case, buffers, pools, ids):
        calls.append(partial(select, tensor(pool), 0, tensor(indices), out=gathered))
        vectors = source.view(count, n, step.others).transpose(1, 2)
        out = target.view(count, step.others, n)
        calls.append(partial(torch.bmm, vectors, gathered.transpose(1, 2), out=out))
    calls.append(partial(result.index_add_, 0, tensor(outputs), buffers[case.modes % 2]))
    return {"": [partial(run_all, calls)]}
