"""The kernels of batch lists at the sizes where their tiles, vectors and lanes end."""

import numpy as np
import pytest
from dense_oracle import poisoned, random_array

import batchkron as bk

SHAPES = [
    *[[(n, n)] for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 65)],
    *[[(n, n)] * 2 for n in (2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16)],
    *[[(n, n)] * 3 for n in (2, 3, 4, 5, 6, 8)],
    [(2, 2)] * 4,
    [(3, 3)] * 5,
    [(2, 2)] * 5,
    [(2, 2)] * 6,
    [(2, 2)] * 7,
    [(5, 3)],
    [(3, 5)],
    [(9, 4)],
    [(70, 2)],
    [(3, 5), (4, 2)],
    [(5, 3), (1, 6), (7, 2)],
    [(4, 4), (3, 3)],
    [(9, 4), (2, 11)],
]


def random_batch(rng, shapes, dtype, systems=()):
    """Outputs with 0 to 40 products, which fill SIMD vectors and leave every remainder."""
    counts = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 31, 33, 40]
    targets = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    pools = [random_array(rng, (*systems, 6, p, q), dtype) for p, q in shapes]
    for pool, (p, q) in zip(pools, shapes, strict=True):
        if p == q:
            pool[..., 1, :, :] = np.eye(p)
    ids = rng.integers(0, 6, (len(targets), len(shapes)))
    sources = rng.integers(0, 5, len(targets))
    return pools, ids, sources, targets, random_array(rng, len(targets), dtype)


def wide_result(batch, x, *, magnitude=False):
    """The reference's product in double precision, of the entries or of their absolute values."""
    pools, ids, sources, targets, weights = batch
    convert = np.abs if magnitude else np.asarray
    wide = [convert(pool.astype("complex128")) for pool in pools]
    with bk.backends.using("reference"):
        op = bk.BatchedKron(
            wide, ids, sources, targets, weights=convert(weights), num_inputs=5, num_outputs=16
        )
        return op.apply(convert(x))


@pytest.mark.parametrize("shapes", SHAPES, ids=lambda s: "x".join(f"{p}-{q}" for p, q in s))
def test_equals_the_reference(rng, dtype, shapes):
    batch = random_batch(rng, shapes, dtype)
    pools, ids, sources, targets, weights = batch
    op = bk.BatchedKron(pools, ids, sources, targets, weights=weights, num_inputs=5, num_outputs=16)
    x = random_array(rng, (5, op.shape[1] // 5), dtype)
    y, magnitude = wide_result(batch, x), wide_result(batch, x, magnitude=True)
    eps = np.finfo(dtype).eps
    bound = 2 * eps * (sum(q + 2 for _, q in shapes) + 42) * np.abs(magnitude)
    assert (np.abs(op.apply(x, out=poisoned(y.shape, dtype)) - y) <= bound).all()
    before = random_array(rng, y.shape, dtype)
    added = op.accumulate(x, before.copy())
    assert (np.abs(added - before - y) <= bound + 100 * eps * np.abs(before)).all()
    columns = op @ np.stack([x.ravel(), 2 * x.ravel()], axis=1)
    assert (np.abs(columns[:, 1].reshape(y.shape) - 2 * y) <= 2 * bound).all()


@pytest.mark.parametrize(
    "shapes",
    [
        *[[(3, 3)] * 3, [(4, 4)] * 2, [(2, 2)] * 2, [(2, 2)] * 4, [(3, 5), (4, 2)]],
        *[[(4, 4)], [(5, 5)], [(33, 9)]],
    ],
)
def test_same_bits_for_any_number_of_threads(rng, dtype, threads, shapes):
    pools, ids, sources, targets, weights = random_batch(rng, shapes, dtype, (2,))
    op = bk.BatchedKron(pools, ids, sources, targets, weights=weights, num_inputs=5)
    x = random_array(rng, (20, 2, 5, op.shape[-1] // 5), dtype)
    results = []
    for count in (1, 2, 5):
        threads(count)
        results.append(op.apply(x))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("n", [2, 3, 4, 5, 9])
def test_systems_and_new_values(rng, dtype, n):
    pools, ids, sources, targets, weights = random_batch(rng, [(n, n)] * 2, dtype, (3,))
    weights = weights * random_array(rng, (3, 1), dtype)
    op = bk.BatchedKron(pools, ids, sources, targets, weights=weights, skip_identities=False)
    x = random_array(rng, (3, 5, n * n), dtype)
    equal = np.repeat(weights[:, :1], len(ids), axis=1)
    for values, scales in ((pools, weights), ([pool[::-1] * 2 for pool in pools], equal)):
        op.update(values, scales)
        y = op.apply(x)
        for system in range(3):
            one = bk.BatchedKron(
                [pool[system] for pool in values], ids, sources, targets,
                weights=scales[system], skip_identities=False,
            )  # fmt: skip
            np.testing.assert_array_equal(y[system], one.apply(x[system]))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
def test_infinity_passes_an_identity_alone(n):
    """Beside products in other SIMD lanes, and beside a factor in the other mode."""
    pool = np.stack([np.eye(n), np.full((n, n), 2.0)])
    ids = np.concatenate([np.tile([[0, 0]], (5, 1)), np.tile([[0, 1]], (21, 1)), [[1, 1]] * 3])
    sources = np.concatenate([np.arange(26) % 7, [0, 1, 2]])
    op = bk.BatchedKron(pool, ids, sources, np.arange(len(ids)) // 26, num_inputs=7)
    x = np.ones((7, n, n))
    x[6, 1, 0] = np.inf
    y = op.apply(x.reshape(7, n * n)).reshape(2, n, n)
    # a whole row through the second mode's factor, nothing elsewhere, no NaN
    np.testing.assert_array_equal(np.isinf(y[0]), np.arange(n)[:, None] == 1 + np.zeros(n))
    assert not np.isnan(y).any()
    np.testing.assert_array_equal(y[1], 12 * n * n)
