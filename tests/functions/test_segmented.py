"""One mode's multiply summed over the edges of a graph."""

import copy
import pickle

import numpy as np
import pytest
from dense_oracle import poisoned, random_array

import batchkron as bk

# (before, Q, P, behind): sizes at which register tiles end in every way, packed or not
SIZES = [
    *[(1, n, n, r) for n in (2, 3, 4) for r in (1, 2, 3, 4, 7, 8, 9, 16, 17, 31, 33, 64, 65, 130)],
    *[(before, n, n, 1) for n in (2, 3, 4) for before in (2, 3, 5, 8, 9, 16, 17, 27, 33)],
    *[(before, n, n, n) for n in (2, 3, 4) for before in (3, 9, 16, 40)],
    *[(before, n, n, r) for n, r in ((2, 1), (3, 1), (4, 1), (2, 4)) for before in (50, 100)],
    *[(3, n, n, r) for n in (3, 4) for r in (16, 27, 32, 64, 67)],
    *[(2, q, p, r) for q, p in ((1, 1), (5, 5), (2, 7), (7, 3), (6, 9)) for r in (1, 5, 8, 19, 64)],
]


def random_edges(rng, count, nodes, inputs):
    """Edges of ``nodes`` nodes, the first of which has none."""
    degrees = rng.integers(0, 6, nodes)
    degrees[0] = 0
    starts = np.concatenate([[0], np.cumsum(degrees)])
    return starts, rng.integers(0, count, starts[-1]), rng.integers(0, inputs, starts[-1])


def build(rng, sizes, dtype, count=4, nodes=5, inputs=6):
    before, columns, rows, behind = sizes
    matrices = random_array(rng, (count, rows, columns), dtype)
    edges = random_edges(rng, count, nodes, inputs)
    op = bk.SegmentedModeMultiply(matrices, *edges, before=before, behind=behind, num_inputs=inputs)
    return op, matrices, edges, random_array(rng, op.input_shape, dtype)


def expected_sum(matrices, edges, x, sizes):
    """The sum in twice the precision, and the sum of absolute values."""
    before, columns, rows, behind = sizes
    starts, ids, children = edges
    blocks = x.astype("complex128").reshape(-1, before, columns, behind)
    y = np.zeros((len(starts) - 1, before, rows, behind), "complex128")
    magnitude = np.zeros(y.shape)
    for node in range(len(y)):
        for e in range(starts[node], starts[node + 1]):
            matrix, block = matrices[ids[e]].astype("complex128"), blocks[children[e]]
            y[node] += np.einsum("pq,lqr->lpr", matrix, block)
            magnitude[node] += np.einsum("pq,lqr->lpr", np.abs(matrix), np.abs(block))
    return y.reshape(len(y), -1), magnitude.reshape(len(y), -1)


def test_equals_einsum_at_every_tile_edge(rng, dtype):
    eps = np.finfo(dtype).eps
    for sizes in SIZES:
        op, matrices, edges, x = build(rng, sizes, dtype)
        y, magnitude = expected_sum(matrices, edges, x, sizes)
        out = poisoned(op.output_shape, dtype)
        assert op.apply(x, out) is out
        bound = 2 * eps * (6 * sizes[1] + 4) * magnitude
        assert (np.abs(out - y) <= bound).all(), sizes
        before = random_array(rng, y.shape, dtype)
        z = before.copy()
        assert op.accumulate(x, z, alpha=-0.5) is z
        bound = bound + 4 * eps * np.abs(before)
        assert (np.abs(z - before + 0.5 * y) <= bound).all(), sizes


def test_backends_agree(rng, backend, dtype):
    op, matrices, edges, x = build(rng, (3, 4, 2, 5), dtype)
    y, _ = expected_sum(matrices, edges, x, (3, 4, 2, 5))
    np.testing.assert_allclose(op.apply(x), y, rtol=0, atol=500 * np.finfo(dtype).eps)
    op.update(2 * matrices)
    np.testing.assert_allclose(op.apply(x), 2 * y, rtol=0, atol=1000 * np.finfo(dtype).eps)
    wide = poisoned((5, 60), dtype)
    np.testing.assert_array_equal(op.apply(x, wide[:, ::2]), op.apply(x))
    strided = np.zeros((5, 60), dtype)[:, ::2]
    np.testing.assert_array_equal(op.accumulate(x, strided), op.apply(x))
    assert op.dtype == dtype


