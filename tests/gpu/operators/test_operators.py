"""Operators on the device: moving, algebra, updates, and CuPy's own solvers."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from dense_oracle import dense_kron, random_array

import batchkron as bk

pytestmark = pytest.mark.gpu


def symmetric_batch(rng):
    pool = rng.standard_normal((4, 3, 3))
    pool = np.concatenate([pool, pool.transpose(0, 2, 1), 9 * np.eye(3)[None]])
    ids = [[8, 8]] * 5 + [[0, 1], [4, 5], [2, 3], [6, 7]]
    return bk.BatchedKron(pool, ids, [*range(5), 0, 1, 2, 3], [*range(5), 1, 0, 3, 2])


def make(kind, rng, dtype=np.float64):
    if kind == "product":
        return bk.KroneckerProduct([random_array(rng, (3, 3), dtype) for _ in range(3)])
    if kind == "sum":
        return bk.KroneckerSum([random_array(rng, (3, 3), dtype) for _ in range(3)])
    if kind == "batch":
        return symmetric_batch(rng).astype(dtype)
    if kind == "identity":
        return bk.Identity(27, dtype)
    if kind == "diagonal":
        return bk.Diagonal(random_array(rng, 27, dtype))
    product, total = make("product", rng, dtype), make("sum", rng, dtype)
    rest = bk.Diagonal(random_array(rng, 27, dtype)) - bk.Identity(27, dtype)
    return 2 * product + total @ product + 3 * rest + total**2


@pytest.mark.parametrize("kind", ["product", "sum", "batch", "identity", "diagonal", "algebra"])
def test_equals_the_operator_on_the_cpu(cupy, rng, dtype, kind):
    op = make(kind, rng, dtype)
    device = op.to("cuda")
    assert (op.device, device.device) == ("cpu", "cuda")
    assert device.to("cuda") is device
    assert device.to("cpu") is op
    dense = op.to_dense()
    atol = 1000 * np.finfo(dtype).eps * max(1, np.abs(dense).max())
    tolerance = {"rtol": 0, "atol": atol}
    np.testing.assert_allclose(device.to_dense().get(), dense, **tolerance)
    x, X = random_array(rng, op.shape[1], dtype), random_array(rng, (op.shape[1], 4), dtype)
    for A, B, matrix in [
        (device, op, dense),
        (device.T, op.T, dense.T),
        (device.H, op.H, dense.conj().T),
    ]:
        np.testing.assert_allclose((A @ cupy.asarray(x)).get(), matrix @ x, **tolerance)
        np.testing.assert_allclose((A @ cupy.asarray(X)).get(), matrix @ X, **tolerance)
        np.testing.assert_allclose(A.diagonal().get(), B.diagonal(), **tolerance)
    adjoint = device.rmatvec(cupy.asarray(x)).get()
    np.testing.assert_allclose(adjoint, dense.conj().T @ x, **tolerance)
    out = cupy.asarray(np.full(op.shape[0], np.nan, dtype))
    assert device.matvec(cupy.asarray(x), out) is out
    np.testing.assert_allclose(out.get(), dense @ x, **tolerance)


@pytest.mark.parametrize("given", ["float32", "float64", "complex64", "complex128"])
def test_vectors_of_other_dtypes(cupy, rng, dtype, given):
    op = make("product", rng, dtype)
    x = random_array(rng, 27, given)
    result = op.to("cuda") @ cupy.asarray(x)
    assert result.dtype == np.result_type(dtype, given)
    expected = op.to_dense() @ x
    atol = 1000 * max(np.finfo(dtype).eps, np.finfo(given).eps) * np.abs(expected).max()
    np.testing.assert_allclose(result.get(), expected, rtol=0, atol=atol)


def test_built_from_arrays_of_the_device(cupy, rng):
    pool = rng.standard_normal((2, 3, 3))
    batch = bk.BatchedKron(cupy.asarray(pool), [[0, 1]], [0], [0])
    product = bk.KroneckerProduct([cupy.asarray(matrix) for matrix in pool])
    x = rng.standard_normal(9)
    for op in (batch, product):
        assert op.device == "cuda"
        np.testing.assert_allclose((op @ cupy.asarray(x)).get(), dense_kron(*pool) @ x, atol=1e-12)


def test_vectors_elsewhere_are_refused(cupy, rng):
    op = make("product", rng)
    with pytest.raises(TypeError, match=r"to\('cuda'\)"):
        op @ cupy.ones(27)
    with pytest.raises(TypeError, match=r"to\('cpu'\)"):
        op.to("cuda").matvec(np.ones(27))
    with pytest.raises(TypeError, match="do not act together"):
        op + op.to("cuda")
    with pytest.raises(TypeError, match=r"b is an array on the CPU"):
        op.to("cuda").solve(np.ones(27))
    with pytest.raises(ValueError, match="device is 'gpu'; expected 'cpu' or 'cuda'"):
        op.to("gpu")


def test_updates_reach_the_device(cupy, rng):
    op = bk.KroneckerProduct(rng.standard_normal((2, 3, 3)))
    x = cupy.asarray(rng.standard_normal(9))
    device, transposed = op.to("cuda"), op.to("cuda").T
    device @ x
    new = rng.standard_normal((2, 3, 3))
    op.update(new)
    np.testing.assert_allclose((device @ x).get(), dense_kron(*new) @ x.get(), atol=1e-12)
    np.testing.assert_allclose((transposed @ x).get(), dense_kron(*new).T @ x.get(), atol=1e-12)
    batch = bk.BatchedKron(new, [[0, 1]], [0], [0]).to("cuda")
    batch.update(pools=[cupy.asarray(new[::-1].copy())] * 2, weights=[2.0])
    expected = 2 * dense_kron(*new[::-1]) @ x.get()
    np.testing.assert_allclose((batch @ x).get(), expected, atol=1e-12)


@pytest.mark.parametrize("modes", [3, 13])
@pytest.mark.parametrize("accumulation", ["auto", "atomic"])
def test_an_update_gives_modes_pools_of_their_own(cupy, rng, modes, accumulation):
    lists = rng.integers(0, 5, (9, modes)), rng.integers(0, 3, 9), rng.integers(0, 3, 9)
    counts = {"num_inputs": 3, "num_outputs": 3, "accumulation": accumulation}
    size = 2 if modes == 3 else 1
    op = bk.BatchedKron(rng.standard_normal((5, size, size)), *lists, **counts)
    x = rng.standard_normal((3, size**modes))
    device, given, out = op.to("cuda"), cupy.asarray(x), cupy.empty(x.shape)
    device.apply(given, out=out)
    for count in (modes, 2, 1):
        pools = [rng.standard_normal((5, size, size)) for _ in range(count)]
        op.update([pools[mode % count] for mode in range(modes)])
        expected = op.apply(x)
        np.testing.assert_allclose(device.apply(given, out=out).get(), expected, rtol=1e-12)
        np.testing.assert_allclose(device.T.apply(given).get(), op.T.apply(x), rtol=1e-12)


@pytest.mark.parametrize("systems", [(), (3,)])
def test_an_update_gives_systems_values_of_their_own(cupy, rng, systems):
    """Or takes them away; the other of pools and weights has the systems' axis all along."""
    lists = [[0, 1], [1, 0]], [0, 1], [1, 0]
    other = (3,) if systems == () else ()
    for fixed, changing in [("weights", "pools"), ("pools", "weights")]:
        shapes = {"pools": (2, 2, 2), "weights": (2,)}
        first = {fixed: (3, *shapes[fixed]), changing: systems + shapes[changing]}
        values = {name: rng.standard_normal(shape) for name, shape in first.items()}
        op = bk.BatchedKron(values["pools"], *lists, weights=values["weights"])
        device, x = op.to("cuda"), rng.standard_normal((3, 2, 4))
        given = cupy.asarray(x)
        np.testing.assert_allclose(device.apply(given).get(), op.apply(x), rtol=1e-12)
        for axes in (other, systems, other):
            op.update(**{changing: rng.standard_normal(axes + shapes[changing])})
            np.testing.assert_allclose(device.apply(given).get(), op.apply(x), rtol=1e-12)


