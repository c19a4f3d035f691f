"""Arguments as NumPy's users know them: flags, masks, byte orders, outputs, scalars, arrays."""

import re

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg as scipy_linalg
from numpy.lib.stride_tricks import as_strided

import batchkron as bk
from batchkron.arrays import overlaps_itself

EYE = np.eye(2)


def sweep():
    """A sum over the edges of two nodes, of which the second one has none."""
    return bk.SegmentedModeMultiply([EYE], [0, 1, 1], [0], [0], before=1, behind=2)


def listed():
    """Two output blocks, of which the second one has no product."""
    return bk.BatchedKron(EYE[None], [[0, 0]], [0], [0], num_outputs=2)


# Functions of x of 4 elements and of an output, whose shape comes first; below, without output.
WITH_OUT = {
    "gekmm": ((4,), lambda x, out: bk.gekmm([EYE, EYE], x, out=out)),
    "gemkm": ((4,), lambda x, out: bk.gemkm(x, [EYE, EYE], out=out)),
    "kron": ((4, 2), lambda x, out: bk.kron(x[:, None], np.ones((1, 2)), out=out)),
    "linear_combination": ((4,), lambda x, out: bk.linear_combination([1.0], [x], out)),
    "apply": ((4,), lambda x, out: bk.KroneckerProduct([EYE, EYE]).apply(x, out)),
    "matvec": ((4,), lambda x, out: bk.KroneckerSum([EYE, EYE]).matvec(x, out)),
    "accumulate": ((4,), lambda x, out: bk.Diagonal(np.ones(4)).accumulate(x, out)),
    "blocks": ((2, 4), lambda x, out: listed().apply(x[None], out)),
    "added blocks": ((2, 4), lambda x, out: listed().accumulate(x[None], out)),
    "segments": ((2, 4), lambda x, out: sweep().apply(x[None], out)),
    "added segments": ((2, 4), lambda x, out: sweep().accumulate(x[None], out)),
}
ALONE = {
    "@": lambda x: bk.KroneckerProduct([EYE, EYE]) @ x,
    "@ from the right": lambda x: x @ bk.KroneckerProduct([EYE, EYE]),
    "matmat": lambda x: bk.KroneckerProduct([EYE, EYE]).matmat(x[:, None]),
    "solve": lambda x: bk.KroneckerProduct([EYE, EYE]).solve(x),
    "factors": lambda x: bk.KroneckerProduct([x.reshape(2, 2), EYE]),
    "diagonal": lambda x: bk.Diagonal(x),
    "pools": lambda x: bk.BatchedKron([x.reshape(1, 2, 2)], [[0]], [0], [0]),
    "matrices": lambda x: bk.SegmentedModeMultiply(
        [x.reshape(2, 2)], [0, 1], [0], [0], before=1, behind=1
    ),
    "a": lambda x: bk.batched_gemm(x.reshape(1, 2, 2), EYE[None]),
    "b": lambda x: bk.batched_gemm(EYE[None], x.reshape(1, 2, 2)),
    "c": lambda x: bk.batched_gemm(EYE[None], EYE[None], x.reshape(1, 2, 2), beta=1),
    "y": lambda x: bk.gekmm([EYE, EYE], np.ones(4), beta=1, y=x),
}


@pytest.mark.parametrize("function", [bk.gekmm, lambda f, x, **given: bk.gemkm(x, f, **given)])
@pytest.mark.parametrize("name", ["transpose", "conj"])
@pytest.mark.parametrize(
    "flag",
    [("N", "N"), ["T", "F"], [0, 1], np.array([1, 0]), b"NN", (None, True), [[True], [False]]],
)
def test_flags_are_bools(function, name, flag):
    with pytest.raises(TypeError, match=rf"{name}\[0\] is .*; expected a bool|{name}\[1\]"):
        function([EYE, EYE], np.ones(4), **{name: flag})


@pytest.mark.parametrize("flag", [np.array(True), {0: True, 1: True}, 1.0])
def test_flags_of_other_kinds(flag):
    with pytest.raises(TypeError, match=r"conj is .*; expected a bool or a sequence"):
        bk.gekmm([EYE, EYE], np.ones(4), conj=flag)


