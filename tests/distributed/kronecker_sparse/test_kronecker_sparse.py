"""Distributed Kronecker-sparse matrices on simulated ranks, next to dense matrices."""

import copy
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from dense_oracle import DTYPES, random_array
from kron_sparse_oracle import dense_matrix

import batchkron as bk
from batchkron.distributed import distribute, simulate
from batchkron.distributed.kronecker_sparse.sparse_plan import make_sparse_plan
from batchkron.solvers import gmres
from batchkron.spec.kron_sparse import Pattern


def factorisations(rng, size):
    """A random (a, rows, d) with a · rows · d = size."""
    a = int(rng.choice([n for n in range(1, size + 1) if size % n == 0]))
    rest = size // a
    d = int(rng.choice([n for n in range(1, rest + 1) if rest % n == 0]))
    return a, rest // d, d


def random_patterns(rng, count):
    """Patterns of a chain with at most 300 elements between them."""
    found = [tuple(int(n) for n in rng.integers(1, 6, 4))]
    while len(found) < count:
        a, _, c, d = found[-1]
        i, b, j = factorisations(rng, a * c * d)
        columns = int(rng.integers(1, 5))
        if i * columns * j <= 300:
            found.append((i, b, columns, j))
    return found


def random_chain(rng, count, dtype, layout):
    values = [
        rng.integers(-2, 3, shape).astype(dtype) * (1 if k else 2)
        for k, shape in enumerate(random_patterns(rng, count))
    ]
    if count == 1 and rng.integers(2):
        return values, bk.KroneckerSparse(values[0], layout=layout)
    return values, bk.KroneckerSparseChain(values, layout=layout)


