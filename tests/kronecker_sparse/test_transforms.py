"""The Fourier and the Hadamard transform as chains."""

import numpy as np
import pytest
from dense_oracle import dense_kron, random_array

from batchkron import kronecker_sparse as ks


@pytest.mark.parametrize("N", [2, 4, 16, 256])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_fourier_transform(rng, backend, N, dtype):
    chain = ks.dft(N, dtype=dtype)
    assert (chain.patterns, chain.dtype) == (ks.square_dyadic(N), dtype)
    x = random_array(rng, (5, N), dtype)
    expected = np.fft.fft(x.astype("complex128"))
    bound = 8 * len(chain.factors) * np.finfo(dtype).eps * np.linalg.norm(x, axis=-1).max()
    y = chain.apply(np.ascontiguousarray(x[:, ks.bit_reversal(N)]))
    np.testing.assert_allclose(y, expected, rtol=0, atol=bound * np.sqrt(N))
    last = ks.dft(N, dtype=dtype, layout="batch-last")
    turned = last.apply(np.ascontiguousarray(x[:, ks.bit_reversal(N)].T))
    np.testing.assert_allclose(turned.T, expected, rtol=0, atol=bound * np.sqrt(N))


def test_bit_reversal():
    for count in range(1, 8):
        order = ks.bit_reversal(2**count)
        expected = [int(f"{n:0{count}b}"[::-1], 2) for n in range(2**count)]
        np.testing.assert_array_equal(order, expected)
        np.testing.assert_array_equal(order[order], np.arange(2**count))


@pytest.mark.parametrize("N", [2, 8, 64])
def test_hadamard_transform(backend, dtype, N):
    chain = ks.hadamard(N, dtype=dtype)
    one = np.array([[1, 1], [1, -1]])
    expected = dense_kron(*[one] * (N.bit_length() - 1))
    np.testing.assert_array_equal(chain.to_dense(), expected)
    assert (chain.dtype, chain.patterns) == (dtype, ks.square_dyadic(N))


def test_errors():
    with pytest.raises(TypeError, match="dtype is float64; expected complex64 or complex128"):
        ks.dft(8, dtype="float64")
    with pytest.raises(TypeError, match="dtype is int64"):
        ks.hadamard(8, dtype=np.int64)
    for call in (ks.dft, ks.hadamard, ks.bit_reversal):
        with pytest.raises(ValueError, match="N is 6; expected a power of two"):
            call(6)
        with pytest.raises(TypeError, match=r"N is 8\.0; expected an integer"):
            call(8.0)