@pytest.mark.parametrize("method", ["gmres", "cg"])
def test_solvers_of_cupy_take_the_operator(cupy, rng, method):
    linalg = pytest.importorskip("cupyx.scipy.sparse.linalg")
    if method == "gmres":
        op = symmetric_batch(rng)
    else:
        matrices = rng.standard_normal((3, 3, 3))
        op = bk.KroneckerProduct([m @ m.T + 3 * np.eye(3) for m in matrices])
    b = rng.standard_normal(op.shape[0])
    solve = {"gmres": linalg.gmres, "cg": linalg.cg}[method]
    x, info = solve(op.to("cuda"), cupy.asarray(b), rtol=1e-10, maxiter=500)
    assert info == 0
    np.testing.assert_allclose(op @ x.get(), b, rtol=0, atol=1e-8 * np.linalg.norm(b))


def test_vectors_on_the_left(cupy, rng):
    for kind in ("product", "batch", "composed"):
        op = make(kind, rng)
        device = op.to("cuda")
        for shape in [(op.shape[0],), (3, op.shape[0])]:
            x = rng.standard_normal(shape)
            expected = x @ op.to_dense()
            result = cupy.asarray(x) @ device
            np.testing.assert_allclose(result.get(), expected, atol=1e-11 * abs(expected).max())


