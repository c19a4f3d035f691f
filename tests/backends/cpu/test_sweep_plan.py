"""Lists of sweeps: the compiled plan does what the reference does."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from dense_oracle import poisoned, random_array

from batchkron.backends.cpu.backend import CpuBackend
from batchkron.backends.reference import ReferenceBackend
from batchkron.spec.sweeps import SweepList, SweepPart, SweepStep, SweepVector

cpu, reference = CpuBackend(), ReferenceBackend()

# a block's modes: kernels differ in the size, in what is before and behind, and at tile edges
SIZES = [
    *[
        (n,) * modes
        for n, maximum in ((1, 3), (2, 6), (3, 6), (4, 4), (5, 3))
        for modes in range(1, maximum + 1)
    ],
    *[(n, n) for n in (6, 7, 8, 9, 16, 17, 33)],
    *[(3, n) for n in (11, 20)],
    (2,) * 9,
    (5,) * 4,
    (9, 6),
    *[
        (before, n, behind)
        for n in (2, 3, 4)
        for before, behind in ((1, 5), (5, 2), (7, 6), (9, 16), (2, 67))
    ],
]


def random_part(rng, source, mode, inputs, outputs, count):
    """Edges of blocks, the first of which has none."""
    degrees = rng.integers(0, 5, outputs)
    degrees[0] = 0
    starts = np.concatenate([[0], np.cumsum(degrees)])
    ids, children = rng.integers(0, count, starts[-1]), rng.integers(0, inputs, starts[-1])
    return SweepPart(source, mode, count, starts, ids, children)


def build(rng, sizes, dtype, cells=7, between=5, outputs=None):
    """From x (0) by a vector in between (2) to y (1), twice, and from x to y along every mode."""
    modes = len(sizes)
    vectors = tuple(SweepVector(0, count) for count in (cells, outputs or cells, between))

    def part(source, mode, target):
        count = int(rng.integers(1, 4))
        return random_part(rng, source, mode, vectors[source].blocks, vectors[target].blocks, count)

    steps = (
        SweepStep(2, False, (part(0, 0, 2),)),
        SweepStep(1, False, (part(2, modes - 1, 1),)),
        SweepStep(2, False, (part(0, modes - 1, 2), part(0, 0, 2))),
        SweepStep(1, True, (part(2, 0, 1), *(part(0, mode, 1) for mode in range(modes)))),
    )
    sweeps = SweepList(sizes, sizes, vectors, steps, dtype)
    return sweeps, random_matrices(rng, sweeps)


# (before, rows, columns, behind) of matrices that are not square: those between degrees p and p+1,
# with few, some and many elements behind the mode, and others
RECTANGULAR = [
    *[
        (before, *sizes, behind)
        for n in range(1, 6)
        for sizes in ((n, n + 1), (n + 1, n))
        for before, behind in ((1, 1), (9, 1), (1, 3), (9, 2), (5, 4), (3, 7), (4, 16), (2, 67))
    ],
    *[(3, rows, columns, 5) for rows, columns in ((1, 7), (9, 2), (20, 3), (3, 20))],
    (5, 19, 2, 1),
]


def rectangular(rng, shape, dtype, cells=7):
    """One sweep along a mode in which blocks of x have another size, in two parts."""
    before, rows, columns, behind = shape
    sizes = [(rows, columns), *((n, n) for n in (before, behind) if n > 1)]
    if before > 1:
        sizes[0], sizes[1] = sizes[1], sizes[0]
    mode = int(before > 1)
    vectors = (SweepVector(0, cells), SweepVector(0, cells + 2))
    parts = tuple(random_part(rng, 0, mode, cells, cells + 2, count) for count in (1, 3))
    made, given = zip(*sizes, strict=True)
    sweeps = SweepList(made, given, vectors, (SweepStep(1, False, parts),), np.dtype(dtype))
    assert sweeps.block_size * columns == sweeps.input_block_size * rows
    return sweeps, random_matrices(rng, sweeps)


def random_matrices(rng, sweeps):
    return [
        random_array(
            rng, (part.matrices, sweeps.sizes[part.mode], sweeps.given[part.mode]), sweeps.dtype
        )
        for step in sweeps.steps
        for part in step.parts
    ]


def run(plan, sweeps, x, outer, inner, alpha=1, y=None):
    shape = (outer, sweeps.vectors[1].blocks, sweeps.block_size, inner)
    out = poisoned(shape, sweeps.dtype) if y is None else y.copy()
    plan.run(x, out, outer, inner, alpha, y is not None)
    return out


def check(rng, sweeps, matrices, outer, inner, alpha):
    """Compare with the reference in double precision; sums of magnitudes bound the rounding."""
    wide = sweeps._replace(dtype=np.dtype(np.result_type(sweeps.dtype, np.float64)))
    x, y = (
        random_array(rng, (outer, vector.blocks, size, inner), sweeps.dtype)
        for vector, size in zip(
            sweeps.vectors, (sweeps.input_block_size, sweeps.block_size), strict=False
        )
    )
    plan = cpu.sweep_plan(sweeps, matrices)
    right = reference.sweep_plan(wide, [m.astype(wide.dtype) for m in matrices])
    bound = reference.sweep_plan(
        wide._replace(dtype=np.dtype(np.float64)), [np.abs(m).astype(np.float64) for m in matrices]
    )
    eps = 40 * np.finfo(sweeps.dtype).eps * (max(sweeps.sizes) + 4)
    magnitude = abs(alpha) * run(
        bound, wide._replace(dtype=np.dtype(np.float64)), np.abs(x).astype(np.float64), outer, inner
    )
    for start in (None, y):
        result = run(plan, sweeps, x, outer, inner, alpha, start)
        expected = run(
            right,
            wide,
            x.astype(wide.dtype),
            outer,
            inner,
            alpha,
            None if start is None else start.astype(wide.dtype),
        )
        size = magnitude if start is None else magnitude + np.abs(start)
        assert (np.abs(result - expected) <= eps * size).all(), (sweeps.sizes, inner, alpha)


@pytest.mark.parametrize("outputs", [2, 13])
def test_the_result_may_have_another_number_of_blocks(rng, dtype, outputs):
    sweeps, matrices = build(rng, (3, 2), np.dtype(dtype), outputs=outputs)
    for outer, inner in ((1, 1), (3, 1), (1, 2), (3, 2)):
        check(rng, sweeps, matrices, outer, inner, 1.5)


def test_every_shape_equals_the_reference(rng, dtype):
    for sizes in SIZES:
        sweeps, matrices = build(rng, sizes, dtype)
        check(rng, sweeps, matrices, 1, 1, 1)


def test_x_is_added(rng, dtype):
    """To a sum in one step, before several of them, and where there is no other work."""
    alpha = 0.5 - 2j if dtype.kind == "c" else -1.5
    for sizes in SIZES:
        sweeps, matrices = build(rng, sizes, dtype)
        steps = list(sweeps.steps)
        last = SweepStep(1, False, steps[-1].parts[1:], adds_x=True)
        first = steps[1]._replace(adds_x=True)
        several = (steps[0], first, *steps[2:])
        for own in (several, (last,), (SweepStep(1, False, (), adds_x=True),)):
            parts = [part for step in own for part in step.parts]
            kept = [
                matrix
                for part, matrix in zip(
                    (part for step in steps for part in step.parts), matrices, strict=True
                )
                if any(part is one for one in parts)
            ]
            check(rng, sweeps._replace(steps=own), kept, 1, 1, 1)
            check(rng, sweeps._replace(steps=own), kept, 2, 3, alpha)


def test_every_shape_that_is_not_square_equals_the_reference(rng, dtype):
    alpha = 0.5 - 2j if dtype.kind == "c" else -1.5
    for shape in RECTANGULAR:
        sweeps, matrices = rectangular(rng, shape, dtype)
        check(rng, sweeps, matrices, 1, 1, 1)
        check(rng, sweeps, matrices, 2, 3, alpha)


def test_sizes_that_do_not_fit_are_refused(rng):
    sweeps, matrices = rectangular(rng, (3, 4, 2, 5), np.float64)
    steps = (sweeps.steps[0]._replace(adds_x=True),)
    with pytest.raises(ValueError, match="x"):
        cpu.sweep_plan(sweeps._replace(steps=steps), matrices)
    for given in ((3, 2), (3, 2, 5, 1), (3, 0, 5), (2, 2, 5)):
        with pytest.raises(ValueError, match=r"size|mode"):
            cpu.sweep_plan(sweeps._replace(given=given), matrices)


@pytest.mark.parametrize("inner", [1, 2, 3, 5, 16])
def test_several_vectors(rng, dtype, inner):
    alpha = 0.5 - 2j if dtype.kind == "c" else -1.5
    for sizes in ((3, 3), (2, 2, 2), (4, 4), (1, 1), (5,), (2, 3, 4)):
        sweeps, matrices = build(rng, sizes, dtype)
        check(rng, sweeps, matrices, 3, inner, alpha)


def test_nothing_beyond_the_blocks_is_read_or_written(rng, dtype):
    """Blocks end where memory does not: NaN before and behind x and y stays where it is."""
    alike = ((3,), (3, 3), (3, 3, 3), (3,) * 5, (2, 2), (4, 4), (5,), (5,) * 3, (6, 6), (1, 1))
    made = [build(rng, sizes, dtype) for sizes in (*alike, (2, 9), (3, 17), (2, 3, 67))]
    made += [rectangular(rng, shape, dtype) for shape in RECTANGULAR]
    for sweeps, matrices in made:
        size = sweeps.vectors[0].blocks * sweeps.input_block_size
        written = sweeps.vectors[1].blocks * sweeps.block_size
        x, y = poisoned((size + 34,), dtype), poisoned((written + 34,), dtype)
        x[17:-17] = random_array(rng, (size,), dtype)
        plan = cpu.sweep_plan(sweeps, matrices)
        plan.run(x[17:-17], y[17:-17], 1, 1, 1, False)
        assert np.isfinite(y[17:-17]).all()
        assert np.isnan(y[:17]).all()
        assert np.isnan(y[-17:]).all()


def test_nodes_share_lists_of_edges(rng):
    """Nodes with the same matrices and children, counted from the node, need one list."""
    nodes = 50
    starts = np.arange(nodes + 1) * 3
    children = (np.arange(nodes)[:, None] + [0, 4, 2]).ravel()
    ids = np.tile([2, 0, 1], nodes)
    changes = {
        "as it is": (3, []),
        "a matrix": (6, [(ids, 7 * 3)]),
        "a child": (6, [(children, 4)]),
    }
    for listed, places in changes.values():
        own = SweepPart(0, 1, 3, starts, ids.copy(), children.copy())
        for array, place in places:
            (own.ids if array is ids else own.children)[place] = 1
        vectors = (SweepVector(0, nodes + 4), SweepVector(0, nodes + 4))
        empty = np.append(own.starts, [3 * nodes] * 4)  # four more, without edges
        steps = (SweepStep(1, False, (own._replace(starts=empty),)),)
        sweeps = SweepList((3, 2), (3, 2), vectors, steps, np.dtype(np.float64))
        matrices = random_matrices(rng, sweeps)
        assert cpu.sweep_plan(sweeps, matrices).num_listed == listed
        check(rng, sweeps, matrices, 1, 1, 1)


def test_new_values(rng, dtype):
    sweeps, matrices = build(rng, (3, 3, 3), dtype)
    plan = cpu.sweep_plan(sweeps, matrices)
    other = random_matrices(rng, sweeps)
    x = random_array(rng, (1, sweeps.vectors[0].blocks, 27, 2), dtype)
    plan.set_values(other)
    for inner in (1, 2):
        vectors = np.ascontiguousarray(x[..., :inner])
        expected = run(cpu.sweep_plan(sweeps, other), sweeps, vectors, 1, inner)
        np.testing.assert_array_equal(run(plan, sweeps, vectors, 1, inner), expected)


def test_values_change_between_runs_only(rng):
    """Runs in other threads have the old values or the new ones, never some of each."""
    sweeps, matrices = build(rng, (3, 3, 3), np.dtype(np.float64), cells=40, between=30)
    plan = cpu.sweep_plan(sweeps, matrices)
    other = [-matrix for matrix in matrices]  # paths of one sweep change sign, of two they do not
    x = random_array(rng, (1, 40, 27, 1), "float64")
    results = []
    for values in (matrices, other):
        plan.set_values(values)
        results.append(run(plan, sweeps, x, 1, 1))
    assert not np.allclose(*np.abs(results))
    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(run, plan, sweeps, x, 1, 1) for _ in range(300)]
        for k in range(100):
            plan.set_values([matrices, other][k % 2])
        found = [future.result() for future in runs]
    for result in found:
        assert any(np.array_equal(result, expected) for expected in results)


def test_bits_do_not_depend_on_threads(rng, threads):
    sweeps, matrices = build(rng, (3,) * 5, np.dtype(np.float64), cells=300, between=200)
    plan = cpu.sweep_plan(sweeps, matrices)
    x = random_array(rng, (2, 300, 243, 1), "float64")
    results = []
    for count in (1, 2, 3, 7):
        threads(count)
        results.append(run(plan, sweeps, x, 2, 1, 0.3))
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("inner", [1, 3])
def test_vectors_beyond_the_caches(rng, dtype, threads, inner):
    """Their blocks are fetched ahead, by each thread those of its own nodes."""
    blocks = 9 * 2**20 // (2 * 256 * dtype.itemsize)
    sweeps, matrices = build(rng, (4,) * 4, dtype, cells=blocks, between=blocks // 2)
    plan = cpu.sweep_plan(sweeps, matrices)
    x = random_array(rng, (1, blocks, 256, inner), dtype)
    results = []
    for count in (1, 2, 3):
        threads(count)
        results.append(run(plan, sweeps, x, 1, inner))
        np.testing.assert_array_equal(results[-1], results[0])
    check(rng, sweeps, matrices, 1, inner, -1.5)


def test_lists_that_would_leave_the_arrays_are_refused(rng):
    """No mistake above the core can make it read or write elsewhere."""
    sweeps, matrices = build(rng, (2, 2), np.dtype(np.float64))
    step = sweeps.steps[0]
    part = step.parts[0]
    wrong = [
        part._replace(source=3),
        part._replace(source=2),
        part._replace(mode=2),
        part._replace(matrices=int(part.ids.max(initial=0))),
        part._replace(children=part.children + 7),
        part._replace(children=part.children - 7),
        part._replace(starts=part.starts[:-1]),
        part._replace(starts=part.starts[::-1].copy()),
        part._replace(ids=part.ids[:-1]),
    ]
    for other in wrong:
        steps = (step._replace(parts=(other,)), *sweeps.steps[1:])
        with pytest.raises(ValueError, match="internal error"):
            cpu.sweep_plan(sweeps._replace(steps=steps), matrices)
    for other in (step._replace(target=3), step._replace(target=0), step._replace(parts=())):
        with pytest.raises(ValueError, match="internal error"):
            cpu.sweep_plan(sweeps._replace(steps=(other,)), matrices[:1])
    with pytest.raises(ValueError, match="internal error"):
        cpu.sweep_plan(sweeps, matrices[:-1])
    for blocks in (2**31 + 1, 2**63 - 1):
        for vector in (SweepVector(0, blocks), SweepVector(blocks, 1)):
            vectors = (*sweeps.vectors, vector)
            with pytest.raises(ValueError, match="internal error"):
                cpu.sweep_plan(sweeps._replace(vectors=vectors), matrices)
