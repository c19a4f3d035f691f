"""Stores to other ranks' memory, with several buffers on one device in place of several devices.

Only addresses matter for what a store does; the time is that of one pass over memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import batchkron as bk
from batchkron.arrays import on_host_layout
from batchkron.backends import Owners, backend_on
from batchkron.distributed.products.product_plan import make_plan
from benchmarks.core.records import save

REPEATS = 20
CASES = (
    (64, 4, 16, "float32"),
    (64, 4, 8, "float64"),
    (32, 5, 4, "float32"),
    (128, 3, 64, "float32"),
)


def run(path: Path | None) -> bool:
    """Print times of a group of multiplies, and of the same with stores to G owners' buffers."""
    import cupy

    copy_views = backend_on("cuda").copy_views
    records: list[dict[str, Any]] = []
    right = True
    for P, N, rows, dtype in CASES:
        for G in (2, 4):
            first = make_plan([(P, P)] * N, G, "group", True).rounds[0]
            exchange, local = first.exchange, first.products[0]
            factors = [np.random.default_rng(k).random((P, P)).astype(dtype) for k in range(N)]
            piece = bk.KroneckerProduct(factors[local.first : local.last + 1]).to("cuda")
            width = exchange.sources[1] - exchange.sources[0]
            elements = rows * width * exchange.moved
            x = cupy.random.default_rng(0).random((elements,), np.dtype(dtype).type)
            y = cupy.empty_like(x)
            before = rows * (first.bounds[1] // (local.inputs * local.behind))
            parts = [
                cupy.full((rows, exchange.targets[r + 1] - exchange.targets[r], 1), np.nan, dtype)
                for r in range(G)
            ]
            shape = rows, width, exchange.moved, 1

            def multiply(piece=piece, x=x, y=y, before=before, behind=local.behind):
                piece._run(x, y, before, behind, 1, False)

            def store(y=y, shape=shape, parts=parts, exchange=exchange):
                layouts = [on_host_layout(part) for part in parts]
                copy_views(exchange.store(0, on_host_layout(y).reshape(shape), layouts))

            def both(multiply=multiply, store=store):
                multiply()
                store()

            part = parts[0].shape[1]
            owners = Owners(
                tuple(each.reshape(-1) for each in parts), width, part, part // exchange.others, 1
            )

            def spread(piece=piece, x=x, owners=owners, before=before, behind=local.behind):
                return piece._spread(owners, x, before, behind, 1)

            both()
            right = right and _is_right(cupy, exchange, y.reshape(shape), parts)
            for each in parts:
                each.fill(np.nan)
            spreads = spread()
            right = right and spreads and _is_right(cupy, exchange, y.reshape(shape), parts)
            local_seconds, seconds = _seconds(cupy, multiply), _seconds(cupy, both)
            spread_seconds = _seconds(cupy, spread)
            moved = 2 * elements * x.itemsize
            record = {
                "case": f"{rows}: {P}^{N} {dtype}",
                "G": G,
                "multiplies": local.last - local.first + 1,
                "local_seconds": local_seconds,
                "stored_seconds": seconds,
                "ratio": seconds / local_seconds,
                "spread_seconds": spread_seconds,
                "spread_ratio": spread_seconds / local_seconds,
                "store_bytes_per_second": moved / (seconds - local_seconds),
                "right": right,
            }
            records.append(record)
            print(
                f"{record['case']:22} G = {G}: {record['multiplies']} multiplies "
                f"{1e3 * local_seconds:7.3f} ms, stored to owners {1e3 * seconds:7.3f} ms: "
                f"{record['ratio']:.2f} times"
                f"  ({1e-12 * record['store_bytes_per_second']:.2f} TB/s),"
                f" by the last multiply {1e3 * spread_seconds:7.3f} ms: "
                f"{record['spread_ratio']:.2f} times"
                f"{'' if right else '  WRONG'}",
                flush=True,
            )
            save(path, records)
    return right


def _is_right(cupy: Any, exchange: Any, blocks: Any, parts: Any) -> bool:
    """Whether what rank 0 has is where its owners need it."""
    expected = [cupy.full_like(part, np.nan) for part in parts]
    for target, source in exchange.store(0, blocks, expected):
        target[...] = source
    return all(
        bool(((a == b) | (cupy.isnan(a) & cupy.isnan(b))).all())
        for a, b in zip(parts, expected, strict=True)
    )


def _seconds(cupy: Any, call: Any) -> float:
    """Return the least seconds of a call on the device."""
    begin, end, times = cupy.cuda.Event(), cupy.cuda.Event(), []
    for _ in range(REPEATS + 3):
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3)
    return min(times[3:])
