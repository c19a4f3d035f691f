"""Distributed Kronecker products on simulated ranks, next to one process and to dense matrices."""

import copy
import math
import tracemalloc
from functools import partial

import numpy as np
import pytest
from dense_oracle import DTYPES, dense_kron, random_array, rounding_bound

import batchkron as bk
from batchkron.distributed import distribute, simulate
from batchkron.operators import kronecker_product

MAX_ELEMENTS = 3000


def random_shapes(rng, sizes, square):
    """Rows and columns of some factors whose products have at most MAX_ELEMENTS elements."""
    shapes = []
    for _ in range(rng.integers(1, 6)):
        rows = int(rng.choice(sizes))
        columns = rows if square else int(rng.choice(sizes))
        longer = [*shapes, (rows, columns)]
        if max(math.prod(side) for side in zip(*longer, strict=True)) <= MAX_ELEMENTS:
            shapes = longer
    return shapes or [(2, 3)]


def random_grid(rng):
    """A number of ranks, and a grid of them."""
    ranks = int(rng.integers(1, 7))
    parts = int(rng.choice([n for n in range(1, ranks + 1) if ranks % n == 0]))
    return ranks, (ranks // parts, parts)


def random_options(rng):
    every = bool(rng.integers(2))
    return {
        "exchange": "every" if every else "group",
        "transpose": every and bool(rng.integers(2)),
        "redistribute": bool(rng.integers(2)),
    }


def run_distributed(whole, x, ranks, grid, **options):
    """The result, plan and planned volume, and the elements that each rank sent and planned."""

    def program(comm):
        op = distribute(whole, comm, grid, rows=len(x), **options)
        block = op.scatter(x)
        kept = block.copy()
        before = comm.traffic.elements
        out = np.full((len(block), op.shape[0]), np.nan, np.result_type(op.dtype, x.dtype))
        assert op.apply(block, out) is out
        sent = comm.traffic.elements - before
        np.testing.assert_array_equal(block, kept)
        return op.gather(out), op.plan, op.volume(), sent

    results = simulate(ranks, program)
    for y, *_ in results[1:]:
        np.testing.assert_array_equal(y, results[0][0])
    sent = [(counted, volume.own_elements) for _, _, volume, counted in results]
    return *results[0][:3], sent


def by_one_process(plan, factors, x):
    """gekmm of the whole, with the factors in the order of a plan."""
    sizes, y = [f.shape[1] for f in factors], x
    for each in plan.rounds:
        for product in each.products:
            chosen = slice(product.first, product.last + 1)
            before, behind = math.prod(sizes[: product.first]), math.prod(sizes[product.last + 1 :])
            y = y.reshape(len(x) * before, product.inputs, behind)
            y = bk.gekmm(factors[chosen], y)
            sizes[chosen] = [f.shape[0] for f in factors[chosen]]
    return y.reshape(len(x), -1)


@pytest.mark.parametrize("part", range(16))
def test_random_products_of_integers_are_exact(rng, part):
    """No sum is rounded, so that every element must be right."""
    for _ in range(10):
        dtype = rng.choice(DTYPES)
        shapes = random_shapes(rng, range(1, 8), square=rng.integers(2))
        factors = [rng.integers(-3, 4, shape).astype(dtype) for shape in shapes]
        ranks, grid = random_grid(rng)
        x = rng.integers(-4, 5, (rng.integers(0, 6), math.prod(f.shape[1] for f in factors)))
        options = random_options(rng)
        y, _, volume, sent = run_distributed(
            bk.KroneckerProduct(factors), x.astype(dtype), ranks, grid, **options
        )
        assert y.dtype == dtype
        np.testing.assert_array_equal(y, (dense_kron(*factors) @ x.T).T)
        assert all(counted == planned for counted, planned in sent)
        assert sum(counted for counted, _ in sent) == volume.elements
        assert volume.bytes == volume.elements * np.dtype(dtype).itemsize


@pytest.mark.parametrize("part", range(15))
def test_random_products_have_the_bits_of_one_process(rng, part):
    """Of sizes for which no kernel takes several factors at once."""
    for _ in range(10):
        dtype = rng.choice(DTYPES)
        square = bool(rng.integers(2))
        shapes = random_shapes(rng, [5, 6, 7, 9, 10, 11], square)
        factors = [random_array(rng, shape, dtype) for shape in shapes]
        ranks, grid = random_grid(rng)
        x = random_array(rng, (rng.integers(1, 6), math.prod(f.shape[1] for f in factors)), dtype)
        whole = bk.KroneckerProduct(factors)
        y, plan, *_ = run_distributed(whole, x, ranks, grid, **random_options(rng))
        np.testing.assert_array_equal(y, by_one_process(plan, factors, x))
        if square:
            np.testing.assert_array_equal(y, whole.apply(x))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_sizes_of_kernels_with_several_factors(rng, size):
    """Equal up to rounding; with 1 × 1 factors among them."""
    factors = [random_array(rng, (n, n)) for n in [size] * 3 + [1, 2]]
    x = rng.standard_normal((3, size**3 * 2))
    bound = rounding_bound(factors, np.abs(x.T), left=True).T
    for ranks, grid in [(4, (1, 4)), (3, (1, 3)), (4, (2, 2))]:
        y, *_ = run_distributed(bk.KroneckerProduct(factors), x, ranks, grid)
        assert (np.abs(y - (dense_kron(*factors) @ x.T).T) <= bound).all()


@pytest.mark.parametrize(
    ("base", "modes", "grid"),
    [
        (4, 4, (1, 4)),  # Figure 8 of the paper, 3 modes at a time
        (8, 4, (2, 4)),
        (2, 9, (1, 2)),
        (4, 6, (2, 2)),
        (4, 4, (2, 4)),
        (2, 4, (1, 8)),  # one mode at a time: as with "every"
        (2, 7, (3, 4)),
        (3, 4, (1, 3)),
        (3, 5, (2, 9)),
        (6, 3, (1, 4)),
    ],
)
def test_the_volume_is_that_of_the_formula(rng, base, modes, grid):
    rows, elements = 2 * grid[0], base**modes
    part = elements // grid[1]
    local = max(n for n in range(modes + 1) if part % base**n == 0)
    rounds = -(-modes // local)
    expected = grid[0] * rounds * (rows // grid[0]) * (elements - part)
    x = rng.standard_normal((rows, elements))
    whole, ranks = bk.KroneckerProduct([rng.standard_normal((base, base))] * modes), math.prod(grid)
    _, plan, volume, sent = run_distributed(whole, x, ranks, grid)
    assert len(plan.rounds) == volume.exchanges == rounds
    assert sum(counted for counted, _ in sent) == volume.elements == expected
    _, plan, every, _ = run_distributed(whole, x, ranks, grid, exchange="every")
    assert every.exchanges == modes
    assert volume.elements * modes == every.elements * rounds
    _, _, less, _ = run_distributed(whole, x, ranks, grid, redistribute=False)
    assert less.elements * rounds == volume.elements * (rounds - 1)


def test_shrinking_factors_come_before_the_exchange():
    """A factor that shortens vectors is applied as soon as its mode is whole."""
    shapes = [(6, 6), (2, 8), (6, 6)]
    rng = np.random.default_rng(0)
    whole = bk.KroneckerProduct([rng.standard_normal(shape) for shape in shapes])
    x = rng.standard_normal((1, whole.shape[1]))
    _, plan, volume, _ = run_distributed(whole, x, 2, (1, 2))
    first = plan.rounds[0]
    assert {k for p in first.products for k in range(p.first, p.last + 1)} == {1, 2}
    # two exchanges of 72 elements, half of which stay where they are
    assert (volume.exchanges, volume.elements) == (2, 72)


def test_growing_factors_come_after_the_exchange():
    whole = bk.KroneckerProduct([np.ones((4, 4)), np.ones((12, 4)), np.ones((4, 4))])
    _, plan, volume, _ = run_distributed(whole, np.ones((1, 64)), 2, (1, 2))
    groups = [[(p.first, p.last) for p in each.products] for each in plan.rounds]
    assert groups == [[(2, 2)], [(0, 1)]]
    assert volume.elements == 64 // 2 + 192 // 2


def test_vectors_of_other_dtypes_and_shapes(rng):
    factors = [random_array(rng, shape, "float32") for shape in [(3, 5), (5, 3), (6, 7)]]
    whole = bk.KroneckerProduct(factors)
    z = random_array(rng, (2, 2, 105), "complex64")
    wide, X = rng.standard_normal((4, 105)), random_array(rng, (105, 3), "float32")

    def program(comm):
        op = distribute(whole, comm, (1, 3))
        y = op.apply(op.scatter(z))
        double = op.apply(op.scatter(wide)[::2])  # float64, and not contiguous
        columns = op @ np.ascontiguousarray(op.scatter(X.T).T)
        single = op @ op.scatter(X[:, 0])
        return [op.gather(v) for v in (y, double, np.ascontiguousarray(columns.T), single)]

    for y, double, columns, single in simulate(3, program):
        assert (y.dtype, double.dtype) == (np.complex64, np.float64)
        np.testing.assert_allclose(y, whole.apply(z), rtol=0, atol=1e-4)
        np.testing.assert_allclose(double, whole.apply(wide[::2]), rtol=0, atol=1e-12)
        np.testing.assert_allclose(columns, whole.apply(X.T), rtol=0, atol=1e-4)
        np.testing.assert_allclose(single, whole @ X[:, 0], rtol=0, atol=1e-4)


def test_transposes_sums_and_products_of_operators(rng):
    factors = [random_array(rng, (n, n), "complex128") for n in (5, 6, 7)]
    others = [random_array(rng, (n, n)) for n in (5, 6, 7)]
    A, B = bk.KroneckerProduct(factors), bk.KroneckerProduct(others)
    x = random_array(rng, 210, "complex128")
    expected = [A.T @ x, A.H @ x, 2j * (A @ (B @ x)) - B.T @ x + 3 * x]

    def program(comm):
        a, b = distribute(A, comm, (1, 4)), distribute(B, comm, (1, 4))
        block = a.scatter(x)
        identity = bk.Identity(len(block))
        added = (2j * (a @ b) - b.T + 3 * identity) @ block
        assert (a.layout, a.T.layout) == (b.layout, a.output_layout)
        return [a.gather(y) for y in (a.T @ block, a.H @ block, added)]

    for found in simulate(4, program):
        for y, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(y, right, rtol=0, atol=1e-11 * np.abs(right).max())


def test_rectangular_operators_compose(rng):
    A = bk.KroneckerProduct([rng.integers(-3, 4, s).astype(float) for s in [(4, 3), (2, 6)]])
    x = rng.integers(-3, 4, 18).astype(float)

    def program(comm):
        a = distribute(A, comm, (1, 3))
        assert (a.T.layout, a.T.output_layout) == (a.output_layout, a.layout)
        return a.gather((a.T @ a) @ a.scatter(x), layout=a.layout)

    for y in simulate(3, program):
        np.testing.assert_array_equal(y, A.T @ (A @ x))


def test_accumulate_and_alpha(rng):
    whole = bk.KroneckerProduct([rng.integers(-3, 4, (n, n)).astype(float) for n in (4, 3, 4)])
    x, y = rng.integers(-3, 4, (2, 5, 48)).astype(float)
    expected = y - 2 * whole.apply(x)

    def program(comm, options):
        op = distribute(whole, comm, (1, 4), **options)
        target = np.ascontiguousarray(y[:, op.output_layout.columns(comm.rank)])
        assert op.accumulate(op.scatter(x), target, alpha=-2) is target
        return op.gather(target)

    for options in ({}, {"redistribute": False}, {"exchange": "every", "transpose": True}):
        for found in simulate(4, lambda comm, options=options: program(comm, options)):
            np.testing.assert_array_equal(found, expected)


def test_alpha_where_every_factor_was_applied_early():
    whole = bk.KroneckerProduct([np.ones((1, 2)), np.ones((3, 6)), np.ones((4, 4))])
    x, expected = np.arange(48.0), 3 * np.ones(12) - 2 * (np.arange(48.0).sum())

    def program(comm, redistribute):
        op = distribute(whole, comm, (1, 2), redistribute=redistribute)
        target = np.full(op.shape[0], 3.0)
        return op.gather(op.accumulate(op.scatter(x), target, alpha=-2))

    for redistribute in (False, True):
        for y in simulate(2, lambda comm, r=redistribute: program(comm, r)):
            np.testing.assert_array_equal(y, expected)


def test_many_vectors_go_in_chunks(rng, monkeypatch):
    """One chunk is sent while the next is multiplied; the result and the volume are the same."""
    monkeypatch.setattr("batchkron.distributed.products.kronecker_product._MIN_CHUNK_BYTES", 1)
    factors = [random_array(rng, (n, n)) for n in (5, 6, 5)]
    whole, x = bk.KroneckerProduct(factors), rng.standard_normal((19, 150))
    y, _, volume, sent = run_distributed(whole, x, 3, (1, 3))
    np.testing.assert_array_equal(y, whole.apply(x))
    assert sum(counted for counted, _ in sent) == volume.elements


def test_update_replaces_the_factors(rng):
    old, new = ([rng.integers(-3, 4, (4, 4)).astype(float) for _ in range(3)] for _ in range(2))
    whole, x = bk.KroneckerProduct(old), rng.integers(-3, 4, 64).astype(float)

    def program(comm):
        op = distribute(whole, comm, (1, 2))
        transposed = op.T
        op.update(new)
        block = op.scatter(x)
        return op.gather(op @ block), op.gather(transposed @ block)

    dense = dense_kron(*new)
    for y, z in simulate(2, program):
        np.testing.assert_array_equal(y, dense @ x)
        np.testing.assert_array_equal(z, dense.T @ x)
    np.testing.assert_array_equal(whole @ x, dense_kron(*old) @ x)


def test_out_needs_no_memory_after_the_first_call(rng):
    whole = bk.KroneckerProduct([rng.standard_normal((16, 16))] * 4)

    def program(comm):
        op = distribute(whole, comm, (1, 2))
        x = op.scatter(np.ones((4, 16**4)))
        out = np.empty_like(x)
        op.apply(x, out)
        comm.broadcast(None, 0)  # wait for the other rank
        if comm.rank == 0:
            tracemalloc.start()
        op.apply(x, out)
        comm.broadcast(None, 0)
        return tracemalloc.get_traced_memory()[1] / x.nbytes if comm.rank == 0 else None

    try:
        assert simulate(2, program)[0] < 0.05
    finally:
        tracemalloc.stop()


def test_one_rank_needs_no_communicator(rng):
    whole = bk.KroneckerProduct([rng.standard_normal((3, 4)), rng.standard_normal((5, 2))])
    op = distribute(whole, rows=3)
    x = rng.standard_normal((3, 8))
    np.testing.assert_array_equal(op.apply(op.scatter(x)), whole.apply(x))
    assert op.volume().elements == op.volume().exchanges == 0
    assert "on a grid of 1 × 1 ranks, 3 vectors" in op.describe()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"grid": (2, 3)}, ValueError, "G_M \\* G_K = 1, the number of ranks"),
        ({"grid": "square"}, ValueError, "expected 'auto' or"),
        ({"grid": (1, -1)}, ValueError, "grid is"),
        ({"rows": 2.0}, TypeError, "expected an integer"),
        ({"rows": -1}, ValueError, "expected 0 or more"),
        ({"exchange": "never"}, ValueError, "expected 'group' or 'every'"),
        ({"redistribute": 1}, TypeError, "expected a bool"),
        ({"transpose": True}, ValueError, "a baseline of exchange='every'"),
        ({"comm": object()}, TypeError, "expected a communicator of mpi4py"),
    ],
)
def test_arguments_are_checked(arguments, error, text):
    with pytest.raises(error, match=text):
        distribute(bk.KroneckerProduct([np.eye(2)]), **arguments)


