"""Solves, determinants, eigenvalues and exponentials of multiples, sums and compositions."""

import numpy as np
import pytest
import scipy.linalg
from dense_oracle import dense_kron, random_array
from hermitian_sums import hermitian

import batchkron as bk

SIZES = (3, 4)
N = 12


def regular(rng, n, dtype):
    """A matrix that is far from symmetric and from singular."""
    return (random_array(rng, (n, n), dtype) / 2 + 3 * np.eye(n)).astype(dtype)


def cases(rng, dtype):
    """Operators that are solved by structure, with their matrices in double precision."""
    A, B = (regular(rng, n, dtype) for n in SIZES)
    wide = rng.standard_normal((3, 5)), rng.standard_normal((4, 2))
    d = 2 + rng.random(N).astype(dtype)
    P, total, one = bk.KroneckerProduct(A, B), bk.KroneckerSum(A, B), bk.Identity(N, dtype)
    diag = bk.Diagonal(d)
    A, B, d = (x.astype("complex128" if dtype.kind == "c" else "float64") for x in (A, B, d))
    p, s, eye = dense_kron(A, B), dense_kron(A, np.eye(4)) + dense_kron(np.eye(3), B), np.eye(N)
    left, right = (bk.KroneckerProduct(m.astype(dtype)) for m in (wide[0], wide[0].T.copy()))
    low = bk.KroneckerProduct(wide[0].astype(dtype), wide[1].astype(dtype))
    gram = dense_kron(wide[0] @ wide[0].T, wide[1] @ wide[1].T)
    yield "negative", -P, -p
    yield "divided", P / np.float32(4), p / 4
    yield "divided by an array of shape ()", P / np.array(4), p / 4
    yield "transposed multiple", (2 * P).T, 2 * p.T
    yield "adjoint", P.H, p.conj().T
    yield "multiple of a multiple", -2 * (0.5 * total), -s
    yield "composition", P @ total, p @ s
    yield "three", total @ (2 * P) @ total, 2 * s @ p @ s
    yield "adjoint of a composition", (P @ total).H, (p @ s).conj().T
    yield "multiple of a composition", 3 * (P @ total), 3 * p @ s
    yield "with a diagonal", diag @ P @ one, d[:, None] * p
    yield "power", total**3, s @ s @ s
    yield "power 0", total**0, eye
    yield "factors that are not square", left @ right, wide[0] @ wide[0].T
    yield "low rank and a shift", low @ low.T + 2 * one, gram + 2 * eye
    yield "I - c total", one - 0.1 * total, eye - 0.1 * s
    yield "total + c I", total + 3 * one, s + 3 * eye
    yield "total + c I as a diagonal", total + bk.Diagonal(np.full(N, 3, dtype)), s + 3 * eye
    yield "adjoint of a sum", (total + 3 * one).H, s.conj().T + 3 * eye
    yield "sums", sum([total, total.T, one]), s + s.T + eye
    yield "sum of products", sum([P, P]), 2 * p
    yield "difference", P - P / 4, 0.75 * p
    yield (
        "one factor in common",
        P + bk.KroneckerProduct(P.factors[0], P.factors[1].T),
        (dense_kron(A, B + B.T)),
    )
    yield "diagonal", diag, np.diag(d)
    yield "diagonals", 2 * diag @ diag - one, np.diag(2 * d * d - 1)
    yield "identity", one, eye
    yield "multiple of the identity", -3 * one, -3 * eye
    if dtype.kind == "c":
        yield "complex multiple", (2 - 1j) * P, (2 - 1j) * p
        yield "imaginary", -1j * total, -1j * s
        yield "complex shift", 1j * total + (1 + 2j) * one, 1j * s + (1 + 2j) * eye


def bound(matrix, dtype):
    return 200 * len(matrix) * np.finfo(dtype).eps * np.linalg.cond(matrix)


def test_solves_and_determinants(rng, dtype):
    for name, op, matrix in cases(rng, dtype):
        size = len(matrix)
        assert op.dtype == dtype, name
        allowed = bound(matrix, dtype)
        assert allowed < 0.1, name
        for shape in ((size,), (size, 2)):
            b = random_array(rng, shape, dtype)
            x, exact = op.solve(b), np.linalg.solve(matrix, b)
            assert (x.dtype, x.shape) == (dtype, b.shape), name
            assert np.linalg.norm(x - exact) <= allowed * np.linalg.norm(exact), name
        sign, logarithm = np.linalg.slogdet(matrix)
        found_sign, found = op.slogdet()
        assert abs(found_sign - sign) <= allowed, name
        assert abs(found - logarithm) <= allowed * max(1, abs(logarithm)), name
        if sign == -1:
            assert np.isnan(op.logdet()), name
        else:
            assert abs(np.exp(op.logdet() - logarithm) - sign) <= size * allowed, name
        np.testing.assert_allclose(op.trace(), matrix.trace(), rtol=allowed, err_msg=name)
        np.testing.assert_allclose(op.diagonal(), matrix.diagonal(), rtol=allowed, err_msg=name)


