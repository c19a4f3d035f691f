"""Stores to other ranks' memory, with several buffers on one device in place of several devices.

Only addresses matter for what a store does; the time is that of one pass over memory.
"""

from itertools import product

import numpy as np

import batchkron as bk
from batchkron.arrays import on_host_layout
from batchkron.backends import Owners, backend_on
from batchkron.distributed.products.product_plan import make_plan
from benchmarks.core.records import recorded, save

REPEATS = 20
CASES = (
    *((64, 4, 16, "float32"), (64, 4, 8, "float64")),
    *((32, 5, 4, "float32"), (128, 3, 64, "float32")),
)


class Stored:
    """The first group of a product's multiplies on rank 0 of G, and the buffers of its owners."""

    def __init__(self, P, N, rows, dtype, G):
        import cupy

        first = make_plan([(P, P)] * N, G, "group", True).rounds[0]
        self.exchange, self.local = first.exchange, first.products[0]
        factors = [np.random.default_rng(k).random((P, P)).astype(dtype) for k in range(N)]
        piece = factors[self.local.first : self.local.last + 1]
        self.piece = bk.KroneckerProduct(piece).to("cuda")
        sources, targets = self.exchange.sources, self.exchange.targets
        width, part = sources[1] - sources[0], targets[1] - targets[0]
        self.shape = rows, width, self.exchange.moved, 1
        elements = rows * width * self.exchange.moved
        self.x = cupy.random.default_rng(0).random((elements,), np.dtype(dtype).type)
        self.y = cupy.empty_like(self.x)
        self.before = rows * (first.bounds[1] // (self.local.inputs * self.local.behind))
        self.parts = [
            cupy.full((rows, targets[r + 1] - targets[r], 1), np.nan, dtype) for r in range(G)
        ]
        flat = tuple(each.reshape(-1) for each in self.parts)
        self.owners = Owners(flat, width, part, part // self.exchange.others, 1)

    def multiply(self):
        self.piece._run(self.x, self.y, self.before, self.local.behind, 1, False)

    def both(self):
        self.multiply()
        layouts = [on_host_layout(part) for part in self.parts]
        given = on_host_layout(self.y).reshape(self.shape)
        backend_on("cuda").copy_views(self.exchange.store(0, given, layouts))

    def spread(self):
        """Multiply, and let the last multiply store; whether there is a kernel for it."""
        return bool(self.piece._spread(self.owners, self.x, self.before, self.local.behind, 1))

    def is_right(self, work):
        """Whether what rank 0 has is after some work where its owners need it."""
        import cupy

        for part in self.parts:
            part.fill(np.nan)
        done = work() is not False
        expected = [cupy.full_like(part, np.nan) for part in self.parts]
        for target, source in self.exchange.store(0, self.y.reshape(self.shape), expected):
            target[...] = source
        return done and all(
            bool(((a == b) | (cupy.isnan(a) & cupy.isnan(b))).all())
            for a, b in zip(self.parts, expected, strict=True)
        )


def run(path):
    found = recorded(measured(case, G) for case, G in product(CASES, (2, 4)))
    save(path, found)
    return all(record["right"] for record in found)


def measured(case, G):
    P, N, rows, dtype = case
    stored = Stored(P, N, rows, dtype, G)
    right = stored.is_right(stored.both) and stored.is_right(stored.spread)
    local, both, spread = map(_seconds, (stored.multiply, stored.both, stored.spread))
    rate = 2 * stored.x.nbytes / (both - local)
    multiplies = stored.local.last - stored.local.first + 1
    record = {"case": f"{rows}: {P}^{N} {dtype}", "G": G, "multiplies": multiplies}
    record |= {"local_seconds": local, "stored_seconds": both, "ratio": both / local}
    record |= {"spread_seconds": spread, "spread_ratio": spread / local}
    return {**record, "store_bytes_per_second": rate, "right": right}


def _seconds(call):
    import cupy

    from benchmarks.core.device_timing import elapsed

    stream = cupy.cuda.get_current_stream()
    return 1e-6 * min([elapsed(stream, call) for _ in range(REPEATS + 3)][3:])
