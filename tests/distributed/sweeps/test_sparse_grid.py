"""Distributed operators on sparse grids on simulated ranks, next to one process."""

from time import sleep
from types import SimpleNamespace

import numpy as np
import pytest
from dense_oracle import DTYPES, random_array
from sweep_oracle import as_dict, operator_of, restricted

import batchkron as bk
from batchkron.distributed import SimulatedCommunicator, distribute, simulate
from batchkron.distributed.sweeps import sparse_grid
from batchkron.operators.sparse_grid.listing import list_sweeps
from batchkron.problems import SparseGrid, make
from batchkron.solvers import gmres

FINEST = {1: 5, 2: 4, 3: 3, 4: 2}


def random_grid(rng, modes):
    """Sparse, full, adaptive (closed), or with gaps and in any order."""
    levels = [FINEST[modes]] * modes
    kind = rng.choice(["sparse", "full", "adaptive", "gaps"])
    if kind == "sparse":
        return SparseGrid.sparse(levels)
    if kind == "full":
        return SparseGrid.full([max(1, FINEST[modes] - 1)] * modes)
    cells = np.unique(rng.integers(0, 1 << FINEST[modes], (int(rng.integers(1, 9)), modes)), axis=0)
    if kind == "adaptive":
        return SparseGrid.custom(cells, levels).closed()
    return rng.permutation(cells)


def random_operator(rng, dtype, modes, integers=False):
    """Up to four terms of operators with and without fluxes, and of identities."""
    sizes = rng.integers(1, 4, modes)
    pool = [
        [operator_of(rng, FINEST[modes], int(n), kind, dtype) for kind in ("volume", "full")]
        for n in sizes
    ]
    if integers:
        for operator in (one for both in pool for one in both):
            operator.blocks = rng.integers(-2, 3, operator.blocks.shape).astype(dtype)
    picks = rng.integers(0, 3, (int(rng.integers(0, 5)), modes))
    terms = [[(*pool[k], None)[number] for k, number in enumerate(pick)] for pick in picks]
    scale = rng.integers(-2, 3, len(terms)).astype(dtype)
    return bk.SparseGridOperator(random_grid(rng, modes), terms, sizes, coefficients=scale)


def whole_product(op, x):
    """A x on flat vectors (rows, N)."""
    return op.apply_flat(x, np.full((len(x), op.shape[0]), np.nan, op.dtype))


def pairs_product(op, x):
    """A x from the definition: products of all coupled pairs of cells, without sweeps."""
    spec = op._spec
    y = np.zeros_like(x)
    for scale, numbers in zip(spec.coefficients, spec.terms, strict=True):
        factors = [None if number < 0 else as_dict(spec.matrices[number]) for number in numbers]
        y += scale * (restricted(spec.cells, factors, spec.sizes) @ x)
    return y


@pytest.mark.parametrize("way", ["sends", "shares_memory", "stores"])
@pytest.mark.parametrize("modes", [1, 2, 3, 4])
def test_random_operators(rng, modes, way):
    """The bits of one process; what is sent, or read of others, is what is planned."""
    for _ in range(8):
        dtype = rng.choice(DTYPES)
        whole, ranks = random_operator(rng, dtype, modes), int(rng.integers(1, 6))
        parts = int(rng.choice([n for n in range(1, ranks + 1) if ranks % n == 0]))
        x = random_array(rng, (int(rng.integers(0, 4)), whole.shape[1]), dtype)
        grid = ranks // parts, parts

        def program(comm, whole=whole, x=x, grid=grid):
            setattr(comm, way, True)
            op = distribute(whole, comm, grid, rows=len(x))
            block, before = op.scatter(x), comm.traffic.elements
            out = np.full((len(block), op.shape[0]), np.nan, op.dtype)
            assert op.apply(block, out) is out
            sent = comm.traffic.elements - before
            assert sent == op.volume().own_elements
            back = op.H.apply(op.scatter(x))
            return op.gather(out), op.gather(back), sent, op.volume().elements

        results = simulate(ranks, program)
        for y, back, _, elements in results:
            np.testing.assert_array_equal(y, whole_product(whole, x))
            np.testing.assert_array_equal(back, whole_product(whole.H, x))
            assert elements == sum(result[2] for result in results)


@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize("modes", [1, 2, 3])
def test_own_blocks_before_those_of_others(rng, monkeypatch, modes, stores):
    """As devices do: exact for integers, and what is sent is what is planned."""
    monkeypatch.setattr(sparse_grid, "_is_on_device", lambda: True)
    for _ in range(6):
        whole = random_operator(rng, "float64", modes, integers=True)
        x = rng.integers(-4, 5, (int(rng.integers(1, 4)), whole.shape[1])).astype(float)
        added = rng.integers(-4, 5, (len(x), whole.shape[0])).astype(float)

        def program(comm, whole=whole, x=x, added=added):
            comm.stores = stores
            op = distribute(whole, comm, (1, comm.size), rows=len(x))
            block, before = op.scatter(x), comm.traffic.elements
            y = op.apply(block)
            assert comm.traffic.elements - before == op.volume().own_elements
            out = np.array(op.output_layout.block_of(added, comm.rank))
            op.accumulate(block, out, alpha=-3)
            np.testing.assert_array_equal(block, op.scatter(x))
            return op.gather(y), op.gather(out)

        expected = whole_product(whole, x)
        for y, out in simulate(3, program):
            np.testing.assert_array_equal(y, expected)
            np.testing.assert_array_equal(out, added - 3 * expected)


