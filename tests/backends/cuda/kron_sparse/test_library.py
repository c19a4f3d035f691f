"""Products with Kronecker-sparse matrices by cuBLAS, whose place a library of the host takes."""

from dataclasses import replace

import numpy as np
import pytest
from fake_cublas import FakeLibrary
from kron_sparse_oracle import assert_product
from nvrtc import DEVICES

from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.kernel_family import without
from batchkron.backends.cuda.kron_sparse.choose import fastest_way
from batchkron.backends.cuda.kron_sparse.kernel import SparseShape
from batchkron.backends.cuda.kron_sparse.library import LibraryProduct, _products, library_product
from batchkron.backends.cuda.kron_sparse.stored import stored_values
from batchkron.backends.cuda.kron_sparse.transposed import stored_of, workspace_of
from batchkron.backends.cuda.runtime.matrix_library import (
    WORKSPACE,
    WORKSPACE_ALIGNMENT,
    LibraryMultiply,
)

DEVICE = replace(DEVICES["90"], has_matrix_library=True)
FIRST = [
    *((1, 8, 16, 1), (5, 24, 8, 1), (3, 16, 40, 1), (1, 8, 16, 3), (3, 4, 2, 8), (2, 2, 8, 4)),
    *((3, 7, 5, 1), (2, 3, 5, 3)),
]
LAST = [*FIRST, (3, 5, 7, 4), (4, 3, 9, 3), (16, 2, 2, 17), (17, 2, 2, 16), (1, 1, 1, 8)]


def found(pattern, layout, dtype, vectors=48, **more):
    sizes = (vectors, 1) if layout == "batch-first" else (1, vectors)
    return library_product(SparseShape(*pattern, *sizes, dtype, **more), DEVICE)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("layout", "pattern"),
    [("batch-first", one) for one in FIRST] + [("batch-last", one) for one in LAST],
)
def test_products(rng, layout, pattern, dtype):
    """All products, by blocks and with their zeros, are those of the matrix."""
    sizes = (48, 1) if layout == "batch-first" else (1, 48)
    possible = list(_products(SparseShape(*pattern, *sizes, dtype)))
    a, _, _, d = pattern
    assert len(possible) == (d == 1 or layout == "batch-last") + (d > 1) + (a > 1)
    for products, stored in possible:
        check_products(rng, layout, pattern, dtype, products, stored)


def check_products(rng, layout, pattern, dtype, products, stored_as):
    a, b, c, d = pattern
    values = rng.standard_normal(pattern).astype(dtype)
    stored = stored_values(values, stored_as)
    x = rng.standard_normal((48, a * c * d)).astype(dtype)
    y = np.full((48, a * b * d), np.nan, dtype)
    given, result = (
        np.ascontiguousarray(one.T if layout == "batch-last" else one) for one in (x, y)
    )

    def scalars(alpha, accumulate):
        packed = np.array([alpha], "f8" if dtype == "float64" else "f4")
        return np.int64(accumulate).tobytes() + packed.tobytes()

    with FakeLibrary().installed() as library:
        multiply = LibraryMultiply(products, dtype, values.itemsize, 0)
        addresses = given.ctypes.data, result.ctypes.data, stored.ctypes.data, 4096

        def rows():
            return result.T if layout == "batch-last" else result

        multiply(99, addresses, b"")
        assert_product(rows(), values, x)
        multiply(99, addresses, scalars(1, False))
        assert_product(rows(), values, x)
        y = rng.standard_normal(y.shape).astype(dtype)
        rows()[...] = y
        multiply(98, addresses, scalars(-0.5, True))
        assert_product(rows(), values, x, y, -0.5)
    assert library.modes == [(77, 16)]
    assert library.streams == [(77, 99), (77, 99), (77, 98)]
    assert library.workspaces == [(77, 4096, WORKSPACE)] * 3
    by_blocks = layout == "batch-last" and stored_as == "blocks"
    assert library.calls == 3 * (min(a, d) if by_blocks else 1)


def test_a_failure_is_raised():
    way = found((1, 8, 8, 1), "batch-last", "float32")
    memory = np.zeros(8 * 48, "f4")
    with FakeLibrary(status=13).installed():
        multiply = LibraryMultiply(way.products, "float32", 4, 0)
        with pytest.raises(OSError, match="status 13"):
            multiply(0, (*[memory.ctypes.data] * 3, 4096), b"")