def test_vectors_of_other_kinds(rng):
    for _, op, matrix in cases(rng, np.dtype("float32")):
        ints, vector = np.arange(len(matrix)), rng.standard_normal(len(matrix))
        for b in (ints, list(vector), 1j * vector, vector.astype("f4"), vector.astype(">f8")):
            x = op.solve(b)
            assert x.dtype == np.result_type("f4", np.asarray(b, "f8" if b is ints else None))
            exact = np.linalg.solve(matrix, b)
            assert np.linalg.norm(x - exact) <= bound(matrix, "f4") * np.linalg.norm(exact)


@pytest.mark.parametrize("precise", ["float64", "complex128"])
def test_exponentials_and_phi_functions(rng, precise):
    x = rng.standard_normal(N)
    for name, op, matrix in cases(rng, np.dtype(precise)):
        if len(matrix) != N or ("total" not in name and name != "sums" and name != "imaginary"):
            continue
        for t in (0.3, -0.2j):
            exact = scipy.linalg.expm(t * matrix) @ x
            np.testing.assert_allclose(op.expm_apply(x, t), exact, rtol=1e-11, atol=1e-11)
        augmented = np.block([[matrix, x[:, None]], [np.zeros((1, N + 1))]])
        exact = scipy.linalg.expm(0.2 * augmented)[:N, N]
        np.testing.assert_allclose(op.phi_apply([None, x], 0.2), exact, rtol=1e-10, atol=1e-11)


def test_rotation_by_an_imaginary_multiple(rng):
    H = bk.KroneckerSum([hermitian(rng, n, "float64") for n in SIZES])
    x = rng.standard_normal(N)
    rotated = (-1j * H).expm_apply(x, 0.7)
    exact = scipy.linalg.expm(-0.7j * H.to_dense()) @ x
    np.testing.assert_allclose(rotated, exact, rtol=0, atol=1e-12)
    assert abs(np.linalg.norm(rotated) - np.linalg.norm(x)) < 1e-12
    assert (1j * H).expm_apply(x, 1j).dtype == np.complex128
    d = bk.Diagonal(x)
    np.testing.assert_allclose((-1j * d).expm_apply(x, 2.0), np.exp(-2j * x) * x, rtol=1e-14)


def test_eigenpairs_inverses_and_singular_values(rng):
    H = [hermitian(rng, n, "float64") + 9 * np.eye(n) for n in SIZES]
    G = [hermitian(rng, n, "float64") for n in SIZES]
    P, total = bk.KroneckerProduct(H), bk.KroneckerSum(H)
    p, s = dense_kron(*H), total.to_dense()
    g = bk.KroneckerSum(G).to_dense()
    d = rng.standard_normal(N)
    for op, matrix in [
        (-2 * P, -2 * p),
        (P / 3 - P, -2 / 3 * p),
        (2 * total, 2 * s),
        (total + bk.KroneckerSum(G) - 2 * bk.Identity(N), s + g - 2 * np.eye(N)),
        (bk.KroneckerProduct(p) @ bk.KroneckerProduct(p), p @ p),
        (3 * bk.Diagonal(d), np.diag(3 * d)),
        (bk.Identity(N), np.eye(N)),
    ]:
        values, vectors = op.eigh()
        V = vectors.to_dense()
        np.testing.assert_allclose(V @ V.T, np.eye(N), rtol=0, atol=1e-13)
        scale = 1e-13 * np.abs(matrix).max() * N
        np.testing.assert_allclose(V * values @ V.T, matrix, rtol=0, atol=scale)
        if not op._is_diagonal:
            values, vectors = bk.eigh(op)
            V = vectors.to_dense()
            np.testing.assert_allclose(V * values @ V.T, matrix, rtol=0, atol=scale)
    for op, matrix in [(-2 * P, -2 * p), (1j * P, 1j * p), (P + P, 2 * p)]:
        inverse = np.linalg.inv(matrix)
        np.testing.assert_allclose(op.inverse().to_dense(), inverse, rtol=1e-10, atol=1e-15)
        left, values, right = op.svd()
        assert (values >= 0).all()
        product = (left.to_dense() * values) @ right.to_dense()
        np.testing.assert_allclose(product, matrix, rtol=0, atol=1e-11)
        values, vectors = op.eig()
        V = vectors.to_dense()
        np.testing.assert_allclose(matrix @ V, V * values, rtol=0, atol=1e-11)
    left, values, right = (0 * P).svd()
    np.testing.assert_allclose((left.H @ left).to_dense(), np.eye(N), rtol=0, atol=1e-13)
    assert not values.any()
    inverse = bk.Diagonal(d).inverse()
    np.testing.assert_allclose(inverse @ d, np.ones(N), rtol=1e-15)
    assert bk.Identity(3).inverse() @ [1, 2, 3] == pytest.approx([1, 2, 3])