def test_bools_of_numpy_are_flags(rng):
    A, B, x = rng.standard_normal((2, 3)), rng.standard_normal((3, 3)), rng.standard_normal(6)
    expected = np.kron(A.T, B) @ x
    for flags in ((True, False), np.array([True, False]), [np.True_, np.False_]):
        np.testing.assert_allclose(bk.gekmm([A, B], x, transpose=flags), expected, rtol=1e-12)
    a = rng.standard_normal((1, 2, 3))
    gemm = bk.batched_gemm(a, a, transpose_b=np.True_)
    np.testing.assert_allclose(gemm[0], a[0] @ a[0].T, rtol=1e-12)


@pytest.mark.parametrize("flag", ["N", 1, None])
def test_other_flags_are_bools(flag):
    with pytest.raises(TypeError, match=r"transpose_b is .*; expected a bool"):
        bk.batched_gemm(EYE[None], EYE[None], transpose_b=flag)
    with pytest.raises(TypeError, match=r"skip_identities is .*; expected a bool"):
        bk.BatchedKron(EYE[None], [[0]], [0], [0], skip_identities=flag)


@pytest.mark.parametrize("name", [*WITH_OUT, *ALONE])
def test_masked_arrays_are_refused(name):
    x = np.ma.masked_array([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 0])
    shape, with_out = WITH_OUT.get(name, ((), None))
    function = ALONE.get(name, lambda x: with_out(x, np.zeros(shape)))
    with pytest.raises(TypeError, match=r"masked array, whose mask would be ignored; fill it"):
        function(x)
    if with_out is not None:
        with pytest.raises(TypeError, match=r"(out|y) is a masked array"):
            with_out(np.ones(4), np.ma.zeros(shape))


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([[1.0, 2.0], np.ma.array([3.0, 4.0], mask=[0, 1])], "x[1]"),
        (([1.0, 2.0], (3.0, np.ma.masked)), "x[1][1]"),
        ([[[1.0, 2.0]], [np.ma.array([3.0, 4.0], mask=[0, 1])]], "x[1][0]"),
    ],
)
def test_masked_rows_inside_lists_are_refused(rows, name):
    with pytest.raises(TypeError, match=re.escape(f"{name} is a masked array")):
        bk.gekmm([np.eye(2)], rows)


def test_a_masked_number_is_no_number():
    with pytest.raises(TypeError, match="alpha is masked; expected a number"):
        bk.gekmm([EYE], np.ones(2), alpha=np.ma.masked)


@pytest.mark.parametrize("operator", [bk.KroneckerProduct, bk.KroneckerSum])
def test_an_array_of_factors_is_a_sequence_of_them(rng, operator):
    factors = [rng.standard_normal((n, n)) for n in (2, 3)]
    held = np.empty(2, object)
    held[:] = factors
    x = rng.standard_normal(6)
    np.testing.assert_array_equal(operator(held) @ x, operator(factors) @ x)
    with pytest.raises(TypeError, match="the first argument is a sequence of 2 matrices"):
        operator(held, EYE)


@pytest.mark.parametrize("name", WITH_OUT)
def test_outputs_that_overlap_themselves_are_refused(name):
    shape, function = WITH_OUT[name]
    steps = {(4,): [(0,), (4,)], (4, 2): [(8, 8), (0, 8)], (2, 4): [(8, 8), (0, 8)]}[shape]
    for strides in steps:
        memory = np.zeros(16)
        with pytest.raises(ValueError, match=r"(out|y) overlaps itself in memory"):
            function(np.ones(4), as_strided(memory, shape, strides))
        assert not memory.any()


def test_which_arrays_overlap_themselves(rng):
    memory = rng.standard_normal((4, 6, 5))
    for array in (
        memory,
        memory.T,
        memory[::2, ::-3, 1::2],
        memory[:, :, 0],
        np.einsum("iij->ij", memory[:, :4]),
        memory[:0],
        as_strided(memory, (2, 3), (24, 16)),  # places 0, 2, 4 and 3, 5, 7
        as_strided(memory, (1, 3), (0, 8)),
    ):
        assert not overlaps_itself(array)
    for shape, strides in (
        ((2, 3), (32, 16)),  # 0, 2, 4 and 4, 6, 8
        ((3, 3), (8, 8)),
        ((2, 2, 2), (40, 24, 16)),
        ((2,), (4,)),
        ((400, 400), (16, 24)),  # too many places to decide: taken as overlapping
    ):
        assert overlaps_itself(as_strided(memory, shape, strides))


