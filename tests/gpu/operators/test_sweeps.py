"""Sweeps on the device: the operators of the CPU, in as few launches as a term has modes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk
from batchkron.problems import SparseGrid, gallery, make
from batchkron.problems.discretization.matrices.mode_operator import connected

pytestmark = pytest.mark.gpu

LEVELS = {1: 5, 2: 4, 3: 3, 4: 2, 5: 2, 6: 2}
CORNERS = {1: 3, 2: 4, 3: 4, 4: 3, 5: 2, 6: 2}
SIZES = {1: (5,), 2: (3, 3), 3: (2, 4, 3), 4: (3, 1, 2, 2), 5: (2,) * 5, 6: (2, 1, 2, 1, 3, 2)}


def operator_of(rng, level, n, kind, dtype=np.float64):
    """A 1-D operator with random blocks where cells overlap ("volume") or also touch ("full")."""
    rows, columns = np.nonzero(connected(level, kind))
    blocks = random_array(rng, (len(rows), n, n), dtype)
    return SimpleNamespace(rows=rows, columns=columns, blocks=blocks)


def adaptive_grid(rng, modes):
    """A downward closed set around random cells."""
    level = LEVELS[modes]
    corners = rng.integers(0, 2**level, (CORNERS[modes], modes))
    return SparseGrid.custom(corners, [level] * modes).closed()


def all_modes(rng, modes, dtype, kind="volume", sizes=None):
    """An operator of one term in all modes, one in two of them, and one in each, on any grid."""
    sizes, level = sizes or SIZES[modes], LEVELS[modes]
    volumes = [operator_of(rng, level, n, kind, dtype) for n in sizes]
    fluxes = [operator_of(rng, level, n, "full", dtype) for n in sizes]
    terms = [volumes, [*volumes[:-1], fluxes[-1]], [fluxes[0], *volumes[1:2], *[None] * modes]]
    terms += [[fluxes[k] if k == mode else None for k in range(modes)] for mode in range(modes)]
    terms = [term[:modes] for term in terms]
    scale = random_array(rng, (len(terms),), dtype)
    return bk.SparseGridOperator(adaptive_grid(rng, modes), terms, sizes, coefficients=scale)


def close(result, expected, dtype, factor=1.0):
    scale = factor * np.abs(expected).max(initial=1e-300)
    np.testing.assert_allclose(result, expected, rtol=0, atol=2000 * np.finfo(dtype).eps * scale)


def launches_of(monkeypatch, call):
    """How many kernels a call launches."""
    from batchkron.backends.cuda.runtime.launch import Launch

    plain, count = Launch.__call__, []

    def counted(self, *arguments):
        count.append(self)
        plain(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Launch, "__call__", counted)
        call()
    return len(count)


@pytest.mark.parametrize("modes", range(1, 7))
def test_adaptive_grids_of_all_dimensions(cupy, poisoned_on_device, rng, dtype, modes):
    op = all_modes(rng, modes, dtype)
    device = op.to("cuda")
    assert device.device == "cuda"
    assert device.to("cpu") is op
    shape = op.num_inputs, op.shape[0] // op.num_inputs
    x, y = (random_array(rng, shape, dtype) for _ in range(2))
    with bk.backends.using("reference"):
        expected = bk.SparseGridOperator._from_spec(op._spec).apply(x)
    out = poisoned_on_device(shape, dtype)
    given = cupy.asarray(x)
    for _ in range(2):  # the second call finds what the first one prepared
        out.fill(np.nan)
        assert device.apply(given, out=out) is out
        close(out.get(), expected, dtype)
    close(out.get(), op.apply(x), dtype)
    flat = poisoned_on_device(op.shape[0], dtype)
    device.matvec(given.reshape(-1), out=flat)
    np.testing.assert_array_equal(flat.get(), out.get().reshape(-1))
    target = cupy.asarray(y)
    assert device.accumulate(given, target, alpha=-2) is target
    close(target.get(), y - 2 * expected, dtype)
    right = cupy.asarray(y.reshape(-1))
    back = (device.T @ right).get()
    close(back, op.T @ y.reshape(-1), dtype)
    one, other = y.reshape(-1) @ out.get().reshape(-1), back @ x.reshape(-1)
    magnitude = np.linalg.norm(expected) * np.linalg.norm(y)
    assert abs(one - other) < 2000 * np.finfo(dtype).eps * magnitude
    assert device.validate(samples=3).ok


@pytest.mark.parametrize("count", [1, 2, 3, 5, 33])
def test_several_vectors(cupy, rng, dtype, count):
    op = all_modes(rng, 3, dtype)
    device = op.to("cuda")
    X = random_array(rng, (op.shape[0], count), dtype)
    expected = op @ X
    close((device @ cupy.asarray(X)).get(), expected, dtype)
    columns = cupy.asarray(np.ascontiguousarray(X.T)).T
    close((device @ columns).get(), expected, dtype)
    z = X.real + 1j * X.real[::-1]
    close((device @ cupy.asarray(z)).get(), op @ z, dtype)


def test_vectors_in_portions_where_scratch_memory_is_short(cupy, rng, monkeypatch):
    from batchkron.backends.cuda.segmented import plan as segmented

    op = all_modes(rng, 3, np.float64)
    device = op.to("cuda")
    x = rng.standard_normal((7, op.num_inputs, op.shape[0] // op.num_inputs))
    sums = device._program._plan
    monkeypatch.setattr(segmented, "_SCRATCH_BYTES", 3 * sums._scratch_bytes(1))
    together = launches_of(monkeypatch, lambda: device.apply(cupy.asarray(x[:3])))
    assert launches_of(monkeypatch, lambda: device.apply(cupy.asarray(x))) == 3 * together
    close(device.apply(cupy.asarray(x)).get(), op.apply(x), np.float64)
    sums._launches.clear()
    device._reserve(7, 1)
    assert set(sums._launches) == {(3, 1), (1, 1)}


@pytest.mark.parametrize("modes", range(1, 7))
def test_a_launch_for_each_mode_of_a_term(cupy, rng, monkeypatch, modes):
    grid = SparseGrid.full([1] * modes)
    one, other = (operator_of(rng, 1, 1, "volume") for _ in range(2))
    op = bk.SparseGridOperator(grid, [[one] * modes, [other] * modes], 1)
    device, x = op.to("cuda"), rng.standard_normal(op.shape[0])
    given = cupy.asarray(x)
    assert launches_of(monkeypatch, lambda: device @ given) == modes
    close((device @ given).get(), op @ x, np.float64)
    each = [[one if axis == k else None for axis in range(modes)] for k in range(modes)]
    device = bk.SparseGridOperator(grid, each, 1).to("cuda")
    assert launches_of(monkeypatch, lambda: device @ given) == 1


def test_blocks_beyond_shared_memory(cupy, poisoned_on_device, rng):
    """Sums do not fit in shared memory: each mode adds to the target itself."""
    op = all_modes(rng, 2, np.float64, sizes=(170, 180))
    device, x = op.to("cuda"), rng.standard_normal(op.shape[0])
    assert not device._program._plan._kernel(1, 1).variant.in_shared
    out = poisoned_on_device(op.shape[0], float)
    close(device.matvec(cupy.asarray(x), out=out).get(), op @ x, np.float64)
    shape = op.num_inputs, -1
    y = rng.standard_normal(op.shape[0])
    target = cupy.asarray(y).reshape(shape)
    device.accumulate(cupy.asarray(x).reshape(shape), target)
    close(target.get().reshape(-1), y + op @ x, np.float64)


@pytest.mark.parametrize("few", [0, 10**6], ids=["a group a node", "all groups a node"])
@pytest.mark.parametrize("sizes", [(3,) * 6, (5,) * 4, (7,) * 3], ids=str)
def test_staged_blocks(cupy, poisoned_on_device, rng, dtype, sizes, few, monkeypatch):
    """Blocks are copied to shared memory as a whole, from any address."""
    monkeypatch.setattr(
        "batchkron.backends.cuda.segmented.staged._MIN_NODES_PER_MULTIPROCESSOR", few
    )
    modes, level = len(sizes), LEVELS[len(sizes)]
    flux = operator_of(rng, level, sizes[0], "full", dtype)
    volume = operator_of(rng, level, sizes[0], "volume", dtype)
    each = [[flux if k == mode else None for k in range(modes)] for mode in range(modes)]
    ends = [volume, *[None] * (modes - 2), volume]
    grid = adaptive_grid(rng, modes)
    for terms, between in ((each, False), ([*each, ends], True)):
        op = bk.SparseGridOperator(grid, terms, sizes)
        device = op.to("cuda")
        if int(cupy.cuda.Device().compute_capability) >= 90:
            assert device._program._plan._kernel(1, 1).variant.between == between
        size = op.shape[0]
        x, y = (random_array(rng, (2, size), dtype) for _ in range(2))
        shape = (2, op.num_inputs, -1)
        expected = op.apply(x.reshape(shape)).reshape(2, size)
        parts = x.view(x.real.dtype).size
        for offset in range(4):  # in real numbers from a multiple of 16 bytes
            room = cupy.full(offset + parts + 2, np.nan, x.real.dtype)
            given = room[offset : offset + parts].view(dtype)
            given[...] = cupy.asarray(x.reshape(-1))
            whole = given.reshape(shape)
            out = poisoned_on_device((2, size), dtype).reshape(shape)
            close(device.apply(whole, out=out).get().reshape(2, size), expected, dtype)
            one = given[:size]
            again = device.matvec(one, out=poisoned_on_device(size, dtype)).get()
            close(again, expected[0], dtype)
        target = cupy.asarray(y.reshape(shape))
        device.accumulate(cupy.asarray(x.reshape(shape)), target, alpha=-2)
        close(target.get().reshape(2, size), y - 2 * expected, dtype)
        together = (device @ cupy.asarray(np.ascontiguousarray(x.T))).get()  # another kernel
        close(together, expected.T, dtype)
        device.update(blocks=[3 * m.blocks for m in op._spec.matrices])
        close(device.matvec(cupy.asarray(x[0])).get(), device.to("cpu") @ x[0], dtype)


def test_threads_that_begin_with_one_operator(cupy, rng):
    """Tables that products with several vectors need are complete for all threads."""
    flux = operator_of(rng, 2, 3, "full")
    terms = [[flux if k == mode else None for k in range(6)] for mode in range(6)]
    op = bk.SparseGridOperator(adaptive_grid(rng, 6), terms, 3)
    X = rng.standard_normal((op.shape[1], 4))
    expected, given = op @ X, cupy.asarray(X)
    cupy.cuda.Device().synchronize()
    for _ in range(3):
        device = bk.SparseGridOperator._from_spec(op._spec).to("cuda")
        start = threading.Barrier(4)

        def work(device=device, start=start):
            start.wait()
            return [(device @ given).get() for _ in range(3)]

        with ThreadPoolExecutor(4) as pool:
            for future in [pool.submit(work) for _ in range(4)]:
                for result in future.result():
                    close(result, expected, np.float64)


def test_updates_reach_relatives_and_graphs(cupy, captured, rng, dtype):
    op = all_modes(rng, 2, dtype)
    device = op.to("cuda")
    transposed = device.T
    x = random_array(rng, op.shape[:1], dtype)
    given, out = cupy.asarray(x), cupy.empty(op.shape[0], dtype)
    stream = cupy.cuda.Stream(non_blocking=True)
    graph = captured(stream, lambda: device.matvec(given, out=out))
    scale = random_array(rng, op._spec.coefficients.shape, dtype)
    blocks = [random_array(rng, m.blocks.shape, dtype) for m in op._spec.matrices]
    device.update(coefficients=scale)
    op.update(blocks=blocks)
    out.fill(np.nan)
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    expected = op @ x
    close(out.get(), expected, dtype)
    close((device @ given).get(), expected, dtype)
    close((transposed @ given).get(), op.T @ x, dtype)
    with bk.backends.using("reference"):
        close(bk.SparseGridOperator._from_spec(op._spec) @ x, expected, dtype)


def test_changed_grids(cupy, poisoned_on_device, rng):
    """An operator stays on its device, with the bits of one that is built anew."""
    op = all_modes(rng, 3, np.dtype(np.float64)).to("cuda")
    grid = adaptive_grid(rng, 3)
    moved = op.on_grid(grid)
    assert moved.device == "cuda"
    assert moved.num_new_profiles < moved.num_profiles
    x = rng.standard_normal(moved.shape[0])
    result = (moved @ cupy.asarray(x)).get()
    new = op.to("cpu").on_grid(grid)
    np.testing.assert_array_equal(result, (new.to("cuda") @ cupy.asarray(x)).get())
    close(result, new @ x, np.dtype(np.float64))


def test_a_problem_on_another_grid(cupy, rng):
    problem = make("continuity-2d", 4, 2).to("cuda")
    u = cupy.asarray(rng.standard_normal(problem.unknowns))
    problem.rhs(0.2, u, cupy.empty_like(u))
    moved = problem.on_grid(SparseGrid.full([4, 4]), u, 0.2)
    out = cupy.empty_like(moved.initial)
    moved.rhs(0.2, moved.initial, out)
    host = moved.to("cpu")
    expected = np.empty_like(host.initial)
    host.rhs(0.2, host.initial, expected)
    close(out.get(), expected, np.dtype(np.float64))
    np.testing.assert_array_equal(moved.on_grid(problem.grid).initial.get(), u.get())


def test_terms_of_nothing(cupy, poisoned_on_device, rng):
    grid = SparseGrid.sparse([2, 1])
    zero = SimpleNamespace(
        rows=np.zeros(0, int), columns=np.zeros(0, int), blocks=np.zeros((0, 2, 2))
    )
    for terms in ([], [[zero, None]]):
        device = bk.SparseGridOperator(grid, terms, 2).to("cuda")
        x = cupy.asarray(rng.standard_normal(device.shape[0]))
        out = poisoned_on_device(device.shape[0], float)
        assert not device.matvec(x, out=out).get().any()


def test_cells_without_edges_are_overwritten(cupy, poisoned_on_device):
    corner = SimpleNamespace(rows=np.array([0]), columns=np.array([1]), blocks=np.ones((1, 2, 2)))
    op = bk.SparseGridOperator(SparseGrid.full([2, 1]), [[corner, corner]], 2)
    device, x = op.to("cuda"), np.ones(op.shape[0])
    out = poisoned_on_device(op.shape[0], float)
    np.testing.assert_array_equal(device.matvec(cupy.asarray(x), out=out).get(), op @ x)


@pytest.mark.parametrize("name", gallery.names())
def test_the_gallery(cupy, rng, name):
    problem = make(name, level={1: 5, 2: 4, 3: 3}.get(len(make(name, 1, 0).axes), 2), degree=2)
    # gains, functions of f and electric fields are no operators, beside terms without fields
    if not (problem.gains or problem.pointwise or problem.electric):
        problem = problem.frozen(problem.initial)
    terms = [term.modes for term in problem.terms]
    scale = [term.time(0.2) for term in problem.terms]
    op = bk.SparseGridOperator(problem.grid, terms, problem.degree + 1, coefficients=scale)
    x = rng.standard_normal(op.shape[0])
    close((op.to("cuda") @ cupy.asarray(x)).get(), op @ x, np.float64)


def test_vectors_of_the_host_are_refused(cupy, rng):
    op = all_modes(rng, 2, np.float64)
    x = rng.standard_normal(op.shape[0])
    with pytest.raises(TypeError, match="is an array on the CPU"):
        op.to("cuda") @ x
    with pytest.raises(TypeError, match="on a CUDA device"):
        op @ cupy.asarray(x)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize(("rows", "columns"), [(4, 3), (3, 4), (6, 5), (1, 2)])
def test_blocks_that_are_not_square(cupy, poisoned_on_device, rng, dtype, mode, rows, columns):
    """Maps between degrees p and p + 1 along one mode, and their transposes."""
    grid = adaptive_grid(rng, 3)
    wide = operator_of(rng, LEVELS[3], max(rows, columns), "volume", dtype)
    part = SimpleNamespace(
        rows=wide.rows, columns=wide.columns, blocks=wide.blocks[:, :rows, :columns]
    )
    made, given = ([n if k == mode else 3 for k in range(3)] for n in (rows, columns))
    modes = [part if k == mode else None for k in range(3)]
    op = bk.SparseGridOperator(grid, [modes], made, inputs=given)
    device = op.to("cuda")
    x, y = (random_array(rng, (size,), dtype) for size in op.shape[::-1])
    out = poisoned_on_device(op.shape[0], dtype)
    device.matvec(cupy.asarray(x), out=out)
    close(out.get(), op @ x, dtype)
    close((device.T @ cupy.asarray(y)).get(), op.T @ y, dtype)
    target = cupy.asarray(y)
    device.accumulate(cupy.asarray(x), target)
    close(target.get(), y + op @ x, dtype)
    assert device.validate(samples=3).ok


def test_the_identity_is_added_without_products(cupy, poisoned_on_device, rng, dtype):
    sizes = (2, 3, 1)
    grid = adaptive_grid(rng, 3)
    fluxes = [operator_of(rng, LEVELS[3], n, "full", dtype) for n in sizes]
    for terms in ([fluxes, [None, fluxes[1], None]], [[None, fluxes[1], None]]):
        op = bk.SparseGridOperator(grid, terms, sizes, plus_identity=True)
        device = op.to("cuda")
        x, y = (random_array(rng, (op.shape[0],), dtype) for _ in range(2))
        out = poisoned_on_device(op.shape[0], dtype)
        device.matvec(cupy.asarray(x), out=out)
        close(out.get(), op @ x, dtype)
        close((device.T @ cupy.asarray(x)).get(), op.T @ x, dtype)
        target = cupy.asarray(y)
        device.accumulate(cupy.asarray(x), target, alpha=-2)
        close(target.get(), y - 2 * (op @ x), dtype)
