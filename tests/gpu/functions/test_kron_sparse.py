"""kronecker_sparse_multiply on a device: values of any strides, captured graphs, changed values."""

import numpy as np
import pytest
from dense_oracle import DTYPES, random_array
from kron_sparse_oracle import assert_product

import batchkron as bk

pytestmark = pytest.mark.gpu

LAYOUTS = ["batch-first", "batch-last"]
PATTERNS = [(1, 2, 2, 64), (3, 5, 7, 11), (1, 192, 48, 2), (6, 64, 64, 1), (2, 67, 53, 3)]


def numbers(rng, shape, dtype):
    wide = "float32" if dtype == "float16" else dtype
    return random_array(rng, shape, wide).astype(dtype)


def placed(cupy, x, layout):
    return cupy.asarray(x if layout == "batch-first" else np.ascontiguousarray(x.T))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float16", *DTYPES])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_values_of_any_strides(cupy, rng, poisoned_on_device, pattern, dtype, layout):
    """Contiguous, transposed, of every second number, behind an odd address."""
    a, b, c, d = pattern
    host = (numbers(rng, pattern, dtype) / np.sqrt(c)).astype(dtype)
    turned = cupy.asarray(np.ascontiguousarray(host.transpose(0, 2, 1, 3))).transpose(0, 2, 1, 3)
    spread = cupy.asarray(np.repeat(host, 2, axis=3))[..., ::2]
    odd = cupy.empty(host.size + 1, dtype)[1:].reshape(pattern)
    odd[...] = cupy.asarray(host)
    x = numbers(rng, (45, a * c * d), dtype)
    given = placed(cupy, x, layout)
    shape = (45, a * b * d) if layout == "batch-first" else (a * b * d, 45)
    for values in (cupy.asarray(host), turned, spread, odd):
        out = poisoned_on_device(shape, dtype)
        for _ in range(2):
            out[...] = np.nan
            found = bk.kronecker_sparse_multiply(values, given, layout=layout, out=out)
            assert found is out
            assert_product(out.get() if layout == "batch-first" else out.get().T, host, x)
        again = bk.kronecker_sparse_multiply(values, given, layout=layout)
        assert bool((again == out).all())
        values *= 2
        found = bk.kronecker_sparse_multiply(values, given, layout=layout)
        assert_product(found.get() if layout == "batch-first" else found.get().T, 2 * host, x)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS[2:], ids=str)
def test_captured_calls(cupy, rng, pattern, turned):
    """A graph reads the values that are there when it is launched."""
    a, b, c, d = pattern
    values = cupy.asarray(numbers(rng, (a, c, b, d) if turned else pattern, "float32"))
    if turned:
        values = values.transpose(0, 2, 1, 3)
    x = numbers(rng, (100, a * c * d), "float32")
    given, out = cupy.asarray(x), cupy.empty((100, a * b * d), "float32")
    bk.kronecker_sparse_multiply(values, given, out=out)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        stream.begin_capture()
        for _ in range(2):
            bk.kronecker_sparse_multiply(values, given, out=out)
        graph = stream.end_capture()
        for _ in range(2):
            values *= -0.5
            out[...] = np.nan
            graph.launch(stream)
            assert_product(out.get(), values.get(), x)


def test_overlap_is_refused(cupy):
    memory = cupy.ones(200)
    values, x = memory[:24].reshape(2, 2, 3, 2), memory[24:72].reshape(4, 12)
    for begin in (10, 23, 71):
        with pytest.raises(ValueError, match="out overlaps an input"):
            bk.kronecker_sparse_multiply(values, x, out=memory[begin : begin + 32].reshape(4, 8))
    out = memory[72:104].reshape(4, 8)
    assert bk.kronecker_sparse_multiply(values, x, out=out) is out
    assert bool((out == 3).all())
