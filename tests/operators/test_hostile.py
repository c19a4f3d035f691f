"""Inputs that have broken things before, or would break them quietly."""

import copy
import pickle
import threading

import numpy as np
import pytest

import batchkron as bk


def test_sizes_that_overflow_memory_arithmetic():
    """Empty inputs with huge trailing axes: no work, no crash."""
    op = bk.BatchedKron(
        [np.ones((1, 1, 0)), np.ones((1, 4, 4)), np.ones((1, 0, 1))], [[0, 0, 0]], [0], [0]
    )
    assert (op @ np.empty((0, 2**59))).shape == (0, 2**59)
    factors = [np.ones((1, 1, 0)), np.ones((4, 4)), np.ones((0, 1))]
    assert bk.gekmm(factors, np.empty((1, 0, 2**59))).shape == (1, 0, 2**59)
    with pytest.raises(ValueError, match=r"num_outputs would be 4611686018427387905; expected at"):
        bk.BatchedKron(np.ones((1, 1, 1)), [[0]], [0], [2**62])


def test_2_to_the_31_input_blocks_are_refused():
    """Block indices have 32 bits. On both sides of the limit, no blocks are allocated."""
    pool = np.ones((1, 2, 2))
    assert bk.BatchedKron(pool, [[0]], [0], [0], num_inputs=2**31 - 1).shape == (2, 2**32 - 2)
    for inputs, count in (([0], 2**31), ([2**31], None), ([0], 2**40)):
        with pytest.raises(OverflowError, match=r"a batch list has at most 2\^31 - 1 input blocks"):
            bk.BatchedKron(pool, [[0]], inputs, [0], num_inputs=count)


@pytest.mark.parametrize("shape", [(2**16, 1), (1, 2**16)], ids=["tall", "wide"])
@pytest.mark.parametrize("modes", [4, 5])
def test_blocks_beyond_64_bits_are_refused(shape, modes):
    """2^64 elements, a number that wraps to 0 in 64 bits, from factors of half a MiB."""
    pool = np.ones((1, *shape))
    with pytest.raises(OverflowError, match="a Kronecker product does not fit in 64 bits"):
        bk.BatchedKron([pool] * modes, [[0] * modes], [0], [0])


def test_gemm_takes_c_in_any_layout(rng):
    a = rng.standard_normal((2, 3, 3))
    for c in (np.asfortranarray(a), a.transpose(0, 2, 1), a[::-1]):
        np.testing.assert_allclose(bk.batched_gemm(a, a, c, beta=2), a @ a + 2 * c, atol=1e-13)
    assert bk.batched_gemm(a.astype("f4"), a.astype("f4"), a).dtype == np.float32


def test_copies_have_values_of_their_own(rng):
    op = bk.KroneckerSparse(rng.standard_normal((2, 2, 2, 1)))
    for made in (2 * op, op + bk.Identity(4), op @ op, bk.KroneckerSparseChain([op, op])):
        expected = made.to_dense()
        twins = copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))
        op.update(rng.standard_normal((2, 2, 2, 1)))
        assert not np.array_equal(made.to_dense(), expected)
        for twin in twins:
            np.testing.assert_array_equal(twin.to_dense(), expected)


class OfTwoOptions(bk.KroneckerSparse):
    def __init__(self, values, *, layout="batch-first", precision=None):
        super().__init__(values, layout=layout, precision=precision)


def test_subclasses_without_tuning_are_copied(rng):
    op = OfTwoOptions(rng.standard_normal((2, 2, 2, 1)), layout="batch-last")
    for twin in (copy.copy(op), pickle.loads(pickle.dumps(op))):
        assert (type(twin), twin.layout) == (OfTwoOptions, "batch-last")
        np.testing.assert_array_equal(twin.to_dense(), op.to_dense())