def test_scales_beyond_the_range_of_floats(rng):
    """Multiples whose factor and operator cancel lose nothing."""
    A, B = (regular(rng, n, np.dtype("float64")) for n in SIZES)
    b, exact = rng.standard_normal(N), None
    sign, logarithm = np.linalg.slogdet(dense_kron(A, B))
    exact = np.linalg.solve(dense_kron(A, B), b)
    for scale in (1e300, 1e-300, -1e150):
        op = 1 / scale * bk.KroneckerProduct(scale * A, B)
        np.testing.assert_allclose(op.solve(b), exact, rtol=1e-11)
        found = op.slogdet()
        assert found[0] == sign
        assert abs(found[1] - logarithm) < 1e-9
    x = bk.KroneckerSum(A, B).expm_apply(b, 0.1)
    wide = 1e300 * bk.KroneckerSum(1e-300 * A, 1e-300 * B)
    np.testing.assert_allclose(wide.expm_apply(b, 0.1), x, rtol=1e-11)


def test_the_sign_of_a_determinant_is_exact():
    for size in (1, 2, 7, 2001):
        assert (-3 * bk.Identity(size)).slogdet()[0] == (-1) ** size
        assert (-2j * bk.Identity(size)).slogdet()[0] == (1, -1j, -1, 1j)[size % 4]
    sign, logarithm = ((3 + 4j) * bk.Identity(101)).slogdet()
    exact = np.prod(np.full(101, 0.6 + 0.8j))
    assert abs(sign - exact) < 1e-12
    assert logarithm == pytest.approx(101 * np.log(5), rel=1e-15)


def test_many_systems(rng):
    A, B = rng.standard_normal((2, 3, 3)) + 4 * np.eye(3), regular(rng, 4, np.dtype("float64"))
    total, diag = bk.KroneckerSum(A, B), bk.Diagonal(1 + rng.random((2, N)))
    b = rng.standard_normal((5, 2, N))
    for op in (
        total,
        -2 * total,
        1j * total,
        total @ total,
        diag,
        2 * diag,
        diag @ diag + bk.Identity(N),
        diag @ total,
    ):
        x = op.solve(b)
        assert x.shape == b.shape
        np.testing.assert_allclose(op.apply(x), b, rtol=0, atol=1e-11)
        signs, logarithms = op.slogdet()
        assert np.shape(signs) == np.shape(logarithms) == (2,)
        np.testing.assert_allclose(np.exp(op.logdet() - logarithms), signs, rtol=1e-12)
    np.testing.assert_allclose((2 * diag).logdet(), np.log(2 * diag.diagonal()).sum(-1), rtol=1e-13)
    with pytest.raises(ValueError, match=r"b has shape \(12,\); expected \(\.\.\., 2, 12\)"):
        diag.solve(b[0, 0])
    with pytest.raises(ValueError, match=r"solve is not defined; .* factorise\(\).solve"):
        (total + bk.Identity(N)).solve(b)


def test_singular_multiples(rng):
    P = bk.KroneckerProduct(regular(rng, 3, np.dtype("float64")))
    narrow = P.astype("float64") + P  # of one kind, so that it is one product again
    for op in (0 * P, 0 * narrow, 0 * bk.Identity(3), bk.Diagonal([1.0, 0.0, 2.0]), 0.0 * (P @ P)):
        with pytest.raises(np.linalg.LinAlgError, match="is singular"):
            op.solve(np.ones(3))
        assert op.slogdet() == (0, -np.inf)
        assert op.logdet() == -np.inf
    for scale in (np.inf, np.nan):
        with pytest.raises(ValueError, match=f"factor is {scale}; expected a finite float64"):
            (scale * P).solve(np.ones(3))
    tiny = 1e-60 * bk.Identity(3, "float32")
    with pytest.raises(np.linalg.LinAlgError, match="which is 0 as float32"):
        tiny.solve(np.ones(3, "float32"))
    with pytest.raises(np.linalg.LinAlgError, match=r"the entry \[1, 2\] of its diagonal is 0"):
        bk.Diagonal([[1.0, 1, 1], [1, 1, 0]]).solve(np.ones((2, 3)))
    assert (0 * bk.Identity(0)).slogdet() == (1, 0)


