"""Kronecker sums with a batch_shape: each system gives what it gives alone."""

import numpy as np
import pytest
from dense_oracle import poisoned, random_array

import batchkron as bk

CASES = [  # leading axes of the factors, their sizes
    ([(3,), ()], [2, 3]),
    ([(2, 1), (4,), ()], [3, 1, 2]),
    ([(1,), (1,)], [4, 4]),
    ([(5,)], [7]),
    ([(0,), ()], [2, 2]),
    ([(2,)] * 3, [8, 8, 8]),
    ([(2,)] * 13, [2, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 2]),
]


def factors_of(rng, case, dtype, hermitian=False):
    factors = [random_array(rng, (*lead, n, n), dtype) for lead, n in zip(*case, strict=True)]
    return [f + f.conj().swapaxes(-1, -2) for f in factors] if hermitian else factors


def systems_of(factors):
    """The index of each system and its operator alone."""
    shape = np.broadcast_shapes(*[f.shape[:-2] for f in factors])
    spread = [np.broadcast_to(f, (*shape, *f.shape[-2:])) for f in factors]
    for index in np.ndindex(shape):
        yield index, bk.KroneckerSum([f[index] for f in spread])


def close(found, expected, scale=1.0):
    eps = np.finfo(np.asarray(found).dtype).eps
    atol = 300 * eps * scale * max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products(rng, backend, dtype, case):
    factors = factors_of(rng, case, dtype)
    op = bk.KroneckerSum(factors)
    size = int(np.prod(case[1]))
    assert op.shape == (size, size)
    assert op.batch_shape == np.broadcast_shapes(*case[0])
    several = (2, *op.batch_shape, size)
    for given in (dtype, np.result_type(dtype, np.complex64), np.dtype(np.float64)):
        x = random_array(rng, several, given)
        kind = np.result_type(given, dtype)
        for A, change in (
            (op, lambda d: d),
            (op.T, lambda d: d.T),
            (op.H, lambda d: d.conj().T),
        ):
            out = poisoned(several, kind)
            assert A.apply(x, out) is out
            assert A.diagonal().shape == (*op.batch_shape, size)
            for index, alone in systems_of(factors):
                dense = change(alone.astype(kind).to_dense())
                for k in range(2):
                    close(out[(k, *index)], dense @ x[(k, *index)], size)
                close(A.diagonal()[index], dense.diagonal())
    x = random_array(rng, several, dtype)
    y = random_array(rng, several, dtype)
    total = y - 2.5 * op.apply(x)
    op.accumulate(x, y, alpha=-2.5)
    close(y, total, size)


def test_updates_reach_relatives(rng, backend):
    case = ([(3,), (), (3,)], [2, 3, 2])
    op = bk.KroneckerSum(factors_of(rng, case, np.float64))
    relatives = [op.T, op.H, op.astype(np.complex128)]
    x = rng.standard_normal((3, 12))
    for relative in relatives:
        relative.apply(x)
    new = factors_of(rng, case, np.float64)
    new[1][...] = np.eye(3)  # becomes the identity, and with the next values ceases to be
    for values in (new, factors_of(rng, case, np.float64)):
        op.update(values)
        fresh = bk.KroneckerSum(values)
        close(op.apply(x), fresh.apply(x))
        close(relatives[0].apply(x), fresh.T.apply(x))
        close(relatives[1].apply(x), fresh.H.apply(x))
        close(relatives[2].apply(x), fresh.apply(x))
    with pytest.raises(ValueError, match=r"factors\[1\] has shape \(3, 3, 3\)"):
        op.update([new[0], np.stack([new[1]] * 3), new[2]])


def test_algebra_and_pickles(rng):
    import pickle

    factors = factors_of(rng, ([(3,), ()], [2, 2]), np.float64)
    op, x = bk.KroneckerSum(factors), rng.standard_normal((3, 4))
    close((2 * op + op.T).apply(x), 2 * op.apply(x) + op.T.apply(x))
    close(pickle.loads(pickle.dumps(op)).apply(x), op.apply(x))
    assert "for (3,) systems" in op.describe()
    assert op.trace().shape == (3,)
    close(op.trace(), [alone.trace() for _, alone in systems_of(factors)])


@pytest.mark.parametrize("hermitian", [True, False])
@pytest.mark.parametrize("case", CASES[:6], ids=str)
def test_factorisations(rng, dtype, case, hermitian):
    factors = factors_of(rng, case, dtype, hermitian)
    for k, factor in enumerate(factors):  # far from singular
        n = factor.shape[-1]
        factor += (4 + 4 * hermitian * k + 2 * n) * np.eye(n, dtype=dtype)
    op = bk.KroneckerSum(factors)
    b = random_array(rng, (2, *op.batch_shape, op.shape[0]), dtype)
    scale = 100.0
    close(op.apply(op.solve(b)), b, scale)
    solver = op.factorise()
    assert solver.is_hermitian or not hermitian or dtype.kind == "c"
    found = solver.solve_shifted(b, [0.5, 2.0])
    assert found.shape == (2, *b.shape)
    for x, shift in zip(found, [0.5, 2.0], strict=True):
        close(op.apply(x) + dtype.type(shift) * x, b, scale)
    assert solver.solve_shifted(b, []).shape == (0, *b.shape)
    small = bk.KroneckerSum([0.1 * f for f in factors])
    logdet, moved = op.logdet(), small.expm_apply(b, 0.3)
    values, vectors = op.eig()
    close(op.apply(vectors.apply(b.astype(values.dtype))), vectors.apply(values * b), 1e3 * scale)
    for index, alone in systems_of(factors):
        close(logdet[index], alone.logdet(), scale)
        one = bk.KroneckerSum([0.1 * f for f in alone.factors])
        close(moved[(0, *index)], one.expm_apply(b[(0, *index)], 0.3), scale)
    if hermitian:
        values, vectors = op.eigh()
        close(vectors.apply(values * vectors.H.apply(b)), op.apply(b), scale)


def test_what_one_operator_cannot_do_is_refused(rng):
    op = bk.KroneckerSum([np.ones((3, 2, 2)), np.eye(2)])
    for call in (
        lambda: op @ np.ones(4),
        lambda: op.to_dense(),
        lambda: op.phi_apply([np.ones(4)]),
        lambda: op.kronecker_terms(),
    ):
        with pytest.raises(ValueError, match=r"batch_shape \(3,\)"):
            call()
    with pytest.raises(ValueError, match=r"expected the axes of batch_shape \(3,\)"):
        op.apply(np.ones((2, 4)))
    with pytest.raises(ValueError, match="do not broadcast"):
        bk.KroneckerSum([np.ones((3, 2, 2)), np.ones((2, 2, 2))])
    with pytest.raises(ValueError, match=r"factors\[1\] has shape \(2, 3\); expected a square"):
        bk.KroneckerSum([np.ones((3, 2, 2)), np.ones((2, 3))])
    with pytest.raises(ValueError, match=r"b has shape \(2, 4\); expected \(..., 3, 4\)"):
        op.solve(np.ones((2, 4)))
    singular = np.stack([np.eye(2), -np.eye(2), 2 * np.eye(2)])
    with pytest.raises(np.linalg.LinAlgError, match=r"system \(1,\) of the Kronecker sums is"):
        bk.KroneckerSum([singular, np.eye(2)]).solve(np.ones((3, 4)))
    assert bk.KroneckerSum([singular, np.eye(2)]).logdet()[1] == -np.inf