def test_what_cannot_be_distributed_is_named():
    with pytest.raises(TypeError, match="a Identity cannot be distributed"):
        distribute(bk.Identity(3))
    with pytest.raises(ValueError, match=r"batch_shape \(2,\)"):
        distribute(bk.KroneckerProduct([np.ones((2, 3, 3))]))


def test_what_needs_the_whole_matrix_is_refused():
    op = distribute(bk.KroneckerProduct([np.eye(2)]))
    for name in ("to_dense", "diagonal", "trace"):
        with pytest.raises(TypeError, match=f"{name} of the operator that was distributed"):
            getattr(op, name)()
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.copy(op)

    def program(comm):
        return distribute(bk.KroneckerProduct([np.eye(2)] * 2), comm, (1, 2), redistribute=False).T

    with pytest.raises(ValueError, match="redistribute=True"):
        simulate(2, program)


@pytest.mark.parametrize("part", range(6))
def test_results_are_stored_straight_to_their_owners(rng, part):
    for _ in range(8):
        modes, ranks = int(rng.integers(1, 5)), int(rng.choice([2, 3, 4]))
        shapes = [tuple(int(n) for n in rng.integers(1, 6, 2)) for _ in range(modes)]
        whole = bk.KroneckerProduct([rng.standard_normal(shape) for shape in shapes])
        rows = int(rng.integers(1, 20))
        x = rng.standard_normal((rows, whole.shape[1]))
        added = rng.standard_normal((rows, whole.shape[0]))
        options = {
            "rows": rows,
            "exchange": str(rng.choice(["group", "every"])),
            "redistribute": bool(rng.random() < 0.7),
        }

        def program(comm, stores, whole=whole, x=x, added=added, options=options, ranks=ranks):
            comm.stores = stores
            op = distribute(whole, comm, (1, ranks), **options)
            before = comm.traffic.elements
            y = op.apply(op.scatter(x), out=np.full((len(x), op.shape[0]), np.nan))
            sent = comm.traffic.elements - before
            again = op.apply(op.scatter(x))  # with the same buffers
            np.testing.assert_array_equal(again, y)
            out = op.output_layout.block_of(added, comm.rank)
            op.accumulate(op.scatter(x), out, alpha=3)
            return op.gather(y), op.gather(out), sent, op.volume().own_elements

        stored = simulate(ranks, lambda comm, run=program: run(comm, True))
        sent = simulate(ranks, lambda comm, run=program: run(comm, False))
        for one, other in zip(stored, sent, strict=True):
            np.testing.assert_array_equal(one[0], other[0])
            np.testing.assert_array_equal(one[1], other[1])
            assert one[2] == one[3] == other[2]


