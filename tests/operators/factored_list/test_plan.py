"""Batch lists whose products share partial products equal their dense matrices."""

import pickle
import tracemalloc

import numpy as np
import pytest
from dense_oracle import batch_bound, dense_batch, poisoned, random_array
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_oracle import operator_of

import batchkron as bk
from batchkron.operators.factored_list import choice, graph
from batchkron.operators.factored_list.choice import plan_choice
from batchkron.problems import SparseGrid

SIZES = [(1,), (3,), (2, 3), (1, 3, 2), (2, 1, 2, 1, 2), (2,) * 6, (9, 5)]


def random_batch(rng, sizes, dtype, products=60, num_inputs=4, num_outputs=5, lead=()):
    """A list with identities, multiples of them, and few matrices, so that much is shared."""
    pools = [random_array(rng, (*lead, 4, n, n), dtype) for n in sizes]
    for pool in pools:
        pool[..., 1, :, :] = np.eye(pool.shape[-1])
        pool[..., 2, :, :] = 3 * np.eye(pool.shape[-1])
    ids = rng.integers(0, 4, (products, len(sizes)))
    source, target = rng.integers(0, num_inputs, products), rng.integers(0, num_outputs, products)
    weights = rng.integers(1, 4, (*lead, products)).astype(dtype)
    return pools, ids, source, target, weights


def built(batch, num_inputs=4, num_outputs=5, **options):
    *lists, weights = batch
    counts = {"num_inputs": num_inputs, "num_outputs": num_outputs}
    return bk.BatchedKron(*lists, weights=weights, **counts, **options)


def check(rng, op, pools, matrix, magnitude):
    """Every way to apply an operator, against a matrix."""
    rows, columns = matrix.shape
    dtype = op.dtype

    def near(result, x, start=0):
        bound = batch_bound(magnitude, x, pools, 60 + 3 * len(pools))
        bound = bound + 500 * np.finfo(dtype).eps * np.abs(start)
        assert (np.abs(result - matrix @ x - start) <= bound).all()

    x = random_array(rng, (2, *op._input_shape), dtype)
    y = poisoned((2, *op._output_shape), dtype)
    assert op.apply(x, out=y) is y
    for k in range(2):
        near(y[k].ravel(), x[k].ravel())
    start = random_array(rng, y.shape, dtype)
    z = op.accumulate(x, start.copy())
    for k in range(2):
        near(z[k].ravel(), x[k].ravel(), start[k].ravel())
    many = random_array(rng, (columns, 3), dtype)
    product = op.matmat(many)
    for k in range(3):
        near(product[:, k], many[:, k])
    near(op.matvec(many[:, 0].copy(), out=poisoned(rows, dtype)), many[:, 0])


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_equal_dense_ones(rng, dtype, sizes):
    products = 40 if len(sizes) < 4 else 12
    batch = random_batch(rng, sizes, dtype, products)
    matrix, magnitude = dense_batch(*batch, 4, 5)
    op = built(batch).plan("factored")
    check(rng, op, batch[0], matrix, magnitude)
    check(rng, op.T, batch[0], matrix.T, magnitude.T)
    check(rng, op.H, batch[0], matrix.conj().T, magnitude.T)


def test_the_reference_backend_takes_the_steps(rng, backend):
    batch = random_batch(rng, (2, 3), np.float64, 20)
    matrix, magnitude = dense_batch(*batch, 4, 5)
    check(rng, built(batch).plan("factored"), batch[0], matrix, magnitude)


def test_pickles_and_conversions_keep_the_plan(rng):
    op = built(random_batch(rng, (2, 3), np.float64)).plan("factored")
    again = pickle.loads(pickle.dumps(op))
    np.testing.assert_array_equal(again.to_dense(), op.to_dense())
    for relative in (again, op.T, op.H, op.astype("complex64")):
        assert "plan: factored" in relative.describe()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_list(data):
    modes = data.draw(st.integers(1, 4))
    sizes = tuple(data.draw(st.integers(1, 3)) for _ in range(modes))
    products, counts = data.draw(st.integers(0, 30)), [data.draw(st.integers(1, 5)) for _ in "xy"]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    batch = random_batch(rng, sizes, np.float64, products, *counts)
    matrix, magnitude = dense_batch(*batch, *counts)
    op = built(batch, *counts, skip_identities=data.draw(st.booleans())).plan("factored")
    check(rng, op, batch[0], matrix, magnitude)


