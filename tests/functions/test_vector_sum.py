"""Linear combinations in one pass over memory, or in several where arrays do not allow it."""

import tracemalloc

import numpy as np
import pytest
from dense_oracle import poisoned, random_array

import batchkron as bk


def expected_sum(factors, vectors):
    wide = [vector.astype(np.result_type(vector.dtype, "f8")) for vector in vectors]
    magnitude = sum(abs(a) * np.abs(vector) for a, vector in zip(factors, wide, strict=True))
    return sum(a * vector for a, vector in zip(factors, wide, strict=True)), magnitude


def check(result, factors, vectors):
    right, magnitude = expected_sum(factors, vectors)
    eps = np.finfo(result.dtype).eps
    assert (np.abs(result - right) <= eps * len(vectors) * magnitude).all()


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 31, 32, 33, 64, 100, 1000])
@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_sizes(rng, backend, dtype, size, count):
    factors = rng.standard_normal(count).tolist()
    vectors = [random_array(rng, size, dtype) for _ in range(count)]
    out = poisoned(size, dtype)
    assert bk.linear_combination(factors, vectors, out) is out
    check(out, factors, vectors)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_out_may_be_one_of_them(rng, dtype, place):
    factors = [0.5, -2.0, 3.0]
    vectors = [random_array(rng, (4, 25), dtype) for _ in range(3)]
    before = [vector.copy() for vector in vectors]
    bk.linear_combination(factors, vectors, vectors[place])
    check(vectors[place], factors, before)
    for k in {0, 1, 2} - {place}:
        np.testing.assert_array_equal(vectors[k], before[k])


@pytest.mark.parametrize("place", [None, 0, 1, 2])
@pytest.mark.parametrize("spare", [None, 0, 1, 2, "another"])
def test_arrays_that_are_not_contiguous(rng, place, spare):
    """Strided vectors, with scratch memory or without; it may be one of the vectors."""
    if spare == place and place is not None:
        return
    factors = [0.5, -2.0, 3.0]
    vectors = [rng.standard_normal(60)[::2] for _ in range(3)]
    before = [vector.copy() for vector in vectors]
    out = np.full(60, np.nan)[::2] if place is None else vectors[place]
    scratch = np.empty(30) if spare == "another" else None if spare is None else vectors[spare]
    bk.linear_combination(factors, vectors, out, scratch=scratch)
    check(out, factors, before)


def test_out_may_be_another_view_of_one_of_them():
    memory = np.arange(10.0)
    for step in (1, 2):
        view, before = memory[::step], memory[::step].copy()
        bk.linear_combination([1.0, 1.0], [np.ones(len(view)), view], memory[::step])
        np.testing.assert_array_equal(memory[::step], before + 1)


@pytest.mark.parametrize("step", [1, 2, -1])
@pytest.mark.parametrize("shift", [1, 3, -2])
def test_outputs_that_overlap_a_vector_are_refused(backend, step, shift):
    if backend == "reference" and step == 1:
        return  # sums before it writes
    memory = np.arange(40.0)
    view, out = memory[10:20], memory[10 + shift : 10 + shift + 10]
    view, out = view[::step], out[::step]
    if shift % step == 0:
        with pytest.raises(ValueError, match=r"out overlaps vectors\[1\] in memory"):
            bk.linear_combination([1.0, 1.0], [np.ones(len(view)), view], out)
        np.testing.assert_array_equal(memory, np.arange(40.0))
    else:  # every second element of the same memory, none of them in both
        expected = view + 1
        bk.linear_combination([1.0, 1.0], [np.ones(len(view)), view], out)
        np.testing.assert_array_equal(out, expected)


def test_views_that_are_the_output_are_counted():
    memory = np.arange(8.0)
    with pytest.raises(ValueError, match="out is several of the vectors"):
        bk.linear_combination([1.0, 1.0], [memory[::2], memory[::2]], memory[::2])
    np.testing.assert_array_equal(memory, np.arange(8.0))
    bk.linear_combination([1.0, 2.0], [memory[:], memory[:]], memory)  # in one pass
    np.testing.assert_array_equal(memory, 3 * np.arange(8.0))


