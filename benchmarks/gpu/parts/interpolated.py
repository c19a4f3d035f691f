"""Interpolated Kronecker products on a device, next to sparse matrices of cuSPARSE and torch."""

from contextlib import nullcontext
from functools import partial
from unittest.mock import patch

import cupy
import cupyx.scipy.sparse
import numpy as np

import batchkron as bk
from batchkron.backends.cuda.interpolated import segments
from benchmarks.core.checks import relative_error
from benchmarks.core.device_timing import measured, random_array
from benchmarks.core.memory import peak_bytes
from benchmarks.gpu.cases.cases import interpolation_floor
from benchmarks.gpu.parts.kron_sparse import copy_rate
from benchmarks.gpu.peers import torch_chain

KINDS = ("W", "W transposed", "W K")
CHECKED = 2  # vectors of a result that are compared


def variant_time(data, constants):
    """The time of our transpose with other constants of ``segments.py``, or why there is none."""
    x, y, error = _arrays(data, "W transposed")

    def ours():
        moved = bk.Interpolation(data.points, data.grid, data.dtype).to("cuda")
        return {"": [partial(moved.T.matmat, x, out=y)]}, nullcontext

    with patch.multiple(segments, **constants):
        return measured(ours, data.dtype.name, y, partial(error, y))


def _arrays(data, kind):
    """Vectors, memory for their products, and what finds the error of these, by SciPy."""
    rows, cells = data.operator.shape
    out_size, in_size = {"W": (rows, cells), "W transposed": (cells, rows)}.get(kind, (rows, rows))
    x = random_array((in_size, data.batch), data.dtype.name)
    few = np.linspace(0, data.batch - 1, min(data.batch, CHECKED)).astype(int)
    W, expected = data.matrices.matrix(), x[:, few].get().astype(np.float64)
    if kind != "W":
        expected = W.T @ expected
    if kind == "W K":
        expected = bk.gekmm([factor.astype(np.float64) for factor in data.factors], expected)
    expected = expected if kind == "W transposed" else W @ expected

    def error(y):
        return relative_error(y[:, few].get().astype(np.float64), expected)

    return x, cupy.empty((out_size, data.batch), data.dtype), error


def measured_row(data, kind):
    x, y, error = _arrays(data, kind)
    held = {}  # what the last call has returned
    taken = {}  # bytes of device memory at most, without the result

    def contender(name, make):
        made = []

        def work():
            made.append(make())
            made.append(made[0](x))  # plans and workspaces are there after it

        needed = peak_bytes(work, None if torch_chain.missing() else torch_chain.torch)
        product, result = made
        taken[name] = needed - (0 if result is y else result.nbytes)
        on = torch_chain.on if name == "torch" else nullcontext

        def call():
            held["y"] = product(x)

        return {"": [call]}, on

    def ours():
        if kind == "W K":
            whole = bk.InterpolatedKronecker(data.points, data.grid, data.factors)
        else:
            whole = bk.Interpolation(data.points, data.grid, data.dtype)
        moved = whole.to("cuda")
        return partial((moved.T if kind == "W transposed" else moved).matmat, out=y)

    def run(name, make):
        held.clear()
        found = partial(contender, name, make)
        return measured(found, data.dtype.name, y, lambda: error(held["y"]))

    row = {
        "ours": run("batchkron", ours),
        "peers": {
            "cuSPARSE by CuPy": run("CuPy", partial(_by_cupy, data, kind)),
            "torch CSR": run("torch", partial(_by_torch, data, kind)),
        },
    }
    sizes = data.sizes, data.count, data.batch, data.dtype.name
    row["floor"] = interpolation_floor(*sizes, copy_rate(), kind)
    times = [peer["microseconds"] for peer in row["peers"].values() if "microseconds" in peer]
    if times and "microseconds" in row["ours"]:
        row["gain"] = min(times) / row["ours"]["microseconds"]
    row["bytes"], own = taken, taken.get("batchkron", 0)
    others = [one for name, one in taken.items() if name != "batchkron"]
    if others and own:
        row["less_memory"] = min(others) / own
    return row


def _between(data):
    return bk.KroneckerProduct(data.factors).to("cuda").matmat


def _by_cupy(data, kind):
    csr, turned = data.sparse, data.turned
    W, T = (
        cupyx.scipy.sparse.csr_matrix(
            tuple(cupy.asarray(part) for part in (m.data, m.indices, m.indptr)), shape=m.shape
        )
        for m in (csr, turned)
    )
    return _chain(kind, W.__matmul__, T.__matmul__, _between(data))


def _by_torch(data, kind):
    absent = torch_chain.missing()
    if absent:
        raise RuntimeError(absent)
    torch = torch_chain.torch
    W, T = (
        torch.sparse_csr_tensor(
            *(torch.as_tensor(part, device="cuda") for part in (m.indptr, m.indices, m.data)),
            m.shape,
        )
        for m in (data.sparse, data.turned)
    )

    def by(matrix, x):
        return cupy.asarray(matrix @ torch_chain.tensor(x))

    return _chain(kind, partial(by, W), partial(by, T), _between(data))


def _chain(kind, W, T, between):
    if kind != "W K":
        return W if kind == "W" else T
    return lambda x: W(between(cupy.ascontiguousarray(T(x))))
