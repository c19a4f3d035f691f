"""The regimes of the benchmark: what is measured, and what must be reached. Data only."""

from dataclasses import dataclass

from benchmarks.shapes import Batch, Shape, kron_matmuls, squares


@dataclass(frozen=True)
class Bound:
    """At most some seconds, and the flops at a rate; or the work at a share of a ceiling.

    The ceiling is "gemm" (flops), "bandwidth" (bytes read and written) or "write" (bytes written);
    of several bounds that of the longest time counts. ``threads``: it is for so many alone.
    """

    ceiling: str = ""
    fraction: float = 1.0  # of the ceiling
    seconds: float = 0.0
    flops_per_second: float = 0.0
    threads: int | None = None


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
    ratio: dict
    machine: tuple[Bound, ...] = ()
    cold: bool = False
    threads: tuple[int, ...] | None = None  # only these, of those asked for


def both(ratio):
    return dict.fromkeys(("float64", "float32"), ratio)


def share(fraction, ceiling="gemm"):
    """A fraction of a ceiling; "gemm" is the rate of the best large matrix multiply."""
    return Bound(ceiling, fraction)


def kron(*given, **more):
    """A regime of Kron-Matmuls: name, title, shapes and quick ones as texts, ratio or ``peers``."""
    name, title, shapes, quick, *ratio = given
    asked = more.pop("peers", None) or ratio[0]
    few = kron_matmuls(quick) if quick else ()
    return Regime(name, title, kron_matmuls(shapes), few, both(asked), **more)


def batches(*given, **more):
    """A regime of batch lists; (d, n) are two digits, as 42 for d = 4 and n = 2, or d:n."""
    name, title, shapes, quick = given

    def lists(text):
        pairs = (word.split(":") if ":" in word else list(word) for word in text.split())
        return tuple(Batch(int(d), int(n)) for d, n in pairs)

    return Regime(name, title, lists(shapes), lists(quick), **more)


TINY = Bound(seconds=1.4e-6, flops_per_second=20e9)
# not compared: bound to one x and one output, which is an easier task than a call with both
TINY_BOUND = {"NumPy, bound": 0.0}
GEMM_55, GEMM_75 = (share(0.55),), (share(0.75),)