@pytest.mark.parametrize("shared", ["pools", "weights", "none"])
def test_many_systems(rng, dtype, shared):
    batch = list(random_batch(rng, (2, 3), dtype, lead=(2, 3)))
    if shared == "pools":
        batch[0] = [pool[0, 0] for pool in batch[0]]
    if shared == "weights":
        batch[4] = batch[4][0, 0]
    op = built(batch).plan("factored")
    x = random_array(rng, (2, 2, 3, 4, 6), dtype)
    y = op.apply(x)
    for i, j in np.ndindex(2, 3):
        pools = [pool if pool.ndim == 3 else pool[i, j] for pool in batch[0]]
        weights = batch[4] if batch[4].ndim == 1 else batch[4][i, j]
        matrix, magnitude = dense_batch(pools, *batch[1:4], weights, 4, 5)
        for k in range(2):
            vector = x[k, i, j].ravel()
            bound = batch_bound(magnitude, vector, pools, 70)
            assert (np.abs(y[k, i, j].ravel() - matrix @ vector) <= bound).all()


def test_updates_of_one_plan_reach_the_other(rng, dtype):
    """Also those by which weights that were equal differ, or multiples of identities end."""
    batch = random_batch(rng, (2, 3), dtype)
    op = built(batch)
    factored = op.plan("factored")
    assert factored.plan("factored") is factored
    assert factored.plan("direct") is op
    assert op.plan("factored") is factored
    assert "plan:" not in op.describe()
    pools, ids, source, target, weights = batch
    transpose = factored.T
    x, y = random_array(rng, 24, dtype), poisoned(30, dtype)
    multiply = factored.bound(x, y)
    scaled = [2 * pool for pool in pools]
    other = [random_array(rng, pool.shape, dtype) for pool in pools]
    for pool in (*scaled, *other):
        pool[1] = np.eye(pool.shape[-1])
    for changed, options in (
        (factored, {"pools": scaled}),
        (op, {"weights": 5 * weights}),
        (op, {"weights": random_array(rng, 60, dtype)}),
        (factored, {"pools": other, "weights": weights}),
        (op, {"pools": pools}),
    ):
        changed.update(**options)
        pools, weights = options.get("pools", pools), options.get("weights", weights)
        matrix, magnitude = dense_batch(pools, ids, source, target, weights, 4, 5)
        check(rng, factored, pools, matrix, magnitude)
        check(rng, transpose, pools, matrix.T, magnitude.T)
        check(rng, op, pools, matrix, magnitude)
        multiply()
        assert (np.abs(y - matrix @ x) <= batch_bound(magnitude, x, pools, 66)).all()
    with pytest.raises(ValueError, match="was the identity and is skipped"):
        factored.update(pools=[random_array(rng, pool.shape, dtype) for pool in pools])


def relatives_of(op):
    """An operator and those that an update changes, too."""
    return op, op.T, op.astype("complex64"), op.plan("factored"), op.plan("auto").H