def test_scratch_lies_apart():
    memory, x = np.arange(40.0), np.ones(8)[::2]
    out, view = memory[:8:2], memory[10:18:2]
    for scratch, text in (
        (memory[1:5], "scratch overlaps an input"),
        (memory[11:15], r"scratch overlaps vectors\[1\]"),
        (np.empty(5), r"scratch has shape \(5,\)"),
        (np.broadcast_to(x, (4,)), "scratch is read-only"),
    ):
        with pytest.raises(ValueError, match=text):
            bk.linear_combination([1.0, 2.0], [x, view], out, scratch=scratch)
    with pytest.raises(ValueError, match="scratch is several of the vectors"):
        bk.linear_combination([1.0, 2.0, 3.0], [out, view, view], out, scratch=view)
    np.testing.assert_array_equal(memory, np.arange(40.0))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("of_out", ["<", ">"])
@pytest.mark.parametrize("step", [1, 2])
def test_byte_orders(rng, backend, dtype, order, of_out, step):
    factors = [0.5, -2.0]
    vectors = [random_array(rng, 20, dtype)[::step] for _ in factors]
    out = poisoned(20, dtype).astype(np.dtype(dtype).newbyteorder(of_out))[::step]
    turned = [vectors[0].astype(np.dtype(dtype).newbyteorder(order)), vectors[1]]
    assert bk.linear_combination(factors, turned, out) is out
    check(out, factors, vectors)


def test_other_dtypes(rng):
    vectors = [rng.standard_normal(5).astype("longdouble") for _ in range(2)]
    result = bk.linear_combination([2.0, 3.0], vectors, np.empty(5, "longdouble"))
    np.testing.assert_allclose(result, 2 * vectors[0] + 3 * vectors[1])


def test_bits_do_not_depend_on_threads(rng, threads):
    factors = [0.3, 0.7, -1.1]
    vectors = [rng.standard_normal(300_001) for _ in range(3)]
    results = []
    for count in (1, 2, 3, 7):
        threads(count)
        results.append(bk.linear_combination(factors, vectors, np.full(300_001, np.nan)))
    check(results[0], factors, vectors)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_infinities_stay_where_they_are():
    x = np.array([1.0, np.inf, np.nan, -0.0, 2.0])
    with np.errstate(invalid="ignore"):
        result = bk.linear_combination([2.0, 0.0], [x, x], np.empty(5))
    assert result[0] == 2.0
    assert result[4] == 4.0
    assert np.isnan(result[1:3]).all()


def test_nothing_is_allocated(rng):
    vectors = [rng.standard_normal(10_000) for _ in range(3)]
    strided = [vector[::2] for vector in vectors]
    for own in (vectors, strided):
        tracemalloc.start()
        try:
            bk.linear_combination([1.0, 2.0, 3.0], own, own[0], scratch=own[2])
            assert tracemalloc.get_traced_memory()[1] < 4096
        finally:
            tracemalloc.stop()


def test_wrong_arguments_are_named():
    x, y = np.ones(3), np.ones(4)
    with pytest.raises(ValueError, match="2 factors and 1 vectors"):
        bk.linear_combination([1.0, 2.0], [x], np.empty(3))
    with pytest.raises(ValueError, match="0 factors and 0 vectors"):
        bk.linear_combination([], [], np.empty(3))
    with pytest.raises(ValueError, match=r"vectors\[1\] has shape \(4,\); out has \(3,\)"):
        bk.linear_combination([1.0, 2.0], [x, y], np.empty(3))
    with pytest.raises(TypeError, match=r"vectors\[0\] has dtype float64; out has float32"):
        bk.linear_combination([1.0], [x], np.empty(3, "f4"))
    with pytest.raises(ValueError, match="out is several of the vectors"):
        bk.linear_combination([1.0, 2.0], [x, x], x)
    with pytest.raises(TypeError, match="out is a list; expected an array"):
        bk.linear_combination([1.0], [x], [0.0, 0.0, 0.0])
    for factor, text in (("2", "'2'; expected a number"), (2j, "2j; expected a real number")):
        with pytest.raises(TypeError, match=rf"factors\[1\] is {text}"):
            bk.linear_combination([1.0, factor], [x, x], np.empty(3))
    x.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        bk.linear_combination([1.0], [np.ones(3)], x)
    np.testing.assert_array_equal(bk.linear_combination([2.0], [[1, 2.5]], np.empty(2)), [2, 5])
