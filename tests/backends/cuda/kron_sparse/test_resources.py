"""Kernels of Kronecker-sparse products compile for devices, and spill little."""

from itertools import product

import pytest
from kernel_resources import compile_kernel
from nvrtc import DEVICES

from batchkron.backends.cuda.kron_sparse.block_transposition import block_transposition
from batchkron.backends.cuda.kron_sparse.choose import fastest_way
from batchkron.backends.cuda.kron_sparse.kernel import SPARSE_SCALARS, SparseShape, with_ending
from batchkron.backends.cuda.kron_sparse.stored import store_kernel
from batchkron.backends.cuda.runtime.hardware import resident_blocks

FIRST, LAST = (25088, 1), (1, 25088)
SHAPES = [
    ((1, 192, 48, 2), FIRST),
    ((1, 64, 64, 16), FIRST),
    ((1, 64, 64, 16), LAST),
    ((1, 256, 1024, 4), FIRST),
]
STACK = 256  # bytes of a thread


def case(capability, dtype, pattern, vectors):
    few = capability == "90" and (pattern[3], dtype) == (16, "float16")
    marks = () if few else pytest.mark.slow
    return pytest.param(capability, dtype, pattern, vectors, marks=marks)


CASES = [
    case(capability, dtype, pattern, vectors)
    for capability, dtype, (pattern, vectors) in product(
        DEVICES, ("float16", "float32", "float64"), SHAPES
    )
]


@pytest.mark.parametrize(("capability", "dtype", "pattern", "vectors"), CASES)
def test_chosen_kernels_compile(capability, dtype, pattern, vectors):
    shape = SparseShape(*pattern, *vectors, dtype)
    program = fastest_way(shape, DEVICES[capability], plain=False).program
    kernel = compile_kernel(program, capability)
    assert kernel.header == program.header
    assert kernel.stack <= STACK


@pytest.mark.parametrize(
    "ending", ["bias", "gelu", pytest.param("gelu-tanh", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("pattern", "dtype"),
    [
        ((1, 768, 192, 2), "float32"),
        ((1, 768, 192, 2), "float16"),
        ((6, 64, 64, 1), "float32"),
        pytest.param((1, 192, 48, 2), "float64", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("capability", [pytest.param("80", marks=pytest.mark.slow), "90"])
def test_kernels_with_an_ending_compile(capability, pattern, dtype, ending):
    shape = SparseShape(*pattern, *FIRST, dtype)
    plain = fastest_way(shape, DEVICES[capability], plain=False)
    kernel = compile_kernel(with_ending(plain, ending).program, capability)
    assert kernel.stack <= STACK


@pytest.mark.parametrize("dtype", SPARSE_SCALARS)
@pytest.mark.parametrize(("capability", "lanes"), [("80", 1), ("90", 32)])
def test_copies_of_values_compile(capability, lanes, dtype):
    shape = (2, 3, lanes, 1)
    strides = (3 * lanes, lanes, 1, 1)
    one = store_kernel(shape, strides, 1, dtype, "given", DEVICES[capability])
    kernel = compile_kernel(one.program, capability)
    assert "kron_sparse_store" in kernel.name
    assert kernel.stack == 0


@pytest.mark.parametrize("itemsize", [2, 4, 8])
@pytest.mark.parametrize(("capability", "alignment"), [("80", 16), ("90", 16), ("90", 8)])
def test_transpositions_compile(capability, itemsize, alignment):
    limits = DEVICES[capability]
    one = block_transposition(25088, 768, 16, itemsize, True, alignment, limits)
    kernel = compile_kernel(one.program, capability)
    assert "kron_sparse_transpose" in kernel.name
    assert kernel.stack == 0
    assert resident_blocks(one.launch.shared_bytes, limits) >= 2
