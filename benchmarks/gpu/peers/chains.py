"""A Kron-Matmul as a chain of matrix multiplies that any BLAS can do. Pure arithmetic on sizes."""

import math
from dataclasses import dataclass
from functools import partial

FORMS = ("in place", "turned")


@dataclass(frozen=True)
class Multiply:
    """One factor A (K, C) times a tensor, ``batch`` matrices at once; all arrays by rows.

    "left": Y (batch, K, others) = A X (batch, C, others).
    "right": Y (others, K) = X (others, C) A^T, one matrix.
    "turned": Y (batch, others, K) = X (batch, C, others)^T A^T: the next mode comes to the front.
    """

    form: str
    mode: int
    batch: int
    C: int
    K: int
    others: int

    @property
    def elements(self):
        return self.batch * self.K * self.others


def chain(shape, form):
    """The multiplies of a shape.

    "in place": each factor multiplies its mode where it lies, in the order of least work, by a
    strided batch (the last mode: by one multiply). "turned": from the first mode to the last, by a
    batch over rows; each multiply puts its mode behind all others, so that they end in order.
    """
    sizes = [p for p, _ in shape.factors]
    steps = []
    for mode in shape.cheapest_order if form == "in place" else range(len(sizes)):
        C, K = shape.factors[mode]
        if form == "turned":
            steps.append(Multiply(form, mode, shape.rows, C, K, math.prod(sizes) // C))
        elif mode == len(sizes) - 1:
            others = shape.rows * math.prod(sizes) // C
            steps.append(Multiply("right", mode, 1, C, K, others))
        else:
            batch = shape.rows * math.prod(sizes[:mode])
            steps.append(Multiply("left", mode, batch, C, K, math.prod(sizes[mode + 1 :])))
        sizes[mode] = K
    return steps


def places(count, x, out, buffers):
    """Where each multiply of a chain reads and writes: from x to ``out`` by two buffers in turn."""
    source = x
    for number in range(count):
        target = out if number == count - 1 else buffers[number % 2]
        yield source, target
        source = target


def run_all(calls):
    for call in calls:
        call()


def kron_calls(shape, factors, pairs, buffers, multiply):
    """The calls of each form of the chain, by ``multiply(step, factor, source, target)``."""

    def bound(steps, x, y):
        ends = zip(steps, places(len(steps), x, y, buffers), strict=True)
        return partial(run_all, [multiply(one, factors[one.mode], *pair) for one, pair in ends])

    return {form: [bound(chain(shape, form), *pair) for pair in pairs] for form in FORMS}


@dataclass(frozen=True)
class Gemm:
    """A call of ``gemmStridedBatched``; matrices are by columns.

    ``leading`` and ``strides`` are those of both operands and of the result. With ``factor_first``
    A is the first operand and the tensor the second, otherwise the other way round.
    """

    transposed: tuple[bool, bool]
    m: int
    n: int
    k: int
    factor_first: bool
    leading: tuple[int, int, int]
    strides: tuple[int, int, int]
    batch: int


def gemm(step, own_factors=False):
    """The call of a multiply; with ``own_factors`` each matrix of the batch has its own A."""
    C, K, others = step.C, step.K, step.others
    factor = C * K if own_factors else 0
    source, target = C * others, K * others
    if step.form == "left":
        strides = (source, factor, target)
        return Gemm((False, False), others, K, C, False, (others, C, others), strides, step.batch)
    strides = (factor, source, target)
    if step.form == "right":
        return Gemm((True, False), K, others, C, True, (C, C, K), strides, step.batch)
    return Gemm((True, True), K, others, C, True, (C, others, K), strides, step.batch)