@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
@pytest.mark.parametrize("part", range(4))
def test_random_chains(rng, layout, part):
    """Sums of integers are exact, what is sent is what is planned; transposes as well."""
    for _ in range(8):
        dtype, ranks = rng.choice(DTYPES), int(rng.integers(1, 8))
        values, whole = random_chain(rng, int(rng.integers(1, 5)), dtype, layout)
        parts = int(rng.choice([n for n in range(1, ranks + 1) if ranks % n == 0]))
        options = {"rows": int(rng.integers(0, 4)), "redistribute": bool(rng.integers(2))}
        matrix = reduce(np.matmul, [dense_matrix(each) for each in values])
        x = rng.integers(-2, 3, (options["rows"], matrix.shape[1])).astype(dtype)
        expected, first = x @ matrix.T, layout == "batch-first"
        given = x if first else x.T

        def program(comm, whole=whole, given=given, grid=(ranks // parts, parts), options=options):
            op = distribute(whole, comm, grid, **options)
            block = op.scatter(given if comm.rank == 0 else None, root=0)
            before = comm.traffic.elements
            own = op.shape[0]
            shape = (len(block), own) if op.array_layout == "batch-first" else (own, len(block.T))
            out = np.full(shape, np.nan, op.dtype)
            assert op.apply(block, out) is out
            assert comm.traffic.elements - before == op.volume().own_elements
            assert op.T.layout == op.output_layout
            assert op.T.output_layout == op.layout
            back = op.T.apply(out)
            return op.gather(out), op.gather(back, layout=op.layout), op.volume(), op.describe()

        results = simulate(ranks, program)
        total = sum(volume.own_elements for *_, volume, _ in results)
        for y, back, volume, text in results:
            np.testing.assert_array_equal(y if first else y.T, expected)
            np.testing.assert_array_equal(back if first else back.T, expected @ matrix)
            assert volume.elements == total
            assert text.count("dealt out") >= 1


@pytest.mark.parametrize(
    ("pattern", "parts", "exchanges"),
    [
        ((6, 3, 2, 1), 3, 0),  # a
        ((7, 2, 2, 3), 3, 0),  # d: 7 blocks cannot be spread as evenly
        ((1, 4, 3, 9), 3, 0),  # d
        ((2, 2, 2, 2), 4, 2),  # four small matrices
        ((1, 7, 5, 1), 3, 1),  # a dense matrix, by its rows
        ((1, 3, 4, 2), 5, 2),  # two small matrices on five ranks
    ],
)
def test_what_is_exchanged(pattern, parts, exchanges, rng):
    values = rng.integers(-3, 4, pattern).astype(float)
    x = rng.integers(-3, 4, dense_matrix(values).shape[1]).astype(float)

    def program(comm):
        op = distribute(bk.KroneckerSparse(values), comm)
        own = op._pieces[0].patterns[0].nonzeros
        return op.gather(op @ op.scatter(x)), op.volume().exchanges, own

    results = simulate(parts, program)
    for y, made, _ in results:
        np.testing.assert_array_equal(y, dense_matrix(values) @ x)
        assert made == exchanges
    work = [own for *_, own in results]
    assert sum(work) == values.size
    assert min(work) > 0


def butterfly(levels):
    return [(1 << k, 2, 2, 1 << (levels - 1 - k)) for k in range(levels)]


@pytest.mark.parametrize(("parts", "levels"), [(2, 4), (4, 6), (8, 7)])
def test_a_butterfly_is_exchanged_once(parts, levels):
    """The first factors are split by their blocks, the last ones by residues."""
    patterns, size = [Pattern(*each) for each in butterfly(levels)], 1 << levels
    plan = make_sparse_plan(patterns, parts, False)
    assert [each.split for each in plan.segments] == ["blocks", "residues"]
    assert plan.num_exchanges == 1
    assert sum(map(plan.sent, range(parts))) == size - size // parts
    back = make_sparse_plan(patterns, parts, True)
    assert back.source == back.target
    assert sum(map(back.sent, range(parts))) == 2 * (size - size // parts)
    assert plan.multiply_adds == 4 * size // 2 * levels // parts


def test_too_many_ranks_for_a_butterfly(rng):
    """With eight ranks and 16 elements no factor but the ends can be split by a or d alone."""
    values = [rng.integers(-3, 4, shape).astype(float) for shape in butterfly(4)]
    matrix, x = reduce(np.matmul, map(dense_matrix, values)), rng.integers(-3, 4, 16).astype(float)

    def program(comm):
        op = distribute(bk.KroneckerSparseChain(values), comm)
        return op.gather(op @ op.scatter(x))

    for y in simulate(8, program):
        np.testing.assert_array_equal(y, matrix @ x)


@pytest.mark.parametrize("pattern", [(8, 5, 3, 2), (1, 3, 5, 12), (3, 4, 6, 2), (1, 9, 6, 1)])
def test_the_bits_of_one_process(rng, pattern):
    for dtype in DTYPES:
        values = random_array(rng, pattern, dtype)
        whole = bk.KroneckerSparse(values)
        x = random_array(rng, (2, whole.shape[1]), dtype)

        def program(comm, whole=whole, x=x):
            op = distribute(whole, comm, (1, 3))
            return op.gather(op.apply(op.scatter(x)))

        for y in simulate(3, program):
            np.testing.assert_array_equal(y, whole.apply(x))


def test_relatives_and_updates(rng):
    shapes = [(2, 3, 2, 4), (4, 4, 3, 1)]
    assert all(a * c * d == i * b * j for (a, _, c, d), (i, b, _, j) in pairwise(shapes))
    old, new = ([random_array(rng, shape, "complex64") for shape in shapes] for _ in range(2))
    matrix = dense_matrix(new[0]) @ dense_matrix(new[1])
    x, y = (random_array(rng, n, "complex64") for n in reversed(matrix.shape))

    def program(comm):
        op = distribute(bk.KroneckerSparseChain(old), comm, (1, 3))
        adjoint, wide = op.H, op.T.astype("complex128")
        op.update(new)
        found = [
            op.gather(op @ op.scatter(x)),
            adjoint.gather(adjoint @ adjoint.scatter(y)),
            wide.gather(wide @ wide.scatter(y)),
        ]
        op.T.update([v.swapaxes(1, 2) for v in reversed(old)])
        return *found, op.gather(op @ op.scatter(x))

    before = dense_matrix(old[0]) @ dense_matrix(old[1]) @ x
    bound = 30 * np.finfo("float32").eps * np.abs(matrix).sum()
    for product, adjoint, transposed, again in simulate(3, program):
        np.testing.assert_allclose(product, matrix @ x, rtol=0, atol=bound)
        np.testing.assert_allclose(adjoint, matrix.conj().T @ y, rtol=0, atol=bound)
        np.testing.assert_allclose(transposed, matrix.T @ y, rtol=0, atol=bound)
        np.testing.assert_allclose(again, before, rtol=0, atol=bound)


@pytest.mark.parametrize("pattern", [(6, 2, 3, 1), (1, 3, 2, 5), (1, 3, 2, 2)])
def test_accumulate_and_complex_vectors(rng, pattern):
    values = rng.integers(-3, 4, pattern).astype(float)
    matrix = dense_matrix(values)
    x = rng.integers(-3, 4, (2, matrix.shape[1])) + 1j * rng.integers(-3, 4, (2, matrix.shape[1]))
    y = rng.integers(-3, 4, (2, matrix.shape[0])).astype(float)

    def program(comm):
        op = distribute(bk.KroneckerSparse(values), comm, (1, 3))
        added = op.T.scatter(y)
        op.accumulate(op.scatter(x.real), added, alpha=-2)
        return op.gather(added), op.gather(op.apply(op.scatter(x)))

    for added, product in simulate(3, program):
        np.testing.assert_array_equal(added, y - 2 * x.real @ matrix.T)
        np.testing.assert_array_equal(product, x @ matrix.T)


@pytest.mark.parametrize(
    "pattern", [(0, 2, 2, 3), (2, 0, 2, 2), (2, 2, 0, 2), (3, 2, 2, 0), (1, 0, 3, 4)]
)
def test_empty_matrices(pattern):
    values = np.ones(pattern)
    rows, columns = dense_matrix(values).shape

    def program(comm):
        op = distribute(bk.KroneckerSparse(values), comm, (1, 3))
        return op.gather(op @ op.scatter(np.ones(columns)))

    for y in simulate(3, program):
        np.testing.assert_array_equal(y, np.zeros(rows))


def test_a_solver_takes_them(rng):
    values = [random_array(rng, shape, "float64") / 4 for shape in butterfly(5)]
    matrix = reduce(np.matmul, map(dense_matrix, values)) + 4 * np.eye(32)
    b = rng.standard_normal(32)

    def program(comm):
        op = distribute(bk.KroneckerSparseChain(values), comm)
        result = gmres(op + 4 * bk.Identity(op.shape[0]), op.scatter(b), rtol=1e-10)
        return op.gather(result.x)

    for x in simulate(4, program):
        assert np.linalg.norm(b - matrix @ x) <= 1.01e-10 * np.linalg.norm(b)


def test_errors():
    chain = bk.KroneckerSparseChain([np.ones((1, 2, 2, 2)), np.ones((2, 2, 2, 1))])
    op = distribute(chain)
    with pytest.raises(ValueError, match="values has 1 entries; expected 2"):
        op.update([np.ones((1, 2, 2, 2))])
    with pytest.raises(ValueError, match=r"values\[1\] has shape \(2, 2, 2\)"):
        op.update([np.ones((1, 2, 2, 2)), np.ones((2, 2, 2))])
    with pytest.raises(ValueError, match="exchange and transpose are for a KroneckerProduct"):
        distribute(chain, exchange="every")
    with pytest.raises(ValueError, match=r"x has shape \(3,\); expected \(..., 4\)"):
        op.apply(np.ones(3))
    for method in (op.to_dense, op.diagonal, op.trace):
        with pytest.raises(TypeError, match="needs the whole matrix"):
            method()
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.copy(op)
    last = distribute(bk.KroneckerSparseChain(chain.factors, layout="batch-last"))
    with pytest.raises(ValueError, match=r"x has shape \(2, 4\); expected \(4, ...\)"):
        last.apply(np.ones((2, 4)))
    with pytest.raises(ValueError, match="redistribute is for"):
        distribute(bk.KroneckerSum([np.eye(2)]), redistribute=False)


def test_layouts_that_differ_are_refused():
    def program(comm):
        sparse = distribute(bk.KroneckerSparse(np.ones((1, 4, 4, 8))), comm)
        product = distribute(bk.KroneckerProduct([np.eye(4), np.eye(8)]), comm)
        assert sparse.shape == product.shape
        with pytest.raises(ValueError, match="different layouts do not add"):
            sparse + product
        for make in (lambda: sparse @ product, lambda: product @ (2 * sparse)):
            with pytest.raises(ValueError, match="different layouts do not compose"):
                make()
        x = np.arange(32.0)
        total = (product @ product + 2 * product + bk.Identity(product.shape[1])) @ product
        return product.gather(total @ product.scatter(x))

    for y in simulate(4, program):
        np.testing.assert_array_equal(y, 4 * np.arange(32.0))


class _TooLarge:
    """An array-like for which there is no memory."""

    def __array__(self, dtype=None, copy=None):
        raise MemoryError("no room")


@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
def test_all_ranks_hear_of_vectors_that_are_no_array(layout):
    def program(comm):
        op = distribute(bk.KroneckerSparse(np.ones((1, 2, 2, 2)), layout=layout), comm)
        with pytest.raises(ValueError, match="inhomogeneous"):
            op.scatter([[1.0, 2.0], [3.0]] if comm.rank == 0 else None, root=0)
        with pytest.raises(MemoryError, match="no room"):
            op.scatter(_TooLarge() if comm.rank == 0 else None, root=0)
        return True

    assert simulate(2, program) == [True, True]