def test_products_that_follow_each_other_in_common_memory(rng):
    """Ranks of different speed: none writes to what another one still reads."""
    whole = [make("continuity-3d", level, 2).operator for level in (3, 4, 5)]
    x = [rng.standard_normal(op.shape[1]) for op in whole]
    expected = [op @ vector for op, vector in zip(whole, x, strict=True)]

    def program(comm):
        comm.shares_memory = True
        parts = [distribute(op, comm) for op in whole]
        blocks = [op.scatter(vector) for op, vector in zip(parts, x, strict=True)]
        waits = np.random.default_rng(comm.rank)
        for number in range(60):
            chosen = number * 7 % 3
            if number == 30:  # while others may still read
                parts[0] = distribute(whole[0], comm)
            sleep(float(waits.choice([0.0, 0.002])))
            y = parts[chosen].apply(blocks[chosen])
            own = parts[chosen].output_layout.columns(comm.rank)
            np.testing.assert_array_equal(y, expected[chosen][own])

    simulate(4, program)


@pytest.mark.parametrize("modes", [1, 2])
def test_sums_of_integers_are_those_of_all_pairs(rng, modes):
    for _ in range(2):
        whole = random_operator(rng, "float64", modes, integers=True)
        x = rng.integers(-4, 5, whole.shape[1]).astype(float)

        def program(comm, whole=whole, x=x):
            op = distribute(whole, comm)
            return op.gather(op @ op.scatter(x))

        for y in simulate(3, program):
            np.testing.assert_array_equal(y, pairs_product(whole, x))


def test_many_columns_and_mixed_dtypes(rng):
    whole = random_operator(rng, "float64", 2)
    x = random_array(rng, (whole.shape[1], 3), np.complex128)

    def program(comm):
        op = distribute(whole, comm)
        own = op.layout.columns(comm.rank)
        return own, op @ np.ascontiguousarray(x[own])

    expected = whole @ x
    for own, y in simulate(3, program):
        scale = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(y, expected[own], rtol=0, atol=1e-13 * scale)


def term_of_three(rng, level=4):
    """A term with lower and upper parts in two modes, so that there are vectors between sweeps."""
    modes = [operator_of(rng, level, 2, "volume") for _ in range(3)]
    return SparseGrid.sparse([level] * 3), [modes]


def test_vectors_between_sweeps_are_exchanged(rng):
    whole = bk.SparseGridOperator(*term_of_three(rng), 2)
    x = rng.standard_normal(whole.shape[1])

    def program(comm):
        op = distribute(whole, comm)
        return op.gather(op @ op.scatter(x)), op.volume()

    for ranks in (1, 2, 3, 5):
        for y, volume in simulate(ranks, program):
            np.testing.assert_array_equal(y, whole @ x)
            assert (volume.exchanges > 1) == (ranks > 1)


def test_work_is_dealt_out_evenly():
    problem = make("continuity-2d", 6, 2)

    def program(comm):
        op = distribute(problem.operator, comm)
        return op.plan.work, op.plan.bounds, op.describe()

    for work, bounds, text in simulate(4, program):
        assert work.max() <= 1.26 * work.mean()
        assert work.sum() == problem.operator.multiply_adds
        starts = problem.grid.cells[list(bounds[1:-1]), 1]
        assert not starts.any()  # whole fibres along the last mode
        assert f"{work.max() / work.mean():.2f} times the mean" in text


def test_added_cells_belong_to_ranks(rng):
    """On a grid with gaps, before and after whose cells there are others."""
    cells = [[9, 6], [2, 12], [4, 4], [12, 13], [1, 1]]
    terms = [[operator_of(rng, 4, 2, "full") for _ in range(2)]]
    whole = bk.SparseGridOperator(cells, terms, 2)
    assert whole.num_added_cells
    x = rng.standard_normal(whole.shape[1])

    def program(comm):
        op = distribute(whole, comm)
        return op.gather(op @ op.scatter(x)), op.plan.work.sum()

    for y, work in simulate(4, program):
        np.testing.assert_array_equal(y, whole @ x)
        assert work == whole.multiply_adds


