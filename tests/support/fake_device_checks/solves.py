"""Solves, eigenpairs, exponentials and determinants of products and sums."""

import cupy
import numpy as np
import pytest
import scipy.sparse
from dense_oracle import random_array
from fake_cupy.arrays import Array

import batchkron as bk
from batchkron.operators.kronecker_sum.factorisation import BatchedSumFactorisation
from fake_device_checks import DEVICE
from fake_device_checks.common import Counted, close


def solves():
    """Solves, eigenpairs and exponentials of products and sums, with factorisations kept."""
    rng = np.random.default_rng(0)
    for dtype in ("float32", "complex128"):
        solves_of(rng, dtype, 0.5)
        for sizes_of_modes in ((5,), (2, 3, 4)):
            solves_without_symmetry(rng, sizes_of_modes, dtype)
    spread = bk.KroneckerProduct([np.eye(2), np.ones((3, 3))])
    with pytest.raises(
        np.linalg.LinAlgError, match=r"factors\[1\], of shape \(3, 3\), is singular"
    ):
        spread.to("cuda").solve(cupy.asarray(np.ones(6)))
    with pytest.raises(TypeError, match="b is an array on the CPU"):
        spread.to("cuda").solve(np.ones(6))


def solves_without_symmetry(rng, modes, dtype):
    host = bk.KroneckerSum(
        [random_array(rng, (n, n), dtype) + 4 * np.eye(n, dtype=dtype) for n in modes]
    )
    b = random_array(rng, (host.shape[0], 3), dtype)
    given, count = cupy.asarray(b), len(DEVICE.launches)
    close(host.to("cuda").solve(given), host.solve(b))
    kinds = [getattr(kernel, "kind", "") for kernel, _ in DEVICE.launches[count:]]
    assert kinds.count("back_substitution") == sum(modes) - len(modes) + 1
    wide = b.astype(np.result_type(dtype, "complex64"))
    found = host.to("cuda").factorise().solve_shifted(cupy.asarray(wide), [0.5, 1j])
    close(found, host.factorise().solve_shifted(wide, [0.5, 1j]))
    first = random_array(rng, (2, 3, 3), dtype) + 4 * np.eye(3, dtype=dtype)
    many = bk.KroneckerSum([first, *host.factors])
    b = random_array(rng, (4, 2, many.shape[0]), dtype)
    close(BatchedSumFactorisation(many.factors, "cuda").solve(cupy.asarray(b)), many.solve(b))