def refused_updates(rng):
    """Arguments of updates of which one array is wrong, the errors, and texts."""
    pools = [rng.standard_normal((4, n, n)) for n in (2, 3)]
    for pool in pools:
        pool[1] = np.eye(pool.shape[-1])
    weights = rng.standard_normal(60)
    wrong = pools[1].copy()
    wrong[1, 0, 1] = 1e-9
    yield {"pools": [pools[0], wrong]}, ValueError, r"pools\[1\]\[1\] was the identity"
    yield {"pools": [pools[0], wrong], "weights": weights}, ValueError, "was the identity"
    wrong = np.full_like(wrong, np.nan)
    yield {"pools": [pools[0], wrong]}, ValueError, r"pools\[1\]\[1\] was the identity"
    yield {"pools": [pools[0], pools[1][:3]]}, ValueError, r"pools\[1\] has shape"
    yield {"pools": [pools[0], pools[1] * 1j]}, TypeError, r"pools\[1\] has dtype complex128"
    yield {"pools": pools, "weights": weights[:59]}, ValueError, r"weights has shape \(59,\)"
    yield {"pools": pools, "weights": weights * 1j}, TypeError, "weights has dtype complex128"
    yield {"pools": pools[:1]}, ValueError, "pools"


def test_refused_updates_change_nothing(rng):
    for arguments, error, text in refused_updates(rng):
        op = built(random_batch(rng, (2, 3), np.float64))
        operators = relatives_of(op)
        before = [one.to_dense() for one in operators]
        for one in (op, operators[3]):
            with pytest.raises(error, match=text):
                one.update(**arguments)
            for now, then in zip(operators, before, strict=True):
                np.testing.assert_array_equal(now.to_dense(), then)


def test_updates_that_need_a_plan_which_fails_change_nothing(rng, monkeypatch):
    """The factored plan is looked at after the direct one."""
    op = built(random_batch(rng, (2, 3), np.float64))
    operators = relatives_of(op)
    before = [one.to_dense() for one in operators]

    def fail(*_, **__):
        raise MemoryError("too large")

    monkeypatch.setattr(choice, "factored", fail)
    with pytest.raises(MemoryError, match="too large"):
        op.update(weights=random_array(rng, 60, np.float64))
    for now, then in zip(operators, before, strict=True):
        np.testing.assert_array_equal(now.to_dense(), then)
    op.update(weights=2 * op._spec.weights[0])
    for now, then in zip(operators, before, strict=True):
        np.testing.assert_array_equal(now.to_dense(), 2 * then)


def test_updates_beyond_a_relative_in_single_precision_change_nothing(rng):
    """Where warnings are errors, as in these tests, the conversion raises."""
    op = built(random_batch(rng, (2, 3), np.float64))
    single = op.astype("float32")
    before = op.to_dense(), single.to_dense()
    with pytest.raises(RuntimeWarning, match="overflow"):
        op.update(weights=np.full(60, 1e300))
    np.testing.assert_array_equal(op.to_dense(), before[0])
    np.testing.assert_array_equal(single.to_dense(), before[1])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_propagate(rng, dtype, value):
    """As in NumPy, but for zeros of skipped factors; with every plan, and after an update."""
    for place in ("weight", "matrix", "multiple of the identity"):
        pools, ids, source, target, weights = random_batch(rng, (2, 3), dtype)
        if place == "weight":
            weights[3] = value
        elif place == "matrix":
            pools[0][0, 0, 1] = value
        else:
            pools[1][2] = np.where(np.eye(3) == 1, value, 0)
        op = built((pools, ids, source, target, weights))
        changed = built((*random_batch(rng, (2, 3), dtype)[:1], ids, source, target, weights))
        x = random_array(rng, 24, dtype)
        with np.errstate(invalid="ignore", over="ignore"):
            expected = dense_batch(pools, ids, source, target, weights, 4, 5)[0] @ x
        is_finite = np.isfinite(expected)
        scale = np.abs(expected[is_finite]).max(initial=1.0)
        assert not is_finite.all()
        for plan in ("direct", "factored", "auto"):
            one = changed.plan(plan)
            one.update(pools=pools, weights=weights)
            for result in (op.plan(plan) @ x, one @ x):
                assert not np.isfinite(result[~is_finite]).any()
                error = np.abs(result[is_finite] - expected[is_finite]).max(initial=0.0)
                assert error <= 1000 * np.finfo(dtype).eps * scale


