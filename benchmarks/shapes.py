"""What is multiplied: a Kron-Matmul, a batch, an explicit product, with its work and its memory."""

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class KronMatmul:
    """x (A_1 ⊗ … ⊗ A_d) for x of ``rows`` rows and A_k of the shapes (P_k, Q_k) in ``factors``."""

    rows: int
    factors: tuple[tuple[int, int], ...]

    @property
    def name(self):
        """The shape as FastKron's tables write it, "64: 8^4"."""
        sizes = [str(p) if p == q else f"{p}×{q}" for p, q in self.factors]
        if len(set(sizes)) == 1 and len(sizes) > 1:
            return f"{self.rows}: {sizes[0]}^{len(sizes)}"
        return f"{self.rows}: {', '.join(sizes)}"

    @property
    def columns(self):
        """ΠP and ΠQ."""
        return math.prod(p for p, _ in self.factors), math.prod(q for _, q in self.factors)

    @property
    def cheapest_order(self):
        """The modes in the order of least work: a before b where 1/P_a - 1/Q_a < 1/P_b - 1/Q_b."""
        return sorted(
            range(len(self.factors)),
            key=lambda mode: 1 / self.factors[mode][0] - 1 / self.factors[mode][1],
        )

    @property
    def flops(self):
        size, total = self.rows * self.columns[0], 0
        for p, q in (self.factors[mode] for mode in self.cheapest_order):
            size = size // p * q
            total += 2 * size * p
        return float(total)

    @property
    def largest(self):
        """Elements that an intermediate result has at most, in any order."""
        return self.rows * math.prod(max(p, q) for p, q in self.factors)

    def elements(self):
        """How many are read and written at least, without the factors."""
        return self.rows * self.columns[0], self.rows * self.columns[1]

    def reduced(self, maximum):
        """The shape with as many rows as give intermediates of ``maximum`` elements, if any do."""
        rows = min(self.rows, maximum // (self.largest // self.rows))
        return replace(self, rows=rows) if rows else None


@dataclass(frozen=True)
class Batch:
    """Products of ``modes`` factors n × n, ``contributions`` to every output block.

    With ``only`` the factors of all other modes are the identity: a segmented mode multiply.
    """

    modes: int
    size: int
    contributions: int = 64
    only: int | None = None

    MIN_FLOPS, MIN_BLOCKS = 20e6, 8  # of a list
    POOL = 256  # matrices of each mode

    @property
    def name(self):
        mode = "" if self.only is None else f" mode {self.only}, {self.contributions} edges"
        return f"({self.modes},{self.size}){mode}"

    @property
    def block(self):
        return int(self.size**self.modes)

    @property
    def flops_of_product(self):
        return 2 * self.block * self.size * (self.modes if self.only is None else 1)

    @property
    def blocks(self):
        """Input blocks and output blocks: enough for one call to have some work."""
        per_block = self.contributions * self.flops_of_product
        return max(self.MIN_BLOCKS, math.ceil(self.MIN_FLOPS / per_block))

    @property
    def products(self):
        return self.blocks * self.contributions

    @property
    def flops(self):
        return float(self.products * self.flops_of_product)

    def elements(self):
        return self.blocks * self.block, self.blocks * self.block

    def reduced(self, maximum):
        """The same, unless its vectors have more than ``maximum`` elements."""
        return self if self.blocks * self.block <= maximum else None


@dataclass(frozen=True)
class Explicit:
    """A_1 ⊗ … ⊗ A_d written out, A_k of the shapes (P_k, Q_k) in ``factors``."""

    factors: tuple[tuple[int, int], ...]

    @property
    def name(self):
        sizes = [f"{p}²" if p == q else f"{p}×{q}" for p, q in self.factors]
        return " ⊗ ".join(sizes)

    @property
    def flops(self):
        return float(self.elements()[1])

    def elements(self):
        read = sum(p * q for p, q in self.factors)
        return read, math.prod(p * q for p, q in self.factors)

    def reduced(self, maximum):
        """The shape with as many rows of A_1 as give ``maximum`` elements, if any do."""
        (rows, columns), *others = self.factors
        rows = min(rows, maximum // (self.elements()[1] // rows))
        return Explicit(((rows, columns), *others)) if rows else None


Shape = KronMatmul | Batch | Explicit


def kron_matmuls(text):
    """The shapes of a text such as "64: 8^4; 3, 4 | 10: 52×50, 65×20"."""
    found = []
    for group in text.split("|"):
        rows, _, shapes = group.partition(":")
        found += [KronMatmul(int(rows), _factors(one)) for one in shapes.split(";")]
    return tuple(found)


def _factors(text):
    factors = []
    for word in text.split(","):
        size, _, count = word.partition("^")
        p, _, q = size.partition("×")
        factors += [(int(p), int(q or p))] * int(count or 1)
    return tuple(factors)


def square_shapes(text):
    """Rows and sizes of square factors by the shape's name, without spaces between sizes."""
    shapes = kron_matmuls(text)
    return {
        one.name.replace(", ", ","): (one.rows, tuple(p for p, _ in one.factors)) for one in shapes
    }


def chain(x, factors):
    """x (A_1 ⊗ … ⊗ A_d) by one matmul and one transpose for each factor, in any library."""
    rows, y = x.shape[0], x
    for factor in reversed(factors):
        p, q = factor.shape
        y = (y.reshape(-1, p) @ factor).reshape(rows, -1, q).swapaxes(1, 2)
    return y.reshape(rows, -1)


def squares(*sizes):
    return Explicit(tuple((size, size) for size in sizes))