def test_accumulate_and_updates(rng):
    whole = random_operator(rng, "float64", 2, integers=True)
    while len(whole._spec.terms) < 2:
        whole = random_operator(rng, "float64", 2, integers=True)
    spec = whole._spec
    blocks = [rng.integers(-2, 3, m.blocks.shape).astype(float) for m in spec.matrices]
    scale = rng.integers(1, 3, len(spec.terms)).astype(float)
    x, y = rng.integers(-3, 4, (2, 2, whole.shape[1])).astype(float)

    def program(comm):
        op = distribute(whole, comm, (1, 3))
        transposed, single = op.T, op.astype(np.float32)
        op.update(blocks, scale)
        back = transposed.apply(transposed.scatter(y))
        added = op.accumulate(op.scatter(x), op.scatter(y), alpha=-2)
        return op.gather(added), op.gather(back), op.gather(single @ op.scatter(x[0]))

    results = simulate(3, program)
    whole.update(blocks, scale)
    for added, back, single in results:
        np.testing.assert_array_equal(added, y - 2 * whole_product(whole, x))
        np.testing.assert_array_equal(back, whole_product(whole.T, y))
        np.testing.assert_array_equal(single, whole @ x[0])


def test_wrong_updates_are_refused(rng):
    whole = bk.SparseGridOperator(*term_of_three(rng, 2), 2)
    op = distribute(whole)
    with pytest.raises(ValueError, match="coefficients has shape"):
        op.update(coefficients=[1.0, 2.0])
    with pytest.raises(ValueError, match="blocks"):
        op.update([np.ones((1, 2, 2))])
    with pytest.raises(ValueError, match="for a KroneckerProduct, not for a SparseGridOperator"):
        distribute(whole, exchange="every")


def test_more_ranks_than_cells(rng):
    """Some have nothing; a grid of one cell sends nothing."""
    single = SimpleNamespace(rows=[0], columns=[0], blocks=rng.standard_normal((1, 2, 2)))
    whole = bk.SparseGridOperator([[0, 0]], [[single, single]], 2)
    x = rng.standard_normal(4)

    def program(comm):
        op = distribute(whole, comm)
        return op.gather(op @ op.scatter(x)), op.shape[0], op.volume().elements

    results = simulate(4, program)
    assert sorted(size for _, size, _ in results) == [0, 0, 0, 4]
    for y, _, elements in results:
        np.testing.assert_array_equal(y, whole @ x)
        assert elements == 0


def test_without_terms_the_product_is_zero():
    whole = bk.SparseGridOperator([[0], [1], [2]], [], 2)

    def program(comm):
        op = distribute(whole, comm)
        y = op.apply(np.ones(op.shape[1]), np.full(op.shape[0], np.nan))
        return op.gather(y), op.gather(op.accumulate(y, np.ones(op.shape[0])))

    for y, added in simulate(2, program):
        np.testing.assert_array_equal(y, np.zeros(6))
        np.testing.assert_array_equal(added, np.ones(6))


def test_a_system_is_solved_on_ranks(rng):
    problem = make("diffusion-2d", 3, 1)
    b = rng.standard_normal(problem.unknowns)

    def program(comm):
        op = distribute(problem.operator, comm)
        shifted = bk.Identity(op.shape[0]) - 0.01 * op
        return op.gather(gmres(shifted, op.scatter(b), rtol=1e-10).x)

    for x in simulate(3, program):
        residual = b - x + 0.01 * (problem.operator @ x)
        assert np.linalg.norm(residual) <= 1.01e-10 * np.linalg.norm(b)


def test_every_cell_has_an_owner(rng):
    """Each block of each vector is one rank's, and each need another one's."""
    whole = bk.SparseGridOperator(*term_of_three(rng, 3), 2)
    listing, _ = list_sweeps(whole._spec)
    plan = simulate(3, lambda comm: distribute(whole, comm).plan)[0]
    for halo, cells in zip(plan.halos, listing.cells, strict=True):
        assert sum(len(halo.owned(rank)) for rank in range(3)) == len(cells)
        assert (halo.owners[halo.blocks] != halo.ranks).all()
        assert halo.counts.sum() == len(halo.blocks)


def test_more_vectors_than_common_memory_holds(rng, monkeypatch):
    """A product of many vectors takes as many at a time as there is memory for."""
    whole = make("continuity-2d", level=4, degree=1).operator
    x, sizes = rng.standard_normal((7, whole.shape[1])), []
    new = SimulatedCommunicator._new_common_memory

    def limited(self, size):
        sizes.append(size)
        return new(self, size) if size <= 3 * min(sizes) else None

    monkeypatch.setattr(SimulatedCommunicator, "_new_common_memory", limited)

    def program(comm):
        comm.shares_memory = True
        op = distribute(whole, comm, (1, comm.size))
        return op.gather(op.apply(op.scatter(x)))

    for y in simulate(3, program):
        np.testing.assert_allclose(y, whole.apply(x), rtol=0, atol=1e-11)
    assert max(sizes) > 3 * min(sizes)