def test_a_workspace_is_aligned_behind_any_number_of_vectors():
    """cuBLAS refuses another address, behind transposed vectors, too."""
    way = fastest_way(SparseShape(1, 520, 520, 5, 25089, 1, "float16"), DEVICE)
    assert isinstance(way, tuple)
    assert all(isinstance(part.product, LibraryProduct) for part in way)
    assert any(part.results % WORKSPACE_ALIGNMENT for part in way)
    for part in way:
        assert part.rest_at % WORKSPACE_ALIGNMENT == 0
        assert part.rest_at >= part.results_at + part.results

    memory = np.zeros(8 * 48, "f4")
    with FakeLibrary().installed():
        multiply = LibraryMultiply(
            found((1, 8, 8, 1), "batch-last", "float32").products, "float32", 4, 0
        )
        with pytest.raises(OSError, match="status 7"):
            multiply(0, (*[memory.ctypes.data] * 3, 4096 + 16), b"")


@pytest.mark.parametrize(
    ("pattern", "layout", "dtype", "more"),
    [
        ((1, 64, 64, 1), "batch-last", "complex64", {}),
        ((1, 64, 64, 1), "batch-last", "float32", {"products": 3}),
        ((4, 64, 64, 64), "batch-first", "float64", {}),  # 537 MB of values and zeros
        ((17, 512, 512, 17), "batch-last", "float32", {}),  # too many calls, too many zeros
        ((1, 512, 512, 64), "batch-last", "float16", {"vectors": 2**25}),  # a step of 2^31 elements
    ],
)
def test_what_cublas_does_not_take(pattern, layout, dtype, more):
    assert found((1, 64, 64, 1), layout, "float32") is not None
    assert found(pattern, layout, dtype, **more) is None
    assert library_product(SparseShape(1, 64, 64, 1, 1, 48, "float32"), DEVICES["90"]) is None


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_sizes_that_are_no_whole_words_take_longer(dtype):
    """By the estimate, and so do vectors whose address is none."""

    def seconds(pattern, **more):
        return found(pattern, "batch-first", dtype, 25088, **more).seconds

    whole, odd = seconds((1, 512, 512, 1)), seconds((1, 511, 511, 1))
    beside = seconds((1, 512, 512, 1), alignment=np.dtype(dtype).itemsize)
    assert min(odd, beside) > whole


def test_sums_of_one_product_are_divided_among_multiprocessors():
    """So its zeros are multiplied by, where few results have long sums."""
    way = fastest_way(SparseShape(1, 7, 1000, 3, 1, 512, "float32"), DEVICE)
    assert (stored_of(way), way.products.count) == ("expanded", 1)
    way = fastest_way(SparseShape(1, 512, 512, 8, 1, 25088, "float32"), DEVICE)
    assert (stored_of(way), way.products.count) == ("blocks", 8)


def test_a_small_d_may_be_multiplied_with_its_zeros():
    for d in (2, 3):
        first = fastest_way(SparseShape(1, 256, 1024, d, 25088, 1, "float16"), DEVICE)
        assert isinstance(first, LibraryProduct)
        assert stored_of(first) == "expanded"


def test_large_blocks_are_left_to_it():
    def way(pattern, layout, dtype, **more):
        sizes = (25088, 1) if layout == "batch-first" else (1, 25088)
        return fastest_way(SparseShape(*pattern, *sizes, dtype), DEVICE, **more)

    for dtype in ("float16", "float32", "float64"):
        assert isinstance(way((1, 1024, 1024, 1), "batch-first", dtype), LibraryProduct)
        assert isinstance(way((4, 768, 768, 4), "batch-last", dtype, plain=False), LibraryProduct)
        assert isinstance(way((512, 2, 2, 1), "batch-last", dtype), Kernel)
        turned = way((4, 768, 768, 4), "batch-first", dtype)
        assert isinstance(turned, tuple)
        assert isinstance(turned[0].product, LibraryProduct)
        assert workspace_of(turned) >= WORKSPACE
        assert way((4, 768, 768, 4), "batch-first", dtype, plain=False) != turned
        with without("kron_sparse.library"):
            other = way((1, 1024, 1024, 1), "batch-last", dtype)
            assert isinstance(other, Kernel)