@pytest.mark.parametrize(
    "sizes", [(1, 3, 3, 81), (9, 3, 3, 1), (9, 3, 3, 3), (64, 4, 4, 1), (16, 5, 5, 8)]
)
def test_same_bits_for_any_number_of_threads(rng, dtype, threads, sizes):
    op, _, _, x = build(rng, sizes, dtype, nodes=900, inputs=50)
    results = []
    for count in (1, 2, 7):
        threads(count)
        results.append(op.apply(x))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_empty(rng, backend):
    none = bk.SegmentedModeMultiply(np.ones((1, 2, 2)), [0, 0, 0], [], [], before=2, behind=3)
    assert none.input_shape == (0, 12)
    np.testing.assert_array_equal(none.apply(np.ones((0, 12))), np.zeros((2, 12)))
    flat = bk.SegmentedModeMultiply(np.ones((1, 2, 0)), [0, 1], [0], [0], before=2, behind=1)
    np.testing.assert_array_equal(flat.apply(np.ones((1, 0))), np.zeros((1, 4)))


def test_copies_and_pickles(rng):
    op = bk.SegmentedModeMultiply(
        rng.standard_normal((2, 3, 2)), [0, 1, 3], [0, 1, 1], [0, 1, 0], before=2, behind=2
    )
    x = rng.standard_normal(op.input_shape)
    op.update(rng.standard_normal((2, 3, 2)))
    expected = op.apply(x)
    copies = copy.deepcopy(op), pickle.loads(pickle.dumps(op))
    op.update(np.zeros((2, 3, 2)))
    for one in copies:
        assert one.device == "cpu"
        np.testing.assert_array_equal(one.apply(x), expected)


GOOD = {
    "matrices": np.ones((2, 3, 4)),
    "starts": [0, 1, 2],
    "factor_ids": [0, 1],
    "children": [0, 1],
    "before": 2,
    "behind": 2,
}
ERRORS = [
    ({"matrices": np.ones((3, 4))}, ValueError, r"matrices has shape \(3, 4\); expected \(count"),
    ({"matrices": np.ones((1, 1, 1), object)}, TypeError, "expected arrays of float32"),
    ({"starts": [0, 1]}, ValueError, "starts must begin with 0 and end with .* 2"),
    ({"starts": []}, ValueError, "starts must begin with 0"),
    ({"starts": [0, 3, 2]}, ValueError, r"starts\[2\] is 2, less than starts\[1\], 3"),
    ({"factor_ids": [0, 2]}, IndexError, r"factor_ids\[1\] is 2; expected 0 to 1"),
    ({"factor_ids": [0.0, 1.0]}, TypeError, "factor_ids has dtype float64"),
    ({"children": [0, -1]}, IndexError, r"children\[1\] is -1"),
    ({"children": [0]}, ValueError, "children has 1 entries; expected one per factor id, 2"),
    ({"children": [0, 4], "num_inputs": 4}, IndexError, r"children\[1\] is 4; expected 0 to 3"),
    ({"before": -1}, ValueError, "before is -1; expected 0 to"),
    ({"behind": 2.0}, TypeError, "behind is 2.0; expected an integer"),
    ({"num_inputs": True}, TypeError, "num_inputs is True"),
]


@pytest.mark.parametrize(("change", "error", "message"), ERRORS)
def test_errors_when_built(change, error, message):
    with pytest.raises(error, match=message):
        bk.SegmentedModeMultiply(**{**GOOD, **change})


def test_errors_when_applied():
    op = bk.SegmentedModeMultiply(**GOOD)
    x = np.ones(op.input_shape)
    for call, error, message in [
        (lambda: op.apply(x[:, 1:]), ValueError, r"x has shape \(2, 15\); expected \(2, 16\)"),
        (lambda: op.apply(x + 1j), TypeError, "x has dtype complex128; the matrices have float64"),
        (lambda: op.apply(x, np.ones(3)), ValueError, r"out has shape \(3,\)"),
        (lambda: op.apply(x, alpha=1j), TypeError, "expected a real number for float64"),
        (lambda: op.accumulate(x, np.ones((2, 12), "f4")), TypeError, "y has dtype float32"),
        (lambda: op.update(np.ones((1, 3, 4))), ValueError, r"matrices has shape \(1, 3, 4\)"),
    ]:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("size", [3, 5])
def test_accumulate_where_a_node_has_no_edges(size):
    """Nothing is added there, unless alpha is infinite: inf · 0 is NaN, as in NumPy."""
    op = bk.SegmentedModeMultiply(np.ones((1, size, size)), [0, 0, 1], [0], [0], before=1, behind=1)
    y = np.ones((2, size))
    op.accumulate(np.ones((1, size)), y, alpha=2.0)
    assert (y[0] == 1).all()
    assert (y[1] == 1 + 2 * size).all()
    op.accumulate(np.ones((1, size)), y, alpha=np.inf)
    assert np.isnan(y[0]).all()
    assert np.isinf(y[1]).all()
