"""Where Kron-Matmuls lie under the chip's roof, as a picture and a table.

    python -m benchmarks.gpu.roofline RESULTS.json PICTURE.svg

reads what `python -m benchmarks.gpu --json` has written, draws the picture, and prints the table in
Markdown. Products whose floor is shorter than a launch are in the table only. No device is needed.
"""

import json
import sys
from itertools import chain
from pathlib import Path

import numpy as np

from batchkron.backends.cuda.kron.choose import fastest_plan, product_of
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.spec.kron import KronSpec
from benchmarks.core.plots import Roof, figures, label_marks, logarithmic, save_figure
from benchmarks.core.tables import head
from benchmarks.core.tables import row as table_row
from benchmarks.gpu.cases.cases import COPY, DTYPES, FLOPS, KRON

H200 = DeviceLimits(227 << 10, 132, name="NVIDIA H200, sm_90, 132 multiprocessors")
COLORS = {"float32": "#0969da", "float64": "#bc4c00"}
LAUNCH = 2.0  # µs of a launch; products of shorter floors are not drawn


def share(point, passes=1.0):
    """The rate over that of the roof, for as many bytes as so many passes over memory move."""
    return point["rate"] / min(FLOPS, point["intensity"] / passes * COPY)


def moved(shape, dtype):
    """What each kernel of an operator on an H200 reads and writes, over x and y together."""
    inputs, outputs = zip(*shape.factors, strict=True)
    spec = KronSpec(inputs, outputs, shape.rows, 1, np.dtype(dtype))
    itemsize = np.dtype(dtype).itemsize
    kernels = fastest_plan(product_of(spec, constant=True), H200)
    return tuple(one.work.bytes / itemsize / sum(shape.elements()) for one in kernels)


def points_of(report):
    """Measured products: case, dtype, floor as in the file, and where they lie under the roof.

    "intensity" and "rate": flops for each byte of one pass over memory, and per second; "moved":
    what each kernel has moved, as a multiple of that one pass.
    """
    shapes = {case.name: case.shape for case in KRON}
    for cell in report["cells"]:
        if cell["part"] == "kron" and "tflops" in cell:
            found = {name: cell[name] for name in ("case", "dtype", "floor")}
            found["intensity"] = cell["tflops"] / cell["terabytes_per_second"]
            passes = moved(shapes[cell["case"]], cell["dtype"])
            yield {**found, "rate": 1e12 * cell["tflops"], "moved": passes}


def figure(value):
    """Two digits of a number, or all before the point."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def table(points):
    names = ["flops/byte", "passes", "TFLOP/s", "% of roof", "% with passes"]
    columns = ["rows: factors"]
    for dtype in DTYPES:
        columns += [f"{dtype}: {names[0]}", *names[1:]]
    yield head(columns)
    found = {(one["case"], one["dtype"]): row(one) for one in points}
    for name in dict.fromkeys(name for name, _ in found):
        texts = [found.get((name, dtype), ["–"] * len(names)) for dtype in DTYPES]
        yield table_row([name, *chain(*texts)])


def row(point):
    shares = [figure(100 * share(point, passes)) for passes in (1.0, sum(point["moved"]))]
    rate = figure(point["rate"] / 1e12)
    return [f"{point['intensity']:.3g}", str(len(point["moved"])), rate, *shares]


def draw(points, path):
    """Write a picture with a panel for each dtype; return the boxes of all names."""
    pyplot = figures()
    roof = Roof(COPY / 1e12, FLOPS / 1e12)
    last = 2 * max(roof.ridge, *(point["intensity"] for point in points))
    first = min(point["intensity"] for point in points) / 1.3
    figure, axes = pyplot.subplots(len(DTYPES), figsize=(8, 10.5), dpi=72, sharex=True, sharey=True)
    marks = {
        dtype: [
            (one["intensity"], one["rate"] / 1e12, one["case"], COLORS[dtype])
            for one in points
            if one["dtype"] == dtype
        ]
        for dtype in DTYPES
    }
    for dtype, axis in zip(DTYPES, axes, strict=True):
        roof.draw(axis, first, last, color="black", label=f"one pass at {roof.bandwidth:g} TB/s")
        for passes, style in ((2, "--"), (3, ":")):
            lower = Roof(roof.bandwidth / passes, roof.peak)
            lower.draw(axis, first, last, color="0.4", linestyle=style, label=f"{passes} passes")
        axis.set(xscale="log", yscale="log", xlim=(first, last), ylabel="TFLOP/s", title=dtype)
        axis.grid(which="both", linewidth=0.3)
        logarithmic(axis)
        for x, y, _, color in marks[dtype]:
            axis.plot(x, y, "o", color=color, markersize=5)
        axis.legend(loc="lower right")
    axes[-1].set_xlabel("flops for each byte that one pass reads and writes")
    figure.tight_layout()
    pairs = zip(marks.values(), axes, strict=True)
    boxes = [box for own, axis in pairs for box in label_marks(axis, own, fontsize=8.5)]
    save_figure(figure, path)
    return boxes


def main(arguments):
    if len(arguments) != 2:
        sys.exit("usage: python -m benchmarks.gpu.roofline RESULTS.json PICTURE.svg")
    source, target = map(Path, arguments)
    points = list(points_of(json.loads(source.read_text())))
    drawn = [one for one in points if one["floor"] >= LAUNCH]
    if not drawn:
        sys.exit(f"{source} has no measured Kron-Matmul; run python -m benchmarks.gpu --part kron")
    draw(drawn, target)
    print("\n".join(table(points)))


if __name__ == "__main__":
    main(sys.argv[1:])
