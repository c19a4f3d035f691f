"""Products of vectors along the first axis whose elements are first brought into another order.

The elements that one block of the values multiplies lie d apart in such vectors, so that kernels
find only the d entries of a row together. Here the a matrices (c, d) of each vector are transposed
before the product, and those (d, b) of the results back, some vectors after others, so that the
workspace stays small. What is between is a product with a d blocks, whose elements lie together.
This takes three times as many bytes as a product needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import NANOSECOND
from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.kron_sparse.block_transposition import block_transposition
from batchkron.backends.cuda.kron_sparse.kernel import WORD, SparseShape, Stored
from batchkron.backends.cuda.kron_sparse.library import LibraryProduct
from batchkron.backends.cuda.runtime.hardware import DeviceLimits, round_up
from batchkron.backends.cuda.runtime.matrix_library import WORKSPACE, WORKSPACE_ALIGNMENT
from batchkron.backends.cuda.runtime.program import Program

DirectWay = Kernel | LibraryProduct
"""What computes a product of the vectors as they are, and may scale and accumulate."""

# Numbers below were chosen by hand.
_VECTORS = 64  # vectors at a time are a multiple of so many, so that all begin at whole words
_WORKSPACE = 1 << 30  # bytes, at most, of the vectors and results that are transposed at a time


@dataclass(frozen=True, slots=True)
class TransposedPart:
    """Some vectors: transposing them, the product, transposing the results."""

    vectors: int
    forward: Kernel
    product: DirectWay
    back: Kernel
    given: int  # bytes of these vectors, at the beginning of the workspace
    results: int  # and of their results
    seconds: float  # estimated time

    @property
    def results_at(self) -> int:
        """Bytes of the workspace before the results."""
        return round_up(self.given, WORD)

    @property
    def rest_at(self) -> int:
        """Bytes of the workspace before that of the product itself."""
        return round_up(self.results_at + self.results, WORKSPACE_ALIGNMENT)


TransposedProduct = tuple[TransposedPart, ...]
"""A product of vectors in parts, each transposed; it neither scales nor accumulates."""
Way = DirectWay | TransposedProduct


def seconds_of(way: Way) -> float:
    """Return the estimated time."""
    return sum(part.seconds for part in way) if isinstance(way, tuple) else way.seconds


def stored_of(way: Way) -> Stored:
    """Return how the values must be stored."""
    if isinstance(way, tuple):
        return stored_of(way[0].product)
    stored: Stored = way.family.stored if isinstance(way, Kernel) else way.stored
    return stored


def workspace_of(way: Way) -> int:
    """Return the bytes of the workspace, whole words."""
    if isinstance(way, tuple):
        return round_up(max(part.rest_at + workspace_of(part.product) for part in way), WORD)
    return 0 if isinstance(way, Kernel) else WORKSPACE


def kernels_of(way: Way) -> list[Kernel]:
    """Return the kernels to compile; a product by cuBLAS has none."""
    if isinstance(way, tuple):
        ways = [one for part in way for one in (part.forward, part.product, part.back)]
        return [kernel for one in ways for kernel in kernels_of(one)]
    return [way] if isinstance(way, Kernel) else []


def programs_of(way: Way) -> list[Program]:
    """Return their programs."""
    return [kernel.program for kernel in kernels_of(way)]


def part_sizes(shape: SparseShape) -> list[int]:
    """Return how many vectors are transposed at a time; nothing where they are too long for it."""
    each = shape.a * shape.d * (shape.b + shape.c) * shape.itemsize
    most = _WORKSPACE // each // _VECTORS * _VECTORS
    if most == 0:
        return []
    count = -(-shape.outer // most)
    size = round_up(-(-shape.outer // count), _VECTORS)
    return [min(size, shape.outer - first) for first in range(0, shape.outer, size)]


TRANSPOSED = "kron_sparse.transposed"
"""The way itself, as `kernel_family.without` names it."""


def transposed_product(
    shape: SparseShape, product_for: Callable[[SparseShape], DirectWay | None], device: DeviceLimits
) -> TransposedProduct | None:
    """Return the product in the other order, by ``product_for``; None where it is of no use."""
    is_real = not shape.dtype.startswith("complex")
    if not is_real or shape.inner != 1 or shape.d == 1 or shape.outer < _VECTORS:
        return None
    parts: list[TransposedPart] = []
    for vectors in part_sizes(shape):
        forward, back = (
            block_transposition(
                vectors * shape.a, size, shape.d, shape.itemsize, to_long, shape.alignment, device
            )
            for size, to_long in ((shape.c, True), (shape.b, False))
        )
        if forward is None or back is None:
            return None
        turned = replace(shape, a=shape.a * shape.d, d=1, outer=vectors, alignment=WORD)
        product = product_for(turned)
        if product is None or stored_of(product) != "blocks":  # the same values for both patterns
            return None
        each = vectors * shape.a * shape.d * shape.itemsize
        given, results = each * shape.c, each * shape.b
        moving = _seconds(forward, given, device) + _seconds(back, results, device)
        seconds = moving + product.seconds
        parts.append(TransposedPart(vectors, forward, product, back, given, results, seconds))
    return tuple(parts) or None


def _seconds(kernel: Kernel, size: int, device: DeviceLimits) -> float:
    """Return the estimated time of a transposition of vectors of so many bytes."""
    costs = costs_for(device.name).families["kron_sparse"]["transposed"]
    itemsize, packs = kernel.work[3], kernel.variant
    accesses = sum(size / (itemsize * pack) for pack in packs)
    moving = max(2 * size / costs["memory_rate"], accesses / costs["access_rate"])
    return float(NANOSECOND * (costs["launch"] + moving))