def test_numbers_of_the_device_are_numbers(cupy, rng):
    op, x = make("product", rng), rng.standard_normal(27)
    device, on_device = op.to("cuda"), cupy.asarray(x)
    two = cupy.asarray(2.0)
    for scaled in (two * device, device * two, device / (1 / two)):
        np.testing.assert_allclose((scaled @ on_device).get(), 2 * (op @ x), rtol=1e-13)
    factor = cupy.asarray(rng.standard_normal((27, 27)))
    result = bk.gekmm([factor], on_device[:, None], alpha=two)
    np.testing.assert_allclose(result.get()[:, 0], 2 * (factor.get() @ x), atol=1e-12)


@pytest.mark.parametrize("kind", ["product", "sum", "batch", "identity", "composed"])
def test_copies_stay_on_the_device(cupy, rng, kind):
    op = make(kind, rng)
    x = cupy.asarray(rng.standard_normal(op.shape[1]))
    device = op.to("cuda")
    expected = (device @ x).get()
    for same in (pickle.loads(pickle.dumps(device)), copy.copy(device), copy.deepcopy(device)):
        assert same.device == "cuda"
        np.testing.assert_array_equal((same @ x).get(), expected)


def test_factors_and_pools_of_both_sides_are_refused(cupy, rng):
    matrix = rng.standard_normal((3, 3))
    pool = matrix[None]
    for call in (
        lambda: bk.KroneckerProduct([cupy.asarray(matrix), matrix]),
        lambda: bk.KroneckerSum([matrix, cupy.asarray(matrix)]),
        lambda: bk.BatchedKron([cupy.asarray(pool), pool], [[0, 0]], [0], [0]),
        lambda: bk.BatchedKron(pool, [[0, 0]], [0], [0], weights=cupy.ones(1)),
    ):
        with pytest.raises(TypeError, match="but the other operands are on"):
            call()


def test_threads_get_the_same_moved_operator(cupy, rng):
    for _ in range(10):
        op = make("product", rng)
        with ThreadPoolExecutor(4) as pool:
            moved = list(pool.map(lambda _, op=op: op.to("cuda"), range(4)))
        assert len({id(one) for one in moved}) == 1


def test_columns_of_one_array_do_not_overlap(cupy, rng):
    op = make("product", rng)
    buffer = cupy.asarray(rng.standard_normal((27, 2)))
    expected = op @ buffer[:, 0].get()
    op.to("cuda").matvec(buffer[:, 0], out=buffer[:, 1])
    np.testing.assert_allclose(buffer[:, 1].get(), expected, atol=1e-12)
    with pytest.raises(ValueError, match="out overlaps an input"):
        op.to("cuda").matvec(buffer[:, 0], out=buffer[:, 0])
