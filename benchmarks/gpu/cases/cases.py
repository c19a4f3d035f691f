"""What is measured, goals, peers' times recorded on an H200, and the least time that it allows.

Times are in µs. A recorded time that is known for several cases together is a pair, from the
least to the most.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from benchmarks.shapes import KronMatmul, kron_matmuls

DTYPES = ("float32", "float64")
UNKNOWNS = 2_000_000  # elements of a vector, about, where a list does not say otherwise
# float32 on matrix units, where they are allowed: apart from the table in full precision
PRECISIONS = ("tf32x3", "tf32")
NODE = 1.1  # of a graph: 0.7 to 1.5 were measured
MULTIPROCESSORS = 132
CACHE_BYTES_A_MICROSECOND = 9.2e6
BATCH_FLOPS = {"float32": 62.1e12, "float64": 31.83e12}  # per second, on ordinary cores
# what the gain of tuning is measured for
TUNED = {
    "1024: 8^5", "1024: 16^4", "1024: 32^3", "1024: 64^2", "1024: 128^2", "16: 8^8", "1024: 3^7",
    "1024: 6^7", "1024: 4^7", "16: 64^3", "20: 2^7", "156: 8^3", "10: 52×50, 65×20",
    "50: 32×8, 64×128", "1: 5, 5, 2, 25", "64: 4^4", "1: 6^5", "(1,4)", "(2,8)", "(3,4)", "(4,3)",
    "(5,4)", "(6,3)",
}  # fmt: skip
# sizes of the square factors of explicit products; the goal is a rate of reading and writing
EXPLICIT = (
    *((8192, 2), (5461, 3), (2341, 7), (1024, 17), (1024, 32), (256, 64), (501, 33), (64, 512)),
    *((3, 2000), (3, 2001), (8, 8, 8, 8)),
)
EXPLICIT_GOAL = 4.2e12  # bytes per second
# FastKron's published gain of fusing factors, for each factor size that has one
ABLATION = tuple(
    zip(
        kron_matmuls("1024: 8^5; 4^7; 16^4; 32^3; 64^2"),
        (2.20, None, None, 1.15, None),
        strict=True,
    )
)
COPY = 4.29e12  # bytes per second through memory, half of them read and half written
WRITE = 4.65e12  # bytes per second into memory
FLOPS = 65e12  # per second: single precision on ordinary cores, double on matrix units
# per second, on matrix units: operands of 11 bits; three such products for one of float32
PRECISION_FLOPS = {"tf32": 318e12, "tf32x3": 106e12}
# bytes per second of blocks and factors of a batch list, gathered from the second-level cache
GATHER = 8.77e12
# atomic additions per second to random blocks that the second-level cache holds, at most
ATOMICS = {"float32": 890e9, "float64": 305e9}


@dataclass(frozen=True)
class KronCase:
    """A Kron-Matmul; ``figures`` are the goal of each dtype, and recorded times of peers."""

    shape: KronMatmul
    figures: dict

    @property
    def name(self):
        return self.shape.name


@dataclass(frozen=True)
class ListCase:
    """A batch list of random factors A (P, Q); each output has 64 products, inputs are random.

    x has about ``unknowns`` elements; ``vectors`` such x are multiplied at once.
    """

    factors: tuple[tuple[int, int], ...]
    unknowns: int = UNKNOWNS
    vectors: int = 1
    figures: dict = field(default_factory=dict)

    CONTRIBUTIONS = 64
    POOL = 4096

    @property
    def name(self):
        shapes = set(self.factors)
        if len(shapes) == 1 and self.factors[0] == (self.size, self.size):
            name = f"({self.modes},{self.size})"
        else:
            name = "list " + ", ".join(f"{p}×{q}" for p, q in self.factors)
        millions, thousands = divmod(self.unknowns // 1000, 1000)
        if self.unknowns != UNKNOWNS:
            name += f" {millions}M" if millions else f" {thousands}k"
        return name + (f" × {self.vectors}" if self.vectors > 1 else "")

    @property
    def modes(self):
        return len(self.factors)

    @property
    def size(self):
        """The side of a factor, where all are squares of one size."""
        return self.factors[0][0]

    @property
    def input_block(self):
        """Its elements."""
        return math.prod(q for _, q in self.factors)

    @property
    def output_block(self):
        return math.prod(p for p, _ in self.factors)

    @property
    def blocks(self):
        return self.unknowns // self.input_block

    @property
    def products(self):
        return self.blocks * self.CONTRIBUTIONS

    @property
    def as_rows(self):
        """The same work as a Kron-Matmul, with a row for each vector and product."""
        return KronMatmul(self.products * self.vectors, tuple((q, p) for p, q in self.factors))

    @property
    def flops(self):
        return self.as_rows.flops


def power(modes, size, *more, **named):
    """A list of square factors of one size."""
    return ListCase(((size, size),) * modes, *more, **named)


def _itemsize(dtype):
    return np.dtype(dtype).itemsize


def kron_figures(*both):
    """Goal, FastKron and cuTENSOR of both dtypes."""
    return {
        dtype: (goal, {"FastKron": fastkron, "cuTENSOR": cutensor})
        for dtype, (goal, fastkron, cutensor) in zip(DTYPES, both, strict=True)
    }


NOTHING = dict.fromkeys(DTYPES, (None, {}))


def kron_cases(*pairs):
    """Cases of shapes as texts of `kron_matmuls`, with their figures."""
    return tuple(KronCase(shape, own) for text, own in pairs for shape in kron_matmuls(text))


# FastKron's figure 9 and table 4, but for 16: 32^6, whose rows alone take seconds to check
KRON = kron_cases(
    ("1024: 8^5", kron_figures((85, 246, 645), (190, 390, 922))),
    ("1024: 8^6", kron_figures((1150, 2213, 5365), (2300, 3339, 8174))),
    ("1024: 16^4", kron_figures((280, 515, 1163), (560, 818, 1512))),
    ("1024: 16^5", kron_figures((4700, 9972, 21412), (9400, 17148, 28081))),
    ("1024: 32^3", kron_figures((140, 315, 446), (290, 680, 544))),
    ("1024: 32^4", kron_figures((5500, 12872, 17180), (9400, 28386, 21091))),
    ("1024: 64^2", kron_figures((22, 41, 55), (21, 89, 67))),
    ("1024: 64^3", kron_figures((2000, 3413, 3702), (2350, 8289, 5057))),
    ("1024: 128^2", kron_figures((165, 282, 237), (150, 550, 292))),
    ("320: 128^3", kron_figures((9900, 16398, 12949), (8900, 31265, 18727))),
    ("16: 8^8", kron_figures((1250, 2967, 6501), (2400, 4860, 10238))),
    ("16: 16^6", kron_figures((1300, 2998, 6391), (2400, 4909, 8328))),
    ("16: 32^5", kron_figures((3300, 8124, 9822), (6800, 17784, 13003))),
    ("16: 64^4", kron_figures((2650, 4604, 4798), (2700, 11071, 6670))),
    ("16: 128^3", kron_figures((495, 822, 673), (450, 1594, 855))),
    ("1024: 3^7", kron_figures((8, 926, 60), (14, 2056, 83))),
    ("1024: 6^7", kron_figures((1400, 26286, 6419), (2700, 28271, 9652))),
    ("1024: 4^7", kron_figures((42, 177, 322), (85, 248, 589))),
    ("2967: 4^7", kron_figures((120, 493, 881), (240, 829, 1640))),
    ("1526: 4^6", kron_figures((16, 56, 105), (30, 89, 200))),
    ("16: 64^3", kron_figures((32, 61, 74), (36, 129, 104))),
    (
        "20: 2^7 | 4: 2^9 | 8: 2^9 | 16: 2^9 | 20: 2^9 | 50: 2^9 | 20: 2^10 | 1: 2^11",
        kron_figures((1.8, (5, 7), (16, 25)), (1.8, (5, 8), (14, 21))),
    ),
    ("4: 8^3 | 8: 8^3 | 16: 8^3 | 20: 8^3", kron_figures((1.8, 3.3, 14), (1.8, 3.8, 10))),
    ("156: 8^3", kron_figures((2, 3.5, 15), (2, 3.9, 11))),
    ("10: 52×50, 65×20; 52×65, 50×20", kron_figures((2.5, 10.5, 15), (2.5, 17, 11))),
    ("50: 32×8, 64×128", kron_figures((3, 6.9, 7.2), (3, 9.4, 7.1))),
    ("1: 5, 5, 5, 2; 5, 5, 2, 25", kron_figures((2, (11, 14), (10, 14)), (2, (18, 20), 10))),
)

PRECISION = kron_cases(
    *(
        (text, {"tf32x3": (goal, {}), "tf32": (None, {})})
        for text, goal in (
            *(("1024: 64^3", 1500), ("1024: 128^2", 120), ("320: 128^3", 6800)),
            *(("16: 64^4", 2100), ("16: 128^3", 340)),
        )
    )
)

# as in discretizations of differential equations: only to be no slower than any peer
PDE = kron_cases(
    *(
        (f"{rows}: {size}^3; {size}^4; {size}^5; {size}^6", NOTHING)
        for rows in (1, 64)
        for size in (2, 3, 4, 5, 6, 8)
    )
)


def batch_case(shape, f64, f32=None):
    """A list by (d, n), with the goal of each dtype and ASGarD's time."""
    known = {"float32": f32, "float64": f64}
    return power(*shape, figures={k: (v[0], {"ASGarD": v[1]}) for k, v in known.items() if v})