@pytest.mark.parametrize("kind", [bk.KroneckerProduct, bk.KroneckerSum])
def test_update_from_an_operators_own_factors(rng, kind):
    op = kind(rng.standard_normal((2, 3, 3)))
    swapped = kind(op.factors[::-1]).to_dense()
    T = op.T
    op.update(op.factors[::-1])
    np.testing.assert_array_equal(op.to_dense(), swapped)
    np.testing.assert_array_equal(T.to_dense(), swapped.T)
    op.update([factor.T for factor in op.factors])
    np.testing.assert_array_equal(op.to_dense(), kind(op.factors).to_dense())
    np.testing.assert_array_equal(T.to_dense(), op.to_dense().T)
    with pytest.raises(ValueError, match="read-only"):
        op.factors[0][0, 0] = 7


def test_a_deep_copy_is_independent(rng):
    op = bk.KroneckerProduct(rng.standard_normal((2, 3, 3)))
    other = copy.deepcopy(op)
    before = op.to_dense()
    other.update(rng.standard_normal((2, 3, 3)))
    np.testing.assert_array_equal(op.to_dense(), before)
    assert not np.array_equal(other.to_dense(), before)


def test_misaligned_arrays(rng):
    """A field of a packed record is contiguous, but at odd addresses."""
    record = np.zeros(1, [("head", "i1"), ("x", "f8", 9), ("y", "f8", 9), ("A", "f8", (3, 3))])[0]
    record["x"][:] = rng.standard_normal(9)
    record["A"][:] = rng.standard_normal((3, 3))
    assert not record["x"].flags.aligned
    x, A = record["x"].copy(), record["A"].copy()
    expected = np.kron(A, A) @ x
    bk.gekmm([record["A"], record["A"]], record["x"], out=record["y"])
    np.testing.assert_allclose(record["y"], expected, rtol=1e-13)
    op = bk.KroneckerProduct([A, A])
    np.testing.assert_allclose(op @ record["x"], expected, rtol=1e-13)
    op.matvec(x, record["y"])
    np.testing.assert_allclose(record["y"], expected, rtol=1e-13)
    gemm = bk.batched_gemm(record["A"][None], record["A"][None], record["A"][None], beta=1)
    np.testing.assert_allclose(gemm[0], A @ A + A, rtol=1e-12)
    np.testing.assert_array_equal(bk.kron(record["A"], np.eye(2)), np.kron(A, np.eye(2)))


def test_outputs_that_overlap_inputs_which_are_copied(rng):
    A, B, w = rng.standard_normal((2, 2)), rng.standard_normal((3, 3)), rng.standard_normal((6, 6))
    kept = w.copy()
    with pytest.raises(ValueError, match="out overlaps an input"):
        bk.gekmm([A, B], w.T, out=w)
    wide = rng.standard_normal((4, 2)) + 1j
    with pytest.raises(ValueError, match="out overlaps an input"):
        bk.gekmm([wide[:2]], np.ones(2), conj=True, out=wide[0])
    np.testing.assert_array_equal(w, kept)


@pytest.mark.parametrize("kind", [bk.KroneckerProduct, bk.KroneckerSum])
def test_arrays_of_quick_calls(rng, kind):
    """Arrays that the compiled fast path takes, and those that it leaves to the general one."""
    op = kind([rng.standard_normal((n, n)) for n in (3, 1, 4)])
    dense = op.to_dense()
    for shape in ((12,), (1, 12), (5, 12), (2, 3, 12), (0, 12)):
        x = rng.standard_normal(shape)
        wide = np.zeros((*shape[:-1], 24))
        for given in (x, x.astype(np.float32), x[..., ::-1], x + 1j):
            kept = given.copy()
            for out in (np.full(shape, np.nan, np.result_type(given, dense)), None):
                result = op.apply(given, out)
                assert out is None or result is out
                np.testing.assert_allclose(result, given @ dense.T, atol=1e-12)
            np.testing.assert_array_equal(given, kept)
        np.testing.assert_allclose(op.apply(x, wide[..., ::2]), x @ dense.T, atol=1e-12)
        assert not wide[..., 1::2].any()
    x = rng.standard_normal(20)
    for out in (x[4:16], x[8:]):
        with pytest.raises(ValueError, match="out overlaps an input"):
            op.apply(x[:12], out)
    x[8:] = 0
    with pytest.raises(ValueError, match="12"):
        op.apply(x[:11], np.empty(12))
    with pytest.raises(ValueError, match="out has shape"):
        op.apply(x[:12], np.empty(11))
    fixed = np.empty(12)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        op.apply(x[:12], fixed)