def test_a_factorisation_takes_shifts(rng):
    total = bk.KroneckerSum([regular(rng, n, np.dtype("float64")) for n in SIZES])
    b = rng.standard_normal(N)
    for op in (2 * total, total + total, 2 * total + 0 * bk.Identity(N)):
        np.testing.assert_allclose(
            op.factorise().solve(b, 1.5),
            np.linalg.solve(2 * total.to_dense() + 1.5 * np.eye(N), b),
            rtol=1e-11,
        )
    d = bk.Diagonal(b).factorise()
    np.testing.assert_allclose(d.solve(b), np.ones(N), rtol=1e-15)


def test_errors_name_another_way(rng):
    A = rng.standard_normal((3, 3))
    P, total, diag = bk.KroneckerProduct(A, A), bk.KroneckerSum(A, A), bk.Diagonal(np.arange(9.0))
    listed = bk.BatchedKron(A[None], [[0, 0]], [0], [0])
    apart = bk.KroneckerProduct(A, np.eye(3)) + bk.KroneckerProduct(np.eye(3), A)
    b, several = np.ones(9), bk.KroneckerProduct(np.eye(9)) + P
    none = "is not found by the operator's structure"
    for error, text, call in [
        (TypeError, f"{none}: the sum has a Diagonal.*gmres.*cg", lambda: (P + diag).solve(b)),
        (TypeError, f"{none}: the sum has a Diagonal.*logdet_slq", lambda: (P + diag).logdet()),
        (TypeError, "has a Diagonal.*expm_multiply", lambda: (total - diag).expm_apply(b)),
        (TypeError, f"{none}: the sum has a BatchedKron", lambda: (P - 2 * listed).factorise()),
        (TypeError, f"{none}: BatchedKron is not one.*gmres", lambda: listed.solve(b)),
        (TypeError, f"{none}: BatchedKron is not one", lambda: (2 * listed).solve(b)),
        (TypeError, f"{none}: BatchedKron is not one", lambda: (P @ listed).slogdet()),
        (TypeError, f"{none}: the operators that are composed", lambda: (P @ total).expm_apply(b)),
        (TypeError, f"{none}: KroneckerProduct has none", lambda: (2 * P).phi_apply([b])),
        (TypeError, f"{none}: KroneckerSum has none.*svds", lambda: (2 * total).svd()),
        (TypeError, r"of the sizes \(9,\) and \(3, 3\)", lambda: several.solve(b)),
        (TypeError, r"without a factorisation: call solve\(b\), or inv", lambda: P.factorise()),
        (TypeError, r"A.eigh\(\) returns them", lambda: bk.eigh(diag)),
        (ValueError, "mode 0 are not all Hermitian.*gmres", lambda: (P + bk.Identity(9)).solve(b)),
        (ValueError, "Hermitian.*logdet_slq", lambda: (P + bk.Identity(9)).logdet()),
        (ValueError, "those of a Kronecker sum, and batchkron.Kron", lambda: apart.solve(b)),
        (ValueError, "complex; expected a Hermitian", lambda: (1j * P).eigh()),
        (ValueError, "complex; expected a Hermitian", lambda: bk.Diagonal([1j, 1]).eigh()),
        (ValueError, r"b has shape \(5,\); expected \(9,\)", lambda: (2 * P).solve(np.ones(5))),
        (ValueError, r"b has shape \(5,\); expected \(9,\)", lambda: diag.solve(np.ones(5))),
        (TypeError, "t has shape", lambda: (2 * total).expm_apply(2.0, b)),
    ]:  # fmt: skip
        with pytest.raises(error, match=text):
            call()
    wide = bk.KroneckerProduct(np.ones((2, 3)), np.ones((4, 2)))
    with pytest.raises(ValueError, match="solve needs a square operator"):
        (wide + wide).solve(np.ones(6))
    with pytest.raises(ValueError, match="solve needs a square operator"):
        (total @ bk.KroneckerProduct(np.ones((9, 2)))).solve(b)


def test_updates_reach_them(rng):
    total = bk.KroneckerSum([regular(rng, n, np.dtype("float64")) for n in SIZES])
    op, b = 2 * total + bk.Identity(N), rng.standard_normal(N)
    op.solve(b)
    total.update([regular(rng, n, np.dtype("float64")) for n in SIZES])
    np.testing.assert_allclose(op @ op.solve(b), b, rtol=0, atol=1e-12)


def test_inverses_of_sums_take_tensors_of_the_grid(rng):
    factors = np.diag([1.0, 2.0]), np.diag([1.0, 3.0, 5.0])
    total = bk.KroneckerSum(*factors)
    X = rng.standard_normal((2, 3))
    for A in (total, bk.Identity(6) + 0.1 * total, 2.0 * total, bk.KroneckerProduct(*factors)):
        found = A.inverse() @ X
        assert found.shape == (2, 3)
        np.testing.assert_allclose(found.ravel(), A.solve(X.ravel()), rtol=1e-13)
        np.testing.assert_allclose(A @ found, X, rtol=1e-12)