@pytest.mark.parametrize("name", WITH_OUT)
@pytest.mark.parametrize("dtype", [">f8", "<f8", ">f4"])
def test_inputs_of_any_byte_order(name, dtype):
    shape, function = WITH_OUT[name]
    if name == "linear_combination" and dtype == ">f4":
        dtype = ">f8"  # x must have the dtype of the output
    x, out = np.array([1.0, -2.0, 3.0, 4.5]), np.zeros(shape)
    expected = function(x, np.zeros(shape)).copy()
    np.testing.assert_array_equal(function(x.astype(dtype), out), expected)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("alpha", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_numbers_that_are_not_finite_scale_empty_sums(alpha, dtype):
    """As alpha * (A @ x) does: what is 0 becomes NaN."""
    with np.errstate(invalid="ignore"):
        expected = alpha * np.zeros((1, 2), dtype)
    empty = np.ones((2, 0), dtype)
    for result in (
        bk.gekmm([empty], np.ones((0, 3), dtype), alpha=alpha),
        bk.gemkm(np.ones((3, 0), dtype), [empty.T], alpha=alpha),
        bk.gekmm([np.ones((2, 2, 0), dtype)], np.ones((2, 0, 1), dtype), alpha=alpha),
        bk.batched_gemm(empty[None], empty.T[None], alpha=alpha),
        bk.batched_gemm(EYE[None], EYE[None], np.ones((2, 2, 2)), alpha=alpha, beta=2)[1],
        sweep().apply(np.ones((1, 4)), alpha=alpha)[1],
        sweep().accumulate(np.ones((1, 4)), np.ones((2, 4)), alpha=alpha)[1],
        listed().accumulate(np.ones((1, 4)), np.ones((2, 4)), alpha=alpha)[1],
        bk.KroneckerProduct([empty]).accumulate(np.ones(0, dtype), np.ones(2, dtype), alpha=alpha),
    ):
        assert result.size
        assert np.isnan(result).all()
        assert np.isnan(expected).all()


@pytest.mark.parametrize("alpha", [np.nan, np.inf, complex(1, np.inf)])
def test_and_others_as_numpy_does(rng, alpha):
    """Sums with terms are scaled by infinity and NaN as in NumPy."""
    A, x = rng.standard_normal((3, 3)), np.array([1.0, 0.0, 0.0])
    A[1] = 0.0
    y = rng.standard_normal(3)
    with np.errstate(invalid="ignore"):
        expected = alpha * (A @ x) + 2 * y
    out = np.full(3, np.nan, expected.dtype)
    np.testing.assert_array_equal(bk.gekmm([A], x, alpha=alpha, beta=2, y=y, out=out), expected)
    if not isinstance(alpha, complex):
        kept = y.copy()
        bk.gekmm([A], x, alpha=alpha, beta=2, y=y, out=y)
        np.testing.assert_array_equal(y, expected)
        bk.KroneckerProduct([A]).accumulate(x, kept, alpha=alpha)
        assert np.isnan(kept[1])


def test_an_operator_is_no_array(rng):
    # of positive entries: the eigenvalue of largest modulus is real, so that there is one only
    op, x = bk.KroneckerProduct(rng.random((2, 2, 2))), rng.standard_normal(4)
    for convert in (np.asarray, np.array, lambda A: np.dot(A, x), lambda A: np.vstack([A, A])):
        with pytest.raises(TypeError, match=r"KroneckerProduct is a linear operator.*to_dense\(\)"):
            convert(op)
    with pytest.raises(TypeError, match="to_dense"):
        bk.gekmm([op], x)
    with pytest.raises(TypeError, match="ufunc"):
        np.add(x, op)
    np.testing.assert_allclose(x @ op, x @ op.to_dense(), rtol=1e-12)
    np.testing.assert_allclose(op @ x, op.to_dense() @ x, rtol=1e-12)
    assert scipy_linalg.aslinearoperator(op) is op
    assert isinstance(np.float64(2.0) * op, bk.Operator)
    assert (np.shape(op), np.ndim(op)) == ((4, 4), 2)
    np.testing.assert_allclose(
        scipy_linalg.eigs(op, k=1)[0], max(np.linalg.eigvals(op.to_dense()), key=abs), rtol=1e-9
    )


OPERATOR = scipy_linalg.aslinearoperator(EYE)
NOT_ARRAYS = {
    "None": (None, "is None; expected an array of float32"),
    "text": ("ab", "is 'ab', a str; expected an array of float32"),
    "a function": (len, "a builtin_function_or_method; expected an array of float32"),
    "an operator of SciPy": (OPERATOR, "a MatrixLinearOperator, a linear operator; .* its matrix"),
    "an operator": (bk.Diagonal(np.ones(2)), r"a Diagonal, a linear operator; .* A.to_dense\(\)"),
    "a sparse array": (scipy.sparse.csr_array(EYE), r"a sparse matrix; convert it with toarray"),
    "texts": ([["a", "b"], ["c", "d"]], r"\[0\]\[0\] is 'a', a str"),
    "rows of different lengths": ([[1.0, 2.0], [3.0]], "has rows of different lengths"),
}
# Functions of a factor, and its name in errors.
TAKE_FACTORS = {
    "KroneckerProduct": (lambda f: bk.KroneckerProduct([EYE, f]), r"factors\[1\]"),
    "KroneckerProduct, arguments": (lambda f: bk.KroneckerProduct(EYE, f), r"factors\[1\]"),
    "KroneckerSum": (lambda f: bk.KroneckerSum([EYE, f]), r"factors\[1\]"),
    "update": (lambda f: bk.KroneckerSum([EYE, EYE]).update([EYE, f]), r"factors\[1\]"),
    "kron": (lambda f: bk.kron(EYE, f), r"factors\[1\]"),
    "gekmm": (lambda f: bk.gekmm([EYE, f], np.ones(4)), r"factors\[1\]"),
    "gemkm": (lambda f: bk.gemkm(np.ones(4), [EYE, f]), r"factors\[1\]"),
    "BatchedKron": (lambda f: bk.BatchedKron([EYE[None], f], [[0, 0]], [0], [0]), r"pools\[1\]"),
    "from_products": (
        lambda f: bk.BatchedKron.from_products([[EYE, f]], [0], [0]),
        r"products\[0\]\[1\]",
    ),
    "batched_gemm": (lambda f: bk.batched_gemm(EYE[None], f), "b"),
    "Diagonal": (lambda f: bk.Diagonal(f), "entries"),
}


# Operators keep sparse factors as arrays.
TAKE_SPARSE = {"KroneckerProduct", "KroneckerProduct, arguments", "KroneckerSum", "update"}


@pytest.mark.parametrize("given", NOT_ARRAYS)
@pytest.mark.parametrize("function", TAKE_FACTORS)
def test_what_is_no_array(function, given):
    (call, name), (value, text) = TAKE_FACTORS[function], NOT_ARRAYS[given]
    if given == "a sparse array" and function in TAKE_SPARSE:
        call(value)
        return
    error = ValueError if given == "rows of different lengths" else TypeError
    with pytest.raises(error, match=f"^{name}.*{text}"):
        call(value)


@pytest.mark.parametrize("given", [None, "ab", b"ab", {"a": EYE}, 5])
def test_what_is_no_sequence(given):
    for call in (
        bk.KroneckerProduct,
        bk.KroneckerSum,
        lambda factors: bk.gekmm(factors, np.ones(4)),
        lambda factors: bk.gemkm(np.ones(4), factors),
        lambda pools: bk.BatchedKron(pools, [[0]], [0], [0]),
        lambda products: bk.BatchedKron.from_products(products, [0], [0]),
        lambda product: bk.BatchedKron.from_products([product], [0], [0]),
        bk.KroneckerSum([EYE]).update,
    ):
        kind = "None" if given is None else f"a {type(given).__name__}"
        with pytest.raises(TypeError, match=f"is {kind}; expected a sequence of arrays"):
            call(given)
    inside = [[EYE, None]]
    with pytest.raises(TypeError, match=r"pools\[0\]\[1\] is None"):
        bk.BatchedKron(inside, [[0]], [0], [0])