def test_quick_calls_without_an_array_for_the_result(rng, monkeypatch):
    """Vectors take the compiled fast path in all ways to multiply; others the general one."""
    op = bk.KroneckerProduct([rng.standard_normal((n, n)) for n in (3, 1, 4)])
    dense, x = op.to_dense(), rng.standard_normal(12)
    assert op.dtype is np.dtype(float)  # the fast path compares dtypes as objects first
    general, calls = op._dispatch, []
    monkeypatch.setattr(op, "_dispatch", lambda *given: calls.append(1) or general(*given))
    given = pickle.loads(pickle.dumps(x))
    for vector in (x, given, -x):
        expected = dense @ vector
        for y in (op.apply(vector), op.matvec(vector), op @ vector, op.dot(vector), op * vector):
            np.testing.assert_allclose(y, expected, atol=1e-12)
    two = op.apply(np.stack([x, -x]))
    np.testing.assert_allclose(two, np.stack([dense @ x, -dense @ x]), atol=1e-12)
    assert not calls
    for other in (x.astype(np.float32), x[::-1], x.astype(">f8")):
        np.testing.assert_allclose(op @ other, dense @ other, atol=1e-6)
        assert calls
        calls.clear()
    with pytest.raises(ValueError, match="expected"):
        op @ x[:11]


def test_high_powers_and_long_sums(rng):
    op = 0.1 * bk.KroneckerProduct(rng.standard_normal((2, 2, 2)))
    high = op**2000
    np.testing.assert_allclose(
        high @ np.ones(4), np.linalg.matrix_power(op.to_dense(), 2000) @ np.ones(4), atol=1e-12
    )
    total = op
    for _ in range(3000):
        total = total + op
    np.testing.assert_allclose(total @ np.ones(4), 3001 * (op @ np.ones(4)), rtol=1e-9)
    clone = copy.deepcopy(total)
    np.testing.assert_array_equal(clone @ np.ones(4), total @ np.ones(4))


def test_seventy_modes_in_every_method(rng):
    factors = [np.array([[2.0]])] * 68 + [rng.standard_normal((2, 2)) + 3 * np.eye(2)] * 2
    op = bk.KroneckerProduct(factors)
    x = rng.standard_normal(4)
    np.testing.assert_allclose(op.solve(op @ x), x, rtol=1e-9)
    wide = bk.KroneckerProduct([np.ones((1, 1))] * 68 + [rng.standard_normal((2, 3))] * 2)
    np.testing.assert_allclose(wide.diagonal(), wide.to_dense().diagonal(), rtol=1e-12)
    total = bk.KroneckerSum([np.array([[0.5]])] * 68 + [np.diag([1.0, 2.0])] * 2)
    np.testing.assert_allclose(np.sort(total.eigh()[0]), [36, 37, 37, 38])
    np.testing.assert_allclose(total.diagonal(), total.to_dense().diagonal())


@pytest.mark.parametrize("kind", [bk.KroneckerProduct, bk.KroneckerSum])
def test_matrices_one_by_one_or_alone(rng, kind):
    """As in `kron`. One matrix alone must not be read as a list of its rows."""
    A, B = rng.standard_normal((2, 2, 2))
    expected = kind([A, B]).to_dense()
    for op in (kind(A, B), kind(A.tolist(), B), kind((A, B)), kind(iter([A, B]))):
        np.testing.assert_array_equal(op.to_dense(), expected)
    np.testing.assert_array_equal(kind(np.stack([A, B])).to_dense(), expected)
    np.testing.assert_array_equal(kind(factors=[A, B]).to_dense(), expected)
    for op in (kind(A), kind([A]), kind(A.tolist()), kind(A[None])):
        np.testing.assert_array_equal(op.to_dense(), A)
    both = kind(np.stack([A, B]), B)  # two systems
    np.testing.assert_allclose(both.apply(np.ones((2, 4)))[0], expected @ np.ones(4), rtol=1e-13)
    np.testing.assert_array_equal(copy.deepcopy(both).factors[0], both.factors[0])
    with pytest.raises(ValueError, match=r"factors\[0\] has shape \(2,\); expected 2 dimensions"):
        kind(A[0])
    with pytest.raises(ValueError, match=r"factors\[1\] has shape \(2,\); expected 2 dimensions"):
        kind([A, B[0]])