def test_updates_that_need_another_plan_are_noted(rng, monkeypatch):
    """What a device has recorded of the former plan must not be repeated."""
    pools, ids, source, target, weights = random_batch(rng, (2, 3), np.float64)
    op, noted = built((pools, ids, source, target, weights)).plan("factored"), []
    plan = op._plan
    monkeypatch.setattr(op._backend.repetition, "note_move", lambda: noted.append(op._plan))
    op.update(weights=5 * weights)
    assert op._plan is plan
    assert not noted
    op.update(weights=random_array(rng, 60, np.float64))
    assert op._plan is not plan
    assert noted == [plan]  # while it is there


def test_bits_do_not_depend_on_the_number_of_threads(rng):
    batch = random_batch(rng, (3, 3, 3), np.float64, 20000, 50, 50)
    op = built(batch, 50, 50).plan("factored")
    x = rng.standard_normal((50, 27))
    threads = bk.get_num_threads()
    try:
        results = []
        for number in (1, 2, 3):
            bk.set_num_threads(number)
            results.append(op.apply(x))
    finally:
        bk.set_num_threads(threads)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def products_of(op):
    """A bare list of all products of an operator on a sparse grid, in random order."""
    spec = op._spec
    cells, sizes = spec.cells, spec.sizes
    lookup = [
        {(int(r), int(c)): k for k, (r, c) in enumerate(zip(m.rows, m.columns, strict=True))}
        for m in spec.matrices
    ]
    starts = np.cumsum([0, *(len(matrix.rows) for matrix in spec.matrices)])
    found = []
    for i, row in enumerate(cells.tolist()):
        for j, column in enumerate(cells.tolist()):
            for term in spec.terms:
                ids = []
                for number, pair in zip(term, zip(row, column, strict=True), strict=True):
                    own = lookup[number].get(pair) if number >= 0 else None
                    if number < 0:
                        ids.append(int(starts[-1]) if pair[0] == pair[1] else -1)
                    else:
                        ids.append(-1 if own is None else int(starts[number]) + own)
                if min(ids) >= 0:
                    found.append((i, j, *ids))
    pool = np.concatenate([*(matrix.blocks for matrix in spec.matrices), np.eye(sizes[0])[None]])
    found = np.random.default_rng(0).permutation(np.array(found))
    return bk.BatchedKron(pool, found[:, 2:], found[:, 1], found[:, 0], num_inputs=len(cells))


def grids(rng):
    yield SparseGrid.sparse([4, 4]), "full"
    yield SparseGrid.sparse([3, 3, 3]), "full"
    yield SparseGrid.sparse([2, 2, 2, 2]), "full"
    corners = rng.integers(0, 16, (4, 2))
    yield SparseGrid.custom(corners, [4, 4]).closed(), "volume"


def test_lists_of_grids_cost_what_their_sweeps_cost(rng):
    """Of one term in all modes, two terms that differ in one, and terms in single modes."""
    for grid, kind in grids(rng):
        modes, level = grid.cells.shape[1], 4
        a, b = (operator_of(rng, level, 2, kind) for _ in range(2))
        alone = [[a if k == mode else None for k in range(modes)] for mode in range(modes)]
        for terms in ([[a] * modes], [[a] * modes, [*[a] * (modes - 1), b]], alone):
            sweeps = bk.SparseGridOperator(grid, terms, 2)
            op = products_of(sweeps)
            found = plan_choice(op._spec, "factored")
            assert found.listing.multiply_adds <= sweeps.multiply_adds
            x = rng.standard_normal(op._input_shape)
            expected = sweeps.apply(x)
            scale = np.abs(expected).max()
            result = op.plan("factored").apply(x)
            np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12 * scale)