REGIMES = (
    kron(
        *("tiny", "one call on tiny data (Π ≤ 512, M = 1), d ≤ 2"),
        "1: 2; 4; 8; 16; 64; 2^2; 3^2; 4^2; 8^2; 16^2; 22^2",
        *("1: 8^2", 1),
        **{"peers": {"NumPy": 1} | TINY_BOUND, "machine": (TINY,), "threads": (1,)},
    ),
    kron(
        *("tiny-cubes", "one call on tiny data (Π ≤ 512, M = 1), d ≥ 3"),
        "1: 2^3; 2^4; 2^6; 2^9; 3^3; 3^4; 3^5; 4^3; 4^4; 5^3; 6^3; 7^3; 8^3; 2, 3, 4; 5, 5, 5, 2;"
        "5, 5, 2, 10",
        *("1: 2^3; 8^3", 3),
        peers={"NumPy": 3, "FastKron's function": 30} | TINY_BOUND,
        **{"machine": (TINY,), "threads": (1,)},
    ),
    kron(
        *("4-and-8", "P = 4, 8; M ≥ 64, in cache"),
        "64: 4^3; 4^4; 4^5; 4^6 | 1024: 4^3; 4^4 | 64: 8^2; 8^3; 8^4 | 156: 8^3 | 1024: 8^3",
        *("64: 4^5; 8^4", 3),
        machine=GEMM_75,
    ),
    kron(
        *("16", "P = 16", "64: 16^2; 16^3 | 16: 16^4 | 1024: 16^4; 16^5 | 16: 16^6", "64: 16^3"),
        1.5,
        machine=GEMM_75,
    ),
    kron(
        *("odd", "P = 3, 5, 6, 7 and mixed sizes"),
        "64: 3^3; 3^4; 3^5; 3^6; 5^3; 5^4; 5^5; 5^6; 6^3; 6^4; 6^5; 6^6"
        "| 1: 5^4; 5^5; 5^6; 6^4; 6^5; 6^6; 3^6 | 64: 7^3; 7^4; 7^5 | 1024: 6^7"
        "| 64: 3, 4, 5, 6; 8, 6, 4; 2, 3, 5, 7, 4",
        *("64: 3^6; 6^4", 3),
        machine=GEMM_55,
    ),
    kron(
        *("2", "P = 2", "64: 2^3; 2^4; 2^5; 2^6; 2^8; 2^10 | 1024: 2^10 | 1: 2^11 | 20: 2^9"),
        *("64: 2^8", 3),
        machine=(Bound(flops_per_second=20e9, threads=2),),
    ),
    kron(
        *("large", "larger than cache (≥ 128 MB), P = 3, 4"),
        "16384: 3^7 | 1024: 3^10; 4^7 | 2048: 4^7 | 2967: 4^7 | 64: 4^10",
        *("1024: 4^7", 3),
        **{"machine": (share(0.60, "bandwidth"), share(0.45)), "cold": True},
    ),
    kron(
        *("one-row", "M = 1, 8^5, 8^6", "1: 8^5; 8^6", "1: 8^5"),
        **{"peers": {"FastKron": 1.2}, "machine": (share(0.45),)},
    ),
    kron(
        *("64", "64^3 class: P = 32, 64, 128"),
        "1024: 32^3; 32^4 | 16: 32^5 | 1024: 64^2; 64^3 | 16: 64^3; 64^4 | 1024: 128^2"
        "| 320: 128^3 | 16: 128^3",
        *("16: 64^3", 1.05),
        machine=(share(0.80),),
    ),
    kron(
        *("real-world", "all 28 real-world shapes of Table 4, both dtypes"),
        "20: 2^7; 2^9 | 50: 2^9 | 20: 2^10 | 1: 2^11 | 10: 52×50, 65×20 | 50: 32×8, 64×128"
        "| 10: 52×65, 50×20 | 4: 2^9 | 8: 2^9 | 16: 2^9 | 20: 2^9 | 4: 8^3 | 8: 8^3 | 16: 8^3"
        "| 20: 8^3 | 1024: 3^7; 4^7; 6^7 | 1: 5, 5, 5, 2; 5, 5, 2, 25 | 1526: 4^6 | 156: 8^3"
        "| 2967: 4^7 | 16: 8^8; 16^6; 32^6; 64^3",
        *("20: 2^9 | 50: 32×8, 64×128 | 1: 5, 5, 2, 25", 1),
    ),
    # those of FastKron's powers and of the PDE-like shapes that no other regime has
    kron(
        *("remaining", "the remaining powers and PDE-like shapes"),
        *("1024: 8^5; 8^6 | 16: 8^8 | 1: 4^5; 4^6; 8^4", "", 1),
    ),
    batches(
        *("batch-3", "batched, n = 3, or d ≥ 5", "23 33 43 52 53 54 62 63 64", "33 53"),
        **{"ratio": {"float64": 3, "float32": 6}, "machine": GEMM_55},
    ),
    batches(
        *("batch-4", "batched, n = 4, d ≥ 2", "24 34 44 54 64", "34"),
        **{"ratio": both(2.5), "machine": (share(0.60),)},
    ),
    batches(
        *("batch-2", "batched, n = 2, d ≤ 4, and d = 1", "12 22 32 42 13 14", "14 32"),
        ratio=both(1.5),
    ),
    batches(
        *("batch-any", "batched, n = 5, 6, 8, 12, 16, any d that fits"),
        "15 25 35 45 55 65 16 26 36 46 56 18 28 38 48 1:12 2:12 3:12 1:16 2:16 3:16",
        "35 28",
        **{"ratio": both(3), "machine": GEMM_55},
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
            *(squares(1024, 32), squares(64, 512), squares(3, 2000), squares(8, 8, 8, 8)),
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
