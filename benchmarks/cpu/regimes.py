"""The regimes of the benchmark: what is measured, and what must be reached. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.shapes import Batch, Shape, mixed, power, rectangular, squares


@dataclass(frozen=True)
class Bound:
    """At most some seconds, and the flops at a rate; or the work at a share of a ceiling.

    The ceiling is "gemm" (flops), "bandwidth" (bytes read and written) or "write" (bytes written);
    of several bounds that of the longest time counts.
    """

    text: str
    ceiling: str = ""
    fraction: float = 1.0  # of the ceiling
    seconds: float = 0.0
    flops_per_second: float = 0.0
    threads: int | None = None  # it is for this number of them alone


@dataclass(frozen=True)
class Regime:
    """A row of the table of targets.

    ``ratio``: for each dtype, how many times as fast as the best peer we must be; where it names
    peers, how many times as fast as each of them (0: not compared), and no other may be faster.
    ``quick``: the shapes of a quick run. ``cold``: calls rotate through vectors that together are
    larger than the last-level cache.
    """

    name: str
    title: str
    shapes: tuple[Shape, ...]
    quick: tuple[Shape, ...]
    ratio: Mapping[str, float | Mapping[str, float]]
    machine: tuple[Bound, ...] = ()
    cold: bool = False
    threads: tuple[int, ...] | None = None  # only these, of those asked for


def both(ratio: float | Mapping[str, float]) -> dict[str, float | Mapping[str, float]]:
    return {"float64": ratio, "float32": ratio}


def share(fraction: float, ceiling: str = "gemm") -> Bound:
    """A fraction of a ceiling; "gemm" is the rate of the best large matrix multiply."""
    return Bound(f"{100 * fraction:g} % of {ceiling}", ceiling, fraction)


TINY = Bound("≤ 1.4 µs + flops at 20 GFLOP/s", seconds=1.4e-6, flops_per_second=20e9)
# not compared: bound to one x and one output, which is an easier task than a call with both
TINY_BOUND = {"NumPy, bound": 0.0}
TINY_PLANE = tuple(
    [power(1, n, 1) for n in (2, 4, 8, 16, 64)] + [power(1, n, 2) for n in (2, 3, 4, 8, 16, 22)]
)
TINY_CUBE = (
    *(power(1, 2, d) for d in (3, 4, 6, 9)),
    *(power(1, 3, d) for d in (3, 4, 5)),
    *(power(1, 4, d) for d in (3, 4)),
    *(power(1, n, 3) for n in (5, 6, 7, 8)),
    mixed(1, 2, 3, 4),
    mixed(1, 5, 5, 5, 2),
    mixed(1, 5, 5, 2, 10),
)

REAL_WORLD = (
    power(20, 2, 7),
    *(power(rows, 2, 9) for rows in (20, 50)),
    power(20, 2, 10),
    power(1, 2, 11),
    rectangular(10, (52, 50), (65, 20)),
    rectangular(50, (32, 8), (64, 128)),
    rectangular(10, (52, 65), (50, 20)),
    *(power(rows, 2, 9) for rows in (4, 8, 16, 20)),
    *(power(rows, 8, 3) for rows in (4, 8, 16, 20)),
    *(power(1024, n, 7) for n in (3, 4, 6)),
    mixed(1, 5, 5, 5, 2),
    mixed(1, 5, 5, 2, 25),
    power(1526, 4, 6),
    power(156, 8, 3),
    power(2967, 4, 7),
    power(16, 8, 8),
    power(16, 16, 6),
    power(16, 32, 6),
    power(16, 64, 3),
)

# those of FastKron's powers and of the PDE-like shapes that no other regime has
REMAINING = (
    power(1024, 8, 5),
    power(1024, 8, 6),
    power(16, 8, 8),
    *(power(1, 4, d) for d in (5, 6)),
    power(1, 8, 4),
)

REGIMES = (
    Regime(
        "tiny",
        "one call on tiny data (Π ≤ 512, M = 1), d ≤ 2",
        shapes=TINY_PLANE,
        quick=(power(1, 8, 2),),
        ratio=both({"NumPy": 1} | TINY_BOUND),
        machine=(TINY,),
        threads=(1,),
    ),
    Regime(
        "tiny-cubes",
        "one call on tiny data (Π ≤ 512, M = 1), d ≥ 3",
        shapes=TINY_CUBE,
        quick=(power(1, 2, 3), power(1, 8, 3)),
        ratio=both({"NumPy": 3, "FastKron's function": 30} | TINY_BOUND),
        machine=(TINY,),
        threads=(1,),
    ),
    Regime(
        "4-and-8",
        "P = 4, 8; M ≥ 64, in cache",
        shapes=(
            *(power(64, 4, d) for d in (3, 4, 5, 6)),
            *(power(1024, 4, d) for d in (3, 4)),
            *(power(64, 8, d) for d in (2, 3, 4)),
            power(156, 8, 3),
            power(1024, 8, 3),
        ),
        quick=(power(64, 4, 5), power(64, 8, 4)),
        ratio=both(3),
        machine=(share(0.75),),
    ),
    Regime(
        "16",
        "P = 16",
        shapes=(
            power(64, 16, 2),
            power(64, 16, 3),
            power(16, 16, 4),
            power(1024, 16, 4),
            power(1024, 16, 5),
            power(16, 16, 6),
        ),
        quick=(power(64, 16, 3),),
        ratio=both(1.5),
        machine=(share(0.75),),
    ),
    Regime(
        "odd",
        "P = 3, 5, 6, 7 and mixed sizes",
        shapes=(
            *(power(64, n, d) for n in (3, 5, 6) for d in (3, 4, 5, 6)),
            *(power(1, n, d) for n in (5, 6) for d in (4, 5, 6)),
            power(1, 3, 6),
            *(power(64, 7, d) for d in (3, 4, 5)),
            power(1024, 6, 7),
            mixed(64, 3, 4, 5, 6),
            mixed(64, 8, 6, 4),
            mixed(64, 2, 3, 5, 7, 4),
        ),
        quick=(power(64, 3, 6), power(64, 6, 4)),
        ratio=both(3),
        machine=(share(0.55),),
    ),
    Regime(
        "2",
        "P = 2",
        shapes=(
            *(power(64, 2, d) for d in (3, 4, 5, 6, 8, 10)),
            power(1024, 2, 10),
            power(1, 2, 11),
            power(20, 2, 9),
        ),
        quick=(power(64, 2, 8),),
        ratio=both(3),
        machine=(Bound("20 GFLOP/s on 2 threads", flops_per_second=20e9, threads=2),),
    ),
    Regime(
        "large",
        "larger than cache (≥ 128 MB), P = 3, 4",
        shapes=(
            power(16384, 3, 7),
            power(1024, 3, 10),
            power(1024, 4, 7),
            power(2048, 4, 7),
            power(2967, 4, 7),
            power(64, 4, 10),
        ),
        quick=(power(1024, 4, 7),),
        ratio=both(3),
        machine=(share(0.60, "bandwidth"), share(0.45)),
        cold=True,
    ),
    Regime(
        "one-row",
        "M = 1, 8^5, 8^6",
        shapes=(power(1, 8, 5), power(1, 8, 6)),
        quick=(power(1, 8, 5),),
        ratio=both({"FastKron": 1.2}),
        machine=(share(0.45),),
    ),
    Regime(
        "64",
        "64^3 class: P = 32, 64, 128",
        shapes=(
            power(1024, 32, 3),
            power(1024, 32, 4),
            power(16, 32, 5),
            power(1024, 64, 2),
            power(1024, 64, 3),
            power(16, 64, 3),
            power(16, 64, 4),
            power(1024, 128, 2),
            power(320, 128, 3),
            power(16, 128, 3),
        ),
        quick=(power(16, 64, 3),),
        ratio=both(1.05),
        machine=(share(0.80),),
    ),
    Regime(
        "real-world",
        "all 28 real-world shapes of Table 4, both dtypes",
        shapes=REAL_WORLD,
        quick=(
            power(20, 2, 9),
            rectangular(50, (32, 8), (64, 128)),
            mixed(1, 5, 5, 2, 25),
        ),
        ratio=both(1),
    ),
    Regime(
        "remaining",
        "the remaining powers and PDE-like shapes",
        shapes=REMAINING,
        quick=(),
        ratio=both(1),
    ),
    Regime(
        "batch-3",
        "batched, n = 3, or d ≥ 5",
        shapes=tuple(
            Batch(d, n)
            for d, n in ((2, 3), (3, 3), (4, 3), (5, 2), (5, 3), (5, 4), (6, 2), (6, 3), (6, 4))
        ),
        quick=(Batch(3, 3), Batch(5, 3)),
        ratio={"float64": 3, "float32": 6},
        machine=(share(0.55),),
    ),
    Regime(
        "batch-4",
        "batched, n = 4, d ≥ 2",
        shapes=tuple(Batch(d, 4) for d in (2, 3, 4, 5, 6)),
        quick=(Batch(3, 4),),
        ratio=both(2.5),
        machine=(share(0.60),),
    ),
    Regime(
        "batch-2",
        "batched, n = 2, d ≤ 4, and d = 1",
        shapes=(*(Batch(d, 2) for d in (1, 2, 3, 4)), Batch(1, 3), Batch(1, 4)),
        quick=(Batch(1, 4), Batch(3, 2)),
        ratio=both(1.5),
    ),
    Regime(
        "batch-any",
        "batched, n = 5, 6, 8, 12, 16, any d that fits",
        shapes=tuple(
            Batch(d, n)
            for n, maximum in ((5, 6), (6, 5), (8, 4), (12, 3), (16, 3))
            for d in range(1, maximum + 1)
        ),
        quick=(Batch(3, 5), Batch(2, 8)),
        ratio=both(3),
        machine=(share(0.55),),
    ),
    Regime(
        "segmented",
        "segmented mode multiply, in cache",
        shapes=tuple(
            Batch(d, n, contributions=16, only=mode)
            for d, n in ((2, 4), (3, 2), (3, 3), (3, 4), (6, 3))
            for mode in (0, d - 1)
        ),
        quick=(Batch(3, 4, contributions=16, only=0), Batch(3, 3, contributions=16, only=2)),
        ratio={},
        machine=(share(0.50),),
    ),
    Regime(
        "explicit",
        "explicit kron",
        shapes=(
            squares(1024, 32),
            squares(64, 512),
            squares(3, 2000),
            squares(8, 8, 8, 8),
            *(squares(m, n) for n in (32, 64) for m in (32, 64, 128, 256, 512)),
            *(squares(n, n) for n in (48, 96)),
            *(squares(m, 4096 // m) for m in (4, 16, 256)),
        ),
        quick=(squares(64, 64), squares(16, 256)),
        ratio=both({"numpy.kron": 3}),
        machine=(share(0.90, "write"),),
        cold=True,
    ),
)

MIN_SPEEDUP = 0.95  # from one thread to more, as a share of the speedup of the binding ceiling
MIN_SECONDS = 100e-6  # time on one thread from which the speedup of a cell is judged