def test_all_pairs_of_a_grid(rng):
    """Many times fewer multiply-adds than product by product; and "auto" sees that."""
    for levels, times in (([6] * 2, 9.8), ([4] * 3, 14), ([3] * 4, 13)):
        cells = SparseGrid.sparse(levels).cells
        target, source = np.divmod(np.arange(len(cells) ** 2), len(cells))
        pool = rng.standard_normal((4 ** levels[0], 3, 3))
        ids = cells[target] * 2 ** levels[0] + cells[source]
        op = bk.BatchedKron(pool, ids, source, target)
        counted = plan_choice(op._spec, "auto").listing.multiply_adds
        assert counted * times < len(ids) * len(levels) * 3 ** (len(levels) + 1)
        text = op.plan("auto").describe()
        assert f"plan: factored, {counted:,} multiply-adds" in text
        x = rng.standard_normal(op._input_shape)
        expected = op.apply(x)
        np.testing.assert_allclose(
            op.plan("auto").apply(x), expected, rtol=0, atol=1e-12 * np.abs(expected).max()
        )


@pytest.mark.parametrize(
    ("matrices", "reason"),
    [(500, "have most of their partial products to themselves"), (8, "it would be slower: ")],
)
def test_auto_leaves_lists_without_structure_alone(rng, matrices, reason):
    """It has the direct plan itself, and so the same bits."""
    for sizes in ((2, 2), (3, 3, 3), (2, 2, 2, 2)):
        pools = [rng.standard_normal((matrices, n, n)) for n in sizes]
        ids = rng.integers(0, matrices, (4000, len(sizes)))
        op = bk.BatchedKron(pools, ids, *rng.integers(0, 60, (2, 4000)))
        auto = op.plan("auto")
        assert "plan: direct; " in auto.describe()
        assert reason in auto.describe()
        assert auto._plan is op._plan
        x = rng.standard_normal(op._input_shape)
        np.testing.assert_array_equal(auto.apply(x), op.apply(x))
        auto.update(weights=np.full(4000, 2.0))
        np.testing.assert_array_equal(auto.apply(x), op.apply(x))


@pytest.mark.parametrize("kind", ["random", "grid"])
def test_choosing_a_plan_takes_three_times_the_memory_of_the_list(rng, kind):
    if kind == "random":
        ids, (source, target) = (
            rng.integers(0, 100, (200_000, 3)),
            rng.integers(0, 3000, (2, 200_000)),
        )
    else:
        cells = SparseGrid.sparse([5, 5, 5]).cells
        target, source = np.divmod(np.arange(len(cells) ** 2), len(cells))
        ids = cells[target] * 32 + cells[source]
    spec = bk.BatchedKron(rng.standard_normal((1024, 3, 3)), ids, source, target)._spec
    size = ids.nbytes + source.nbytes + target.nbytes + spec.weights.nbytes
    tracemalloc.start()
    try:
        plan_choice(spec, "auto")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * size


def test_what_has_no_factored_plan(rng):
    rectangular = bk.BatchedKron(rng.standard_normal((2, 2, 3)), [[0]], [0], [0])
    with pytest.raises(ValueError, match=r"square factors, and those of pools\[0\] are 2×3"):
        rectangular.plan("factored")
    assert "plan: direct; factored plans take square factors" in rectangular.plan("auto").describe()
    with pytest.raises(ValueError, match="plan is 'fast'; expected one of direct, factored, auto"):
        rectangular.plan("fast")
    many = bk.BatchedKron(np.full((1, 1, 1), 2.0), np.zeros((1, 32), int), [0], [0])
    with pytest.raises(ValueError, match="up to 31 modes, and there are 32"):
        many.plan("factored")


@pytest.fixture
def few_bytes(monkeypatch):
    """Lowers the limit on partial products, also of lists with long vectors."""

    def lower(count):
        monkeypatch.setattr(choice, "_MAX_BYTES", count)
        monkeypatch.setattr(choice, "_MAX_SHARE", 0)

    return lower


