"""What XLA's calls launch, on the device of fake_cupy."""

import cupy
import numpy as np
from dense_oracle import DTYPES, random_array

from batchkron.backends.cuda.runtime import device
from batchkron.jax.device_calls import planned
from fake_device_checks import DEVICE
from fake_device_checks.common import close, on_device


def called(name, operands, shape, transpose=False):
    """Plan a call and launch it as the compiled core does; the result, before poisoned."""
    given = on_device(list(operands))
    described = [(one.dtype.name, one.shape) for one in operands]
    device.driver_context = lambda: (1, 2, 3)
    sequence, workspace, systems, sources, context = planned(name, transpose, 0, described)
    assert context == (1, 2, 3)
    out = cupy.asarray(np.full(shape, np.nan, operands[0].dtype))
    memory = DEVICE.alloc(workspace)
    firsts = {-1: out.data.ptr, -2: memory.ptr, -3: 0}
    firsts |= {k: one.data.ptr for k, one in enumerate(given)}
    for system in range(systems):
        sequence(0, tuple(firsts[k] + system * step for k, step in sources), b"")
    return out


def kron_matmul():
    """Systems with factors of their own and shared ones, vectors along either axis, two passes."""
    rng = np.random.default_rng(1)
    large = [(1, 1, 2, [(16, 16)] * 4)]
    for dtype in DTYPES:
        small = [(systems, 5, inner, [(2, 3), (4, 2)]) for systems in (1, 3) for inner in (1, 2)]
        for systems, outer, inner, sizes in small + large * (dtype == "float64"):
            for transpose in (False, True):
                shapes = [size[::-1] if transpose else size for size in sizes]
                factors = [random_array(rng, (systems, *shape), dtype) for shape in shapes]
                factors[-1] = factors[-1][:1]
                rows, columns = (int(np.prod(side)) for side in zip(*sizes, strict=True))
                x = random_array(rng, (systems, outer, rows, inner), dtype)
                expected = np.empty((systems, outer, columns, inner), dtype)
                for s in range(systems):
                    own = [factor[s % len(factor)] for factor in factors]
                    y = x[s]
                    for k, A in enumerate(own):
                        A = A.T if transpose else A
                        before = int(np.prod([size[1] for size in sizes[:k]]))
                        y = y.reshape(outer * before, len(A), -1)
                        y = np.einsum("lpr,pq->lqr", y, A)
                    expected[s] = y.reshape(expected.shape[1:])
                close(called("kron_matmul", [x, *factors], expected.shape, transpose), expected)


def mode_gram():
    """One system and several."""
    rng = np.random.default_rng(2)
    for dtype in ("float32", "float64"):
        for systems, outer, rows, columns, inner in ((1, 3, 4, 2, 5), (3, 1, 1, 3, 2)):
            x = random_array(rng, (systems, outer, rows, inner), dtype)
            y = random_array(rng, (systems, outer, columns, inner), dtype)
            expected = np.einsum("slpr,slqr->spq", x, y)
            close(called("mode_gram", [x, y], expected.shape), expected)
