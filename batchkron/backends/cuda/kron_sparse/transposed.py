"""Products of vectors along the first axis whose elements are first brought into another order.

The elements that one block of the values multiplies lie d apart in such vectors, so that kernels
find only the d entries of a row together. Here the a matrices (c, d) of each vector are transposed
before the product, and those (d, b) of the results back, some vectors after others, so that the
workspace stays small. What is between is a product with a d blocks, whose elements lie together.
This takes three times as many bytes as a product needs.

No device is needed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import NANOSECOND
from batchkron.backends.cuda.kron_sparse.block_transposition import BlockTransposition
from batchkron.backends.cuda.kron_sparse.kernel import WORD, SparseKernel, SparseShape, Stored
from batchkron.backends.cuda.kron_sparse.library import LibraryProduct
from batchkron.backends.cuda.runtime.hardware import DeviceLimits, round_up
from batchkron.backends.cuda.runtime.matrix_library import WORKSPACE_ALIGNMENT
from batchkron.backends.cuda.runtime.program import Program

# Numbers below were chosen by hand.
_VECTORS = 64  # vectors at a time are a multiple of so many, so that all begin at whole words
_WORKSPACE = 1 << 30  # bytes, at most, of the vectors and results that are transposed at a time


@dataclass(frozen=True, slots=True)
class TransposedPart:
    """Some vectors: transposing them, the product, transposing the results."""

    vectors: int
    forward: BlockTransposition
    product: SparseKernel | LibraryProduct
    back: BlockTransposition

    @property
    def results(self) -> int:
        """Bytes of the workspace before the results."""
        return round_up(self.forward.bytes, WORD)

    @property
    def rest(self) -> int:
        """Bytes of the workspace before that of the product itself."""
        return round_up(self.results + self.back.bytes, WORKSPACE_ALIGNMENT)

    @property
    def workspace(self) -> int:
        """Bytes of the workspace."""
        return self.rest + self.product.workspace


@dataclass(frozen=True, slots=True)
class TransposedProduct:
    """A product of vectors in parts, each transposed; it neither scales nor accumulates.

    ``seconds`` is the estimated time.
    """

    parts: tuple[TransposedPart, ...]
    seconds: float

    @property
    def workspace(self) -> int:
        """Bytes of the workspace, whole words."""
        return round_up(max(part.workspace for part in self.parts), WORD)

    @property
    def stored(self) -> Stored:
        """How the values must be stored."""
        return self.parts[0].product.stored

    def programs(self) -> list[Program]:
        """Return the programs to compile."""
        return [
            program
            for part in self.parts
            for program in (part.forward.program(), *part.product.programs(), part.back.program())
        ]


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
    shape: SparseShape,
    product_for: Callable[[SparseShape], SparseKernel | LibraryProduct | None],
    device: DeviceLimits,
) -> TransposedProduct | None:
    """Return the product in the other order, None where it is of no use or vectors are too long.

    Parameters
    ----------
    shape : SparseShape
    product_for : callable
        Returns the fastest product of vectors as they are for a shape, None if there is none.
    device : DeviceLimits
    """
    is_real = not shape.dtype.startswith("complex")
    if not is_real or shape.inner != 1 or shape.d == 1 or shape.outer < _VECTORS:
        return None
    parts: list[TransposedPart] = []
    for vectors in part_sizes(shape):
        forward, back = (
            BlockTransposition(
                vectors * shape.a, size, shape.d, shape.itemsize, to_long, shape.alignment
            )
            for size, to_long in ((shape.c, True), (shape.b, False))
        )
        turned = replace(shape, a=shape.a * shape.d, d=1, outer=vectors, alignment=WORD)
        product = product_for(turned) if forward.fits and back.fits else None
        if product is None or product.stored != "blocks":  # the same values for both patterns
            return None
        parts.append(TransposedPart(vectors, forward, product, back))
    if not parts:
        return None
    seconds = _seconds(parts, device) + sum(part.product.seconds for part in parts)
    return TransposedProduct(tuple(parts), seconds)


def _seconds(parts: Sequence[TransposedPart], device: DeviceLimits) -> float:
    """Return the estimated time of all transpositions."""
    costs = costs_for(device.name).families["kron_sparse"]["transposed"]
    moved = sum(part.forward.bytes + part.back.bytes for part in parts)
    return NANOSECOND * (2 * len(parts) * costs["launch"] + 2 * moved / costs["memory_rate"])