@pytest.mark.parametrize("lead", [(), (2, 3)], ids=str)
@pytest.mark.parametrize("sizes", [(3, 2), (2, 1, 2), (2,) * 5], ids=str)
def test_partial_products_take_bounded_memory(rng, dtype, sizes, lead, few_bytes):
    """Few in a group and columns at a time; the results are those of all together."""
    batch = random_batch(rng, sizes, dtype, 60, lead=lead)
    if not lead:
        matrix, magnitude = dense_batch(*batch, 4, 5)
    whole = built(batch).plan("factored")
    blocks = sum(whole._choice.listing.graphs[0].counts)
    item = int(np.prod(lead, dtype=int)) * int(np.prod(sizes)) * np.dtype(dtype).itemsize
    for limit in (max(1, blocks // 2), max(1, blocks // 4), 1):
        few_bytes(limit * item)
        op = built(batch).plan("factored")
        assert f"in {len(op._choice.listing.graphs)} groups, " in op.describe()
        for group in op._choice.listing.graphs:
            assert sum(group.counts) <= max(limit, len(sizes) - 1)
        x = random_array(rng, (*lead, 4, int(np.prod(sizes))), dtype)
        scale = 1000 * np.finfo(dtype).eps * np.abs(whole.apply(x)).max()
        np.testing.assert_allclose(op.apply(x), whole.apply(x), rtol=0, atol=scale)
        if not lead:
            check(rng, op, batch[0], matrix, magnitude)
            check(rng, op.T, batch[0], matrix.T, magnitude.T)
            op.update(weights=2 * batch[4])
            check(rng, op, batch[0], 2 * matrix, 2 * magnitude)
            op.update(weights=random_array(rng, batch[4].shape, dtype))
            expected = built((*batch[:4], op._spec.weights[0]))
            np.testing.assert_allclose(op.apply(x), expected.apply(x), rtol=0, atol=10 * scale)


def test_vectors_are_multiplied_some_at_a_time(rng, few_bytes, monkeypatch):
    """With the same bits as all at once, and as much memory as those that are multiplied."""
    batch = random_batch(rng, (4, 3, 2), np.float64, 300, 20, 20)
    op = built(batch, 20, 20).plan("factored")
    blocks = sum(op._choice.listing.graphs[0].counts)
    x, y = rng.standard_normal((480, 11)), rng.standard_normal((480, 11))
    expected = op.matmat(x), op.accumulate(x.T.copy(), y.T.copy(), alpha=-0.5)
    few_bytes(blocks * 24 * 8 * 4)
    sliced = built(batch, 20, 20).plan("factored")
    widths = []
    (plan,) = sliced._plan._plans
    given = type("Plan", (), {"run": lambda *a: (widths.append(a[4]), plan.run(*a[1:]))})
    monkeypatch.setattr(sliced._plan, "_plans", [given()])
    result = poisoned((480, 11), np.float64)
    np.testing.assert_array_equal(sliced.matmat(x, out=result), expected[0])
    assert widths == [4, 4, 3]
    sums = sliced.accumulate(x.T.copy(), y.T.copy(), alpha=-0.5)
    np.testing.assert_array_equal(sums, expected[1])
    z = rng.standard_normal((2, 480)) + 1j * rng.standard_normal((2, 480))
    np.testing.assert_array_equal(sliced.apply(z), op.apply(z))


def test_collisions_of_hashes_cost_merges_only(rng, monkeypatch):
    batch = random_batch(rng, (2, 2, 2), np.float64, 300)
    matrix, magnitude = dense_batch(*batch, 4, 5)
    for mask in (0, 3):
        monkeypatch.setattr(graph, "_mixed", lambda e, _, m=mask: (e.letters & m).astype("u8"))
        check(rng, built(batch).plan("factored"), batch[0], matrix, magnitude * 5)


def test_infinite_elements_meet_no_skipped_factor(rng):
    """0 · inf of an identity's zeros would be NaN; a factored plan skips multiples, too."""
    pool = np.array([3 * np.eye(2), [[1.0, 2.0], [3.0, 4.0]]])
    op = bk.BatchedKron(pool, [[0, 1]], [0], [0]).plan("factored")
    result = op.apply([[np.inf, 1.0, 1.0, 1.0]])
    np.testing.assert_array_equal(result, [[np.inf, np.inf, 9.0, 21.0]])