BATCHES = tuple(
    batch_case(*one)
    for one in (
        *(((1, 4), (800, 1251), (420, 1238)), ((2, 2), (520, 1240), (300, 1133))),
        *(((2, 4), (500, 1010), (260, 782)), ((2, 8), (480, 1656))),
        *(((3, 2), (430, 1476), (260, 1139)), ((3, 3), (400, 1358), (260, 1039))),
        *(((3, 4), (300, 1143), (170, 934)), ((3, 6), (260, 1922)), ((3, 8), (240, 1887))),
        *(((4, 2), (350, 1245), (220, 952)), ((4, 3), (280, 2450), (170, 1838))),
        *(((4, 4), (220, 1943), (130, 1266)), ((4, 5), (240, 2481))),
        *(((5, 3), (250, 2519), (150, 1733)), ((5, 4), (240, 2079))),
        *(((6, 2), (240, 1253), (150, 1031)), ((6, 3), (270, 2838), (150, 2093))),
        ((6, 4), (290, 2712), (150, 2359)),
    )
)


def small_goal(modes, size, unknowns, dtype):
    """Twice a node, the arithmetic on all multiprocessors in use, and the sums of split outputs."""
    case = power(modes, size, unknowns)
    if unknowns == 4_000 and case.input_block <= 64:
        return 2.5
    if unknowns == 4_000 and (modes, size) == (6, 3):
        return 12.0
    used = min(MULTIPROCESSORS, case.products)
    parts = used / case.blocks
    summed = 2 * parts * unknowns * _itemsize(dtype) if parts > 1 else 0.0
    arithmetic = 1e6 * case.flops / BATCH_FLOPS[dtype] * MULTIPROCESSORS / used
    return max(2.5, 2 * (NODE + arithmetic + summed / CACHE_BYTES_A_MICROSECOND))


