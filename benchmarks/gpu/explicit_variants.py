"""Every way to write a product out, timed: what the choice among families is founded on."""

import time
from functools import partial
from itertools import product

import cupy
import numpy as np

from batchkron.backends.cuda.explicit.bands import BANDS, BandVariant
from batchkron.backends.cuda.explicit.kernel import WORD_BYTES, DeviceMatrix, ProductShape
from batchkron.backends.cuda.explicit.plan import write_product
from batchkron.backends.cuda.explicit.tiles import TILES, TileVariant
from batchkron.backends.cuda.runtime.device import current_device, device_limits
from benchmarks.core.device_timing import timed
from benchmarks.core.options import parser_of
from benchmarks.core.records import save
from benchmarks.core.tables import words
from benchmarks.gpu.cases.cases import DTYPES, EXPLICIT, explicit_bytes, explicit_traffic
from benchmarks.gpu.data import ExplicitSubject
from benchmarks.shapes import squares

KIB = 1 << 10
BAND_VARIANTS = (
    *(BandVariant(), BandVariant(lines=False), BandVariant(repeats=16), BandVariant(repeats=64)),
    *(BandVariant(batch=8, repeats=8), BandVariant(words=2, batch=2)),
    *(BandVariant(threads=128), BandVariant(threads=512)),
)
TILE_VARIANTS = (
    *(TileVariant(), TileVariant(streaming=False)),
    *(TileVariant(total=total * KIB) for total in (16, 64)),
    *(TileVariant(run=32 * KIB), TileVariant(run=32 * KIB, total=64 * KIB)),
    TileVariant(run=32 * KIB, total=128 * KIB),
    *(TileVariant(run=64 * KIB, total=total * KIB) for total in (64, 256)),
    *(TileVariant(128, run * KIB, 2 * run * KIB) for run in (8, 16, 32)),
    *(TileVariant(512, run * KIB, 2 * run * KIB) for run in (32, 64)),
)
WAYS = ((BANDS, BAND_VARIANTS), (TILES, TILE_VARIANTS))


def measured(sizes, dtype):
    """A record for each kernel; results are compared with those of CuPy, bit by bit."""
    subject, written = ExplicitSubject(sizes, dtype), explicit_bytes(sizes, dtype)
    matrices, outs = subject.matrices, subject.outs
    device, halves = current_device(), matrices
    if len(matrices) == 4:  # a and b are products of two
        halves = [cupy.kron(*matrices[:2]), cupy.kron(*matrices[2:])]
        matrices = [matrices[place] for place in (0, 2, 1, 3)]
    expected = cupy.kron(*halves)
    a, b, *inner = matrices
    places = [DeviceMatrix(0, len(one), len(one), len(one), 1) for one in matrices]
    at = outs[-1].data.ptr % WORD_BYTES
    shape = ProductShape(*places[:2], at, np.dtype(dtype), *places[2:])
    common = {"case": squares(*sizes).name, "dtype": dtype, "written": written}

    def record(family, variant, calls, moved):
        time = timed(calls)
        own = {"family": family, "variant": str(variant), "microseconds": time}
        return common | own | {"terabytes_per_second": moved / time / 1e6}

    def fill(out):
        out.data.memset_async(0, out.nbytes, cupy.cuda.get_current_stream())

    def copy(out):
        """Copy half of the memory to its other half: as many bytes move as are in it."""
        half = out.nbytes // 2
        stream = cupy.cuda.get_current_stream()
        (out.data + half).copy_from_device_async(out.data, half, stream)

    for work in (fill, copy):
        calls = [partial(work, out) for out in outs]
        yield record("driver", work.__name__, calls, written)
    for family, variant in ((one, variant) for one, variants in WAYS for variant in variants):
        if family.kernel(shape, device_limits(device), variant) is None:
            continue
        how = device, family, variant, *inner
        calls = [partial(write_product, a, b, out, *how) for out in outs]
        outs[-1].fill(cupy.nan)
        calls[-1]()
        if not bool((outs[-1] == expected).all()):
            yield common | {"family": family.name, "variant": str(variant), "wrong": True}
            continue
        yield record(family.name, variant, calls, explicit_traffic(sizes, dtype))


def main():
    options = parser_of(__doc__, "seconds", "json", seconds=240.0).parse_args()
    begun, rows = time.perf_counter(), []
    for sizes, dtype in product(EXPLICIT, DTYPES):
        if time.perf_counter() - begun > options.seconds:
            break
        own = list(measured(sizes, dtype))
        rows += own
        own.sort(key=lambda row: row.get("microseconds", 0.0))
        print(*map(words, own), sep="\n", flush=True)
        cupy.get_default_memory_pool().free_all_blocks()
        save(options.json, rows)
    print(f"\n{time.perf_counter() - begun:.0f} s")
    return int(any(row.get("wrong") for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
