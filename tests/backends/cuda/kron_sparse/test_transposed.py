"""Which products with Kronecker-sparse matrices go through transposed vectors, and their parts."""

from dataclasses import replace

import pytest
from nvrtc import DEVICES

from batchkron.backends.cuda.kron_sparse.choose import fastest_way
from batchkron.backends.cuda.kron_sparse.kernel import WORD, SparseShape
from batchkron.backends.cuda.kron_sparse.transposed import (
    part_sizes,
    transposed_product,
    workspace_of,
)

DEVICE = DEVICES["90"]
GIB = 1 << 30


def product(shape):
    return transposed_product(shape, lambda one: fastest_way(one, DEVICE, plain=False), DEVICE)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("outer", [64, 65, 25088, 1_000_003])
def test_parts_begin_at_whole_words_and_need_at_most_one_gib(dtype, outer):
    for pattern in ((1, 1, 1, 1), (2, 48, 48, 4), (1, 4096, 4096, 3), (64, 7, 5, 1000)):
        shape = SparseShape(*pattern, outer, 1, dtype)
        sizes = part_sizes(shape)
        assert sum(sizes) == outer
        assert all(size > 0 for size in sizes)
        assert all(size % (WORD // 2) == 0 for size in sizes[:-1])
        if len(sizes) < 100:
            found = product(shape)
            assert found is None or workspace_of(found) <= GIB


def test_vectors_that_are_too_long_stay():
    """64 of them and their results take one GiB, and a little more."""
    a = GIB // 64 // 8 // (2 * 128)
    fits = SparseShape(a, 64, 64, 2, 200, 1, "float64")
    assert part_sizes(fits) == [64, 64, 64, 8]
    assert workspace_of(product(fits)) == GIB
    longer = replace(fits, a=a + 1)
    assert not part_sizes(longer)
    assert product(longer) is None


def test_which_vectors_stay():
    shape = SparseShape(2, 48, 48, 4, 64, 1, "float32")
    assert product(shape) is not None
    for other in ((2, 48, 48, 4, 63, 1, "float32"), (2, 48, 48, 4, 64, 1, "complex64")):
        assert product(SparseShape(*other)) is None
    assert product(SparseShape(2, 48, 48, 4, 64, 2, "float32")) is None
    assert product(SparseShape(2, 48, 48, 1, 64, 1, "float32")) is None  # they lie together
    assert product(SparseShape(2, 48, 48, 4000, 64, 1, "float32")) is None  # tiles are too large