# ASGarD's times are known for all of them together
SMALL_BATCHES = tuple(
    power(*one, k, figures={t: (small_goal(*one, k, t), {"ASGarD": (5, 82)}) for t in DTYPES})
    for k, cases in (
        (4_000, ((1, 4), (2, 4), (3, 2), (3, 3), (3, 4), (4, 4), (6, 2), (6, 3))),
        (8_000, ((2, 4), (3, 4), (6, 3))),
        (32_000, ((2, 4), (3, 3), (3, 4), (4, 4), (6, 3))),
    )
    for one in cases
)


def kron_bytes(shape, dtype):
    return sum(shape.elements()) * _itemsize(dtype)


def kron_floor(shape, dtype):
    """Time to read x and write y once, or of the arithmetic, whichever is longer."""
    return 1e6 * max(kron_bytes(shape, dtype) / COPY, shape.flops / FLOPS)


def precision_floor(shape, precision):
    """As `kron_floor`, in float32 on matrix units."""
    arithmetic = shape.flops / PRECISION_FLOPS[precision]
    return 1e6 * max(kron_bytes(shape, "float32") / COPY, arithmetic)


def batch_bytes(case, dtype):
    """Bytes of the blocks and factors of all products."""
    elements = case.input_block + sum(p * q for p, q in case.factors)
    return case.products * elements * _itemsize(dtype)


def batch_floor(case, dtype):
    """Time to gather blocks and factors, or of the arithmetic, whichever is longer."""
    return 1e6 * max(batch_bytes(case, dtype) / GATHER, case.flops / BATCH_FLOPS[dtype])


def atomic_floor(case, dtype):
    additions = 1e6 * case.products * case.output_block / ATOMICS[dtype]
    return max(batch_floor(case, dtype), additions)


def explicit_bytes(sizes, dtype):
    return math.prod(sizes) ** 2 * _itemsize(dtype)


def explicit_traffic(sizes, dtype):
    return explicit_bytes(sizes, dtype) + sum(n * n for n in sizes) * _itemsize(dtype)


def explicit_floor(sizes, dtype):
    return 1e6 * explicit_traffic(sizes, dtype) / WRITE


def interpolation_bytes(sizes, points, batch, dtype, kind):
    """Bytes that an interpolation, or its transpose, reads and writes at least."""
    modes, itemsize = len(sizes), _itemsize(dtype)
    met = min(math.prod(sizes), points * 4**modes)
    written = math.prod(sizes) if kind == "W transposed" else met
    bins = math.prod(size - 3 for size in sizes) if kind == "W transposed" else 0
    numbers = 4 * modes * points + batch * (points + written)
    return itemsize * numbers + 12 * points + 4 * bins


def interpolation_flops(modes, points, batch, kind):
    """Additions and multiplications of windows that are contracted mode by mode, or written."""
    each = 4**modes if kind == "W transposed" else (4 ** (modes + 1) - 4) // 3
    return 2 * points * batch * each


def interpolation_floor(sizes, points, batch, dtype, copy, kind):
    """The longer one of memory's time, at ``copy`` bytes a second, and arithmetic's."""
    if kind == "W K":
        both = ("W", "W transposed")
        return sum(interpolation_floor(sizes, points, batch, dtype, copy, one) for one in both)
    moved = interpolation_bytes(sizes, points, batch, dtype, kind)
    flops = interpolation_flops(len(sizes), points, batch, kind)
    return 1e6 * max(moved / copy, flops / FLOPS)