def spread_by_definition(plan, owners, x, outer, inner, alpha):
    """What `own_spread` returns is to do, element by element as its contract says."""
    parts, columns = len(owners.arrays), x.size // (outer * inner)
    y = np.full((outer, columns, inner), np.nan)  # of square factors
    plan.run(x, y, outer, inner, alpha, False)
    own = columns // parts
    for l in range(outer):  # noqa: E741
        for k in range(columns):
            at = l // owners.group * owners.vector + l % owners.group * owners.slice
            at += k % own * owners.row
            owners.arrays[k // own][at : at + inner] = y[l, k]
    return True


@pytest.mark.parametrize(("size", "modes", "ranks"), [(4, 4, 2), (4, 4, 4), (6, 3, 3), (2, 6, 4)])
@pytest.mark.parametrize("rows", [1, 3, 17])
@pytest.mark.parametrize("exchange", ["group", "every"])
def test_multiplies_that_spread_their_results(monkeypatch, rng, size, modes, ranks, rows, exchange):
    """The places that a backend is told are those of the owners, in each round."""
    calls = []

    def own_spread(plan):
        calls.append(plan)
        return partial(spread_by_definition, plan)

    monkeypatch.setattr(kronecker_product, "own_spread", own_spread)
    whole = bk.KroneckerProduct(rng.standard_normal((modes, size, size)))
    x = rng.standard_normal((rows, whole.shape[1]))

    def program(comm):
        comm.stores = True
        op = distribute(whole, comm, (1, ranks), rows=rows, exchange=exchange)
        return op.gather(op.apply(op.scatter(x))), op.plan.num_exchanges

    results = simulate(ranks, program)
    for found, _ in results:
        np.testing.assert_allclose(found, whole.apply(x), rtol=0, atol=1e-11)
    assert len(calls) >= (2 * ranks if results[0][1] == 2 else 0)


def test_what_needs_the_whole_matrix_is_refused_of_combinations(rng):
    """Each rank would take its blocks for whole vectors, and return a number of its own."""
    whole = bk.KroneckerProduct([np.eye(2) + 1] * 3)

    def program(comm):
        op = distribute(whole, comm)
        for made in (2 * op, op + op, op @ op, op + bk.Identity(op.shape[0])):
            for name in ("to_dense", "toarray", "diagonal", "trace"):
                with pytest.raises(TypeError, match="of the operator that was distributed"):
                    getattr(made, name)()

    simulate(2, program)
    one = distribute(whole)  # on one rank a block is the whole vector
    np.testing.assert_allclose((one @ one).trace(), (whole @ whole).trace())


def test_identities_take_no_memory(rng):
    """A rank holds an identity, which is not multiplied by, as one process does."""
    size = 2**17  # a matrix of this size takes 128 GiB
    whole = bk.KroneckerProduct([rng.standard_normal((3, 3)), bk.Identity(size)])
    new = [rng.standard_normal((3, 3)), bk.Identity(size)]
    x = rng.standard_normal(whole.shape[1])

    def program(comm):
        op = distribute(whole, comm)
        relatives = [op, op.T, op.H, op.astype(np.complex128)]
        before = [op.gather(each @ op.scatter(x)) for each in relatives]
        op.update(new)
        return before, [op.gather(each @ op.scatter(x)) for each in relatives]

    results = simulate(2, program)
    for turn in range(2):
        for found in results:
            relatives = whole, whole.T, whole.H, whole.astype(np.complex128)
            for y, each in zip(found[turn], relatives, strict=True):
                np.testing.assert_allclose(y, each @ x, rtol=1e-13, atol=1e-13)
        whole.update(new)