def solves_of(rng, dtype, shift):
    def positive(n):
        factor = random_array(rng, (n, n), dtype)
        return (factor @ factor.conj().T / n + 2 * np.eye(n)).astype(dtype)

    factors, masses = [positive(n) for n in (3, 4, 5)], [positive(n) for n in (3, 4, 5)]
    identity = bk.Identity(60, np.dtype(dtype))
    product, whole = bk.KroneckerProduct(factors), bk.KroneckerSum(factors)
    (A, B), (M, N) = factors[:2], masses[:2]
    small = bk.KroneckerProduct([A, N]) + bk.KroneckerProduct([M, B])
    small += shift * bk.KroneckerProduct([M, N])
    vector, columns = (random_array(rng, shape, dtype) for shape in (60, (60, 7)))
    for host in (product, whole, product + shift * identity, whole + shift * identity, small):
        op = host.to("cuda")
        size = host.shape[0]
        for b in (vector[:size], columns[:size], columns[:size].astype("complex128")):
            given = cupy.asarray(np.ascontiguousarray(b))
            for _ in range(2):
                close(op.solve(given), host.solve(b))
            before = len(DEVICE.launches)
            op.solve(given)
            assert len(DEVICE.launches) > before
            if host is not small:
                for t in (0.25, 0.5j, 1 + 0j, 1.0):
                    close(op.expm_apply(given, t), host.expm_apply(b, t))
                    assert op.expm_apply(given, t).dtype == host.expm_apply(b, t).dtype
        copies = Counted(cupy, "asarray")
        uploaded = Counted(Array, "get")
        op.solve(given)
        assert (copies.calls, uploaded.calls) == (0, 0)
        cupy.asarray, Array.get = copies._found, uploaded._found
        for one, other in zip(op.slogdet(), host.slogdet(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4)
        np.testing.assert_allclose(op.logdet(), host.logdet(), rtol=1e-4)
    for host in (product, whole):
        for name in ("eigh", "eig"):
            values, vectors = getattr(host.to("cuda"), name)()
            assert vectors.device == "cuda"
            close(values, getattr(host, name)()[0])
            rebuilt = vectors.matmat(cupy.asarray(np.eye(60, dtype=vectors.dtype))).get()
            close(host.to("cuda").matmat(cupy.asarray(rebuilt)), rebuilt * values.get())
    left, values, right = bk.KroneckerProduct(factors[:2]).to("cuda").svd()
    again = left.to("cpu").to_dense() * values.get() @ right.to("cpu").to_dense()
    close(cupy.asarray(again), np.kron(*factors[:2]))
    total = product + shift * identity
    on_cuda, b = total.to("cuda"), vector
    on_cuda.solve(cupy.asarray(b))
    for op in (product, whole):
        op.to("cuda").solve(cupy.asarray(b))
        op.update([2 * factor for factor in factors])
        close(op.to("cuda").solve(cupy.asarray(b)), op.solve(b))
    close(on_cuda.solve(cupy.asarray(b)), total.solve(b))


def exponentials():
    """exp and φ of sums whose factors leave the range of numbers alone, and of those that do."""
    rng = np.random.default_rng(0)
    for dtype in ("float32", "complex128"):
        eyes = [np.eye(n, dtype=dtype) for n in (3, 4, 5)]
        factors = [random_array(rng, eye.shape, dtype) for eye in eyes]
        cancelling, large, entries = (
            bk.KroneckerSum([f + s * one for f, s, one in zip(given, shifts, eyes, strict=True)])
            for given, shifts in (
                (factors, (900, -500, -400)),
                (factors, (900, 900, 900)),
                (
                    [np.diag(np.linspace(0, 90, len(one))).astype(dtype) for one in eyes],
                    (0, 0, -90),
                ),
            )
        )
        for host in (cancelling, entries, large):
            b = random_array(rng, (60, 3), dtype)
            b[:, 0] = 0
            with np.errstate(over="ignore", invalid="ignore"):
                found = host.to("cuda").expm_apply(cupy.asarray(b))
                expected = host.expm_apply(b)
            np.testing.assert_allclose(found.get(), expected, rtol=1e-3, atol=1e-4)
        vectors = [random_array(rng, 60, dtype) for _ in range(3)]
        found = cancelling.to("cuda").phi_apply([cupy.asarray(v) for v in vectors], 2.0)
        assert found.dtype == dtype
        close(found, cancelling.phi_apply(vectors, 2.0))


def combinations():
    """Direct methods of multiples, sums and compositions, and of diagonal operators."""
    rng = np.random.default_rng(0)
    for dtype in ("float32", "complex128"):
        factors = [random_array(rng, (n, n), dtype) + 4 * np.eye(n, dtype=dtype) for n in (3, 4)]
        product, whole = bk.KroneckerProduct(factors), bk.KroneckerSum(factors)
        one = bk.Identity(12, np.dtype(dtype))
        diagonal = bk.Diagonal(random_array(rng, 12, dtype))
        b, wide = random_array(rng, 12, dtype), random_array(rng, (12, 3), dtype)
        sums = whole + 3 * one, one - 0.125 * whole, product - 0.25 * product
        for host in (
            -2 * product,
            product @ whole,
            *sums,
            diagonal,
            2 * diagonal @ diagonal - one,
            one,
        ):
            op = host.to("cuda")
            for x in (b, wide):
                close(op.solve(cupy.asarray(x)), host.solve(x))
            for found, known in zip(op.slogdet(), host.slogdet(), strict=True):
                np.testing.assert_allclose(found, known, rtol=1e-4)
        for host in (-0.25 * whole, *sums[:2], diagonal, -1j * diagonal):
            close(host.to("cuda").expm_apply(cupy.asarray(b), 0.25), host.expm_apply(b, 0.25))
        shifted = sums[0].to("cuda")
        assert shifted._by_structure("solve") is shifted._by_structure("slogdet")
        close(diagonal.to("cuda").inverse() @ cupy.asarray(b), diagonal.inverse() @ b)
        values, vectors = (diagonal.astype(dtype) @ diagonal.H).to("cuda").eigh()
        assert vectors.device == "cuda"
        close(values, abs(diagonal.diagonal()) ** 2)
        scaled = (np.inf * bk.KroneckerProduct(np.ones((2, 0), dtype))).to("cuda")
        assert np.isnan((scaled @ cupy.asarray(np.ones(0, dtype))).get()).all()
    with pytest.raises(np.linalg.LinAlgError, match=r"the entry \[1\] of its diagonal is 0"):
        bk.Diagonal([1.0, 0.0]).to("cuda").solve(cupy.asarray(np.ones(2)))
    with pytest.raises(TypeError, match="a csr_array and an operator on the device 'cuda' do not"):
        whole.to("cuda") + scipy.sparse.csr_array(np.eye(12))


def lanczos():
    """logdet_slq copies to the host once."""
    from batchkron.solvers import logdet_slq

    rng = np.random.default_rng(0)
    for dtype in ("float64", "complex128"):
        factors = [random_array(rng, (n, n), dtype) for n in (5, 6)]
        factors = [f @ f.conj().T + np.eye(len(f)) for f in factors]
        host = bk.KroneckerProduct(factors) + bk.Identity(30, np.dtype(dtype))
        expected, found = logdet_slq(host, steps=20), logdet_slq(host.to("cuda"), steps=20)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        eye = logdet_slq((3 * bk.Identity(50)).to("cuda"), steps=20)
        np.testing.assert_allclose(eye, (50 * np.log(3), 0), atol=1e-10)