def test_methods_at_size_zero():
    for kind in (bk.KroneckerProduct, bk.KroneckerSum):
        assert kind([np.zeros((0, 0)), np.eye(2)]).solve(np.zeros(0)).shape == (0,)
        lower = np.array([[1.0, 0.0], [1.0, 2.0]])
        assert kind([lower, lower]).solve(np.zeros((4, 0))).shape == (4, 0)
    none = bk.BatchedKron(np.ones((1, 2, 2)), np.zeros((0, 1), int), [], [])
    assert none.validate().ok
    systems = bk.BatchedKron(np.ones((0, 1, 2, 2)), [[0]], [0], [0])
    assert systems.validate().ok


def test_a_singular_sum_with_a_rounded_zero():
    matrix = np.array([[1.0, 2.0], [2.0, 1.0]])
    assert bk.KroneckerSum([matrix, -matrix]).logdet() == -np.inf


def test_validation_of_tiny_and_complex_entries(rng):
    for scale, dtype in ((1e-22, "float32"), (1, "complex64"), (1, "complex128")):
        pool = (scale * rng.standard_normal((3, 3, 3))).astype(dtype)
        if np.dtype(dtype).kind == "c":
            pool = pool + 1j * pool[::-1]
        assert bk.BatchedKron(pool, [[0, 1, 2]], [0], [0]).validate().ok


def test_identity_is_checked():
    with pytest.raises(TypeError, match=r"size is 2.5; expected an integer"):
        bk.Identity(2.5)
    for dtype in (object, int, "U3"):
        with pytest.raises(TypeError, match="expected float32, float64, complex64 or complex128"):
            bk.Identity(4, dtype)


def test_relatives_asked_for_by_several_threads_are_one(rng):
    for _ in range(50):
        op, seen = bk.KroneckerProduct(rng.standard_normal((2, 3, 3))), []
        barrier = threading.Barrier(4)

        def ask(op=op, seen=seen, barrier=barrier):
            barrier.wait()
            seen.append(op.T)

        workers = [threading.Thread(target=ask) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert len({id(relative) for relative in seen}) == 1


def test_pools_from_a_generator(rng):
    pools = [rng.standard_normal((3, 2, 2)), rng.standard_normal((3, 2, 2))]
    one = bk.BatchedKron((pool for pool in pools), [[0, 1]], [0], [0])
    np.testing.assert_array_equal(
        one.to_dense(), bk.BatchedKron(pools, [[0, 1]], [0], [0]).to_dense()
    )


@pytest.mark.parametrize("flag", ["TF", 1, None])
def test_flags_that_are_no_flags(flag):
    with pytest.raises(TypeError, match=r"transpose is .*; expected a bool or a sequence"):
        bk.gekmm([np.eye(2), np.eye(2)], np.ones(4), transpose=flag)


def test_ids_are_copied_for_the_transpose_too(rng):
    ids, ends = np.array([[0, 1]]), np.array([0])
    op = bk.BatchedKron(rng.standard_normal((2, 2, 2)), ids, ends, ends)
    dense = op.to_dense()
    ids[...], ends[...] = 1, 5
    np.testing.assert_array_equal(op.T.to_dense(), dense.T)


def test_identity_flags_look_at_every_system(rng):
    pool = np.stack([np.eye(2)[None], np.ones((1, 2, 2))])
    op = bk.BatchedKron(pool, [[0]], [0], [0])
    x = rng.standard_normal((2, 1, 2))
    np.testing.assert_allclose(op.apply(x), np.einsum("skpq,skq->skp", pool, x), rtol=1e-14)
