"""Figures 1 and 3 of the report on the explicit product (Mahmoud, 2018), measured again.

A (M × M) ⊗ B (N × N) in float32 next to the report's numbers, of a Tesla K40. Bytes are those of
the report, 4 M² + 4 N² + 4 (M N)²; flops are (M N)². 100 % are the bytes per second at which the
same device fills an array in the same run; the report's are those of the K40's data sheet.
"""

import statistics
import sys
import time
from functools import partial
from itertools import chain

import numpy as np

import batchkron as bk
from benchmarks.core.checks import on_host
from benchmarks.core.options import parser_of
from benchmarks.core.plots import Roof, figures, save_figure
from benchmarks.core.records import available_memory, earlier, machine, save
from benchmarks.core.tables import head, row
from benchmarks.core.timing import in_turn

# (M, N): % of bandwidth, seconds, GFLOP/s of figure 3, on a K40
PUBLISHED = {
    **{(32, 32): (1.49275, 0.000930996, 1.04894), (64, 32): (2.03664, 0.0027275, 1.43217)},
    **{(128, 32): (2.69394, 0.00824653, 1.89474), (256, 32): (2.74051, 0.0324241, 1.92758)},
    **{(512, 32): (2.75906, 0.128823, 1.94065), (1024, 32): (2.76374, 0.514418, 1.94395)},
    **{(32, 64): (0.766877, 0.00724357, 0.539271), (64, 64): (1.21952, 0.0182067, 0.858199)},
    **{(128, 64): (1.35984, 0.0653001, 0.957119), (256, 64): (1.41011, 0.251877, 0.99255)},
    (512, 64): (1.41911, 1.00111, 0.998892),
}
BEYOND = (1024, 64)  # is not in the figure; 17 GB
CONFIGURATIONS = {  # (M, N); their sizes are not in the report
    "small B": [(m, 2) for m in (128, 256, 512, 1024, 2048, 4096, 8192)],
    "both grow": [(n, n) for n in (8, 16, 32, 64, 96, 128)],
    "B shrinks as A grows": [(m, 8192 // m) for m in (4, 16, 64, 256, 1024, 4096)],
}
FILL_BYTES = 1 << 30
REPEATS = 7
MIN_SECONDS = 0.02  # of one measurement, chosen by hand
DEVICE_PEAK = 65e12  # flops per second of an H200 in float32, on ordinary cores


def bytes_of(size):
    m, n = size
    return 4 * (m * m + n * n + (m * n) ** 2)


def sizes():
    found = {*PUBLISHED, BEYOND, *(size for own in CONFIGURATIONS.values() for size in own)}
    return sorted(found, key=bytes_of)


class CpuProducts:
    """Products in main memory; ``module`` has the arrays."""

    module = np

    def __init__(self):
        from benchmarks.cpu.ceilings import compile_kernels, multiply_add_rate, traffic_rates

        described, threads = machine(), bk.get_num_threads()
        kernels = compile_kernels()
        rates = traffic_rates(kernels, FILL_BYTES, threads, 3)
        fill = max(rate for name, rate in rates.items() if name.startswith("fill"))
        peak = multiply_add_rate(kernels, "float32", threads, 3)
        self.ceilings = {"bandwidth": fill, "peak": peak}
        self.machine = {**described, "device": described["processor"], "threads": threads}

    def memory(self):
        return available_memory()

    def product(self, size, rng):
        host = [rng.standard_normal((n, n)).astype(np.float32) for n in size]
        a, b = map(self.module.asarray, host)
        side = size[0] * size[1]
        out = self.module.full((side, side), np.nan, np.float32)
        return partial(bk.kron, a, b, out=out), partial(compare, *host, lambda at: on_host(out[at]))

    def seconds(self, call):
        return statistics.median(in_turn({"": call}, REPEATS, MIN_SECONDS)[""])


class CudaProducts(CpuProducts):
    """Products in a device's memory."""

    def __init__(self):
        import cupy

        self.module, self.machine = cupy, machine("cuda")
        array = cupy.empty(FILL_BYTES // 4, np.float32)
        # by the driver: CuPy's kernel takes three times as long in float32
        fill = partial(array.data.memset_async, 0, array.nbytes)
        self.ceilings = {"bandwidth": FILL_BYTES / self.seconds(fill), "peak": DEVICE_PEAK}

    def memory(self):
        self.module.get_default_memory_pool().free_all_blocks()
        return int(self.module.cuda.runtime.memGetInfo()[0])

    def seconds(self, call):
        from benchmarks.core.device_timing import timed

        return 1e-6 * timed([call])


def compare(a, b, row_of):
    side = len(a) * len(b)
    return all(
        np.array_equal(row_of(at), np.multiply.outer(a[at // len(b)], b[at % len(b)]).ravel())
        for at in {0, side // 3, side - 1}
    )


def measure(products, report, seconds):
    begun, rng = time.perf_counter(), np.random.default_rng(1)
    cells = report.setdefault("cells", {})
    for size in sizes():
        name, text = "{} {}".format(*size), "M = {}, N = {}".format(*size)
        if name in cells or time.perf_counter() - begun > seconds:
            continue
        if 1.2 * bytes_of(size) > products.memory():
            yield f"{text}: not measured, it does not fit in memory"
            continue
        call, is_right = products.product(size, rng)
        call()
        cells[name] = products.seconds(call) if is_right() else None
        yield f"{text}: wrong result" if cells[name] is None else f"{text}: {cells[name]:.3g} s"


def time_of(report, size):
    found = report["cells"].get("{} {}".format(*size))
    return None if found is None else float(found)


def table(report):
    names = ["size", "% of bandwidth: K40", "ours", "seconds: K40", "ours", "GFLOP/s: K40"]
    yield head([*names, "ours", "TB/s"])
    for size in (*PUBLISHED, BEYOND):
        theirs = [f"{value:.3g}" for value in PUBLISHED.get(size, ())] or ["–"] * 3
        seconds, ours = time_of(report, size), ["–"] * 4
        if seconds is not None:
            rate = bytes_of(size) / seconds
            share = 100 * rate / report["ceilings"]["bandwidth"]
            flops = (size[0] * size[1]) ** 2 / seconds
            ours = [f"{share:.0f}", f"{seconds:.3g}", f"{flops / 1e9:.4g}", f"{rate / 1e12:.3g}"]
        pairs = chain(*zip(theirs, ours, strict=False))
        yield row([f"M = {size[0]}, N = {size[1]}", *pairs, ours[3]])


def points(report, configuration):
    found = []
    for size in CONFIGURATIONS[configuration]:
        seconds, flops = time_of(report, size), (size[0] * size[1]) ** 2
        if seconds is not None:
            found.append((flops / bytes_of(size), flops / seconds / 1e9))
    return found


def draw(report, path):
    pyplot = figures()
    roof = Roof(report["ceilings"]["bandwidth"] / 1e9, report["ceilings"]["peak"] / 1e9)
    figure, axes = pyplot.subplots(1, 2, figsize=(10.5, 4.2))
    marked = {name: points(report, name) for name in CONFIGURATIONS}
    every = [point for own in marked.values() for point in own]
    low = min((rate for _, rate in every), default=roof.at(0.05))
    for axis, (first, last) in zip(axes, ((0.05, 4 * roof.ridge), (0.1, 0.3)), strict=True):
        roof.draw(axis, first, last, color="0.2", label="roof")
        axis.axvline(0.25, color="0.6", linestyle=":", linewidth=1)
        for mark, (name, own) in zip("os^", marked.items(), strict=True):
            axis.plot(*zip(*own, strict=True), mark, label=name, markersize=5) if own else None
        axis.set(xscale="log", yscale="log", xlabel="flops for each byte read or written")
        axis.grid(which="major", linewidth=0.4)
    axes[0].set_ylabel("GFLOP/s")
    axes[0].set_title(f"{roof.bandwidth:,.0f} GB/s, {roof.peak:,.0f} GFLOP/s")
    axes[1].set_title("the products; dotted: 1/4 flop a byte, the most there can be")
    axes[1].set(xscale="linear", ylim=(0.7 * low, 3 * roof.at(0.3)))
    axes[1].legend(loc="lower left")
    save_figure(figure, path)


def main(arguments=None):
    parser = parser_of(__doc__, "device", "json", "plot", "seconds", device=None, seconds=300.0)
    options = parser.parse_args(arguments)
    report = {"cells": {}}
    if options.device is None:
        report |= earlier(options.json, {})
    else:
        products = CudaProducts() if options.device == "cuda" else CpuProducts()
        report |= earlier(options.json, products.machine, "device")
        report |= {"machine": products.machine, "ceilings": products.ceilings}
        for text in measure(products, report, options.seconds):
            print(text, flush=True)
            save(options.json, report)
    if "ceilings" not in report:
        sys.exit("nothing was measured: give --device, or a file by --json")
    print("\n".join(table(report)))
    if options.plot:
        draw(report, options.plot)
    return int(any(value is None for value in report["cells"].values()))


if __name__ == "__main__":
    sys.exit(main())
