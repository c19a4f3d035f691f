"""batchkron.jax on a device: results and derivatives against JAX's own functions."""

import functools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leaves memory to CuPy
jax = pytest.importorskip("jax")
jnp = jax.numpy


def has_device():
    try:
        return bool(jax.devices("cuda"))
    except RuntimeError:
        return False


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_device(), reason="JAX finds no CUDA device"),
]
DTYPES = ["float32", "float64", "complex64", "complex128"]
IDS, READS, WRITES = np.array([[0, 1], [1, 0], [1, 1]]), np.array([0, 1, 0]), np.array([1, 1, 0])


@pytest.fixture(scope="module")
def bkj():
    return pytest.importorskip("batchkron.jax")


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def array(rng):
    """Makes random arrays on the device."""

    def make(*shape, dtype="float64"):
        values = rng.standard_normal(shape)
        if np.dtype(dtype).kind == "c":
            values = values + 1j * rng.standard_normal(shape)
        return jax.device_put(values.astype(dtype), jax.devices("cuda")[0])

    return make


def regular(matrix):
    """A Hermitian matrix far from singular ones."""
    return matrix + matrix.conj().T + 9 * jnp.eye(len(matrix), dtype=matrix.dtype)


def gathered(x, weights, A, B):
    products = jnp.einsum("b,bpq,brs->bprqs", weights, A[IDS[:, 0]], B[IDS[:, 1]])
    products = products.reshape(3, -1, x.shape[-1])
    each = jnp.einsum("bpq,nbq->nbp", products, x[:, READS])
    return jnp.zeros((len(x), 2, each.shape[-1]), x.dtype).at[:, WRITES].add(each)


def dense_sum(A, B):
    return jnp.kron(A, jnp.eye(len(B))) + jnp.kron(jnp.eye(len(A)), B)


# each: ours, JAX's own, and the shapes of operands
CASES = {
    "kron_matmul": (
        lambda b: lambda x, *factors: b.kron_matmul(x, factors),
        lambda x, *factors: x @ functools.reduce(jnp.kron, factors),
        [(4, 12), (2, 3), (3, 1), (2, 2)],
    ),
    "kronecker_sparse": (
        lambda b: b.kronecker_sparse,
        lambda x, v: jnp.einsum("iklj,nilj->nikj", v, x.reshape(-1, 2, 3, 2)).reshape(-1, 8),
        [(4, 12), (2, 2, 3, 2)],
    ),
    "batched_kron": (
        lambda b: lambda x, w, *pools: b.batched_kron(pools, IDS, x, READS, WRITES, 2, weights=w),
        gathered,
        [(2, 2, 4), (3,), (2, 2, 2), (2, 3, 2)],
    ),
    "solve": (
        lambda b: lambda x, A, B: b.solve([regular(A), regular(B)], x),
        lambda x, A, B: jnp.linalg.solve(jnp.kron(regular(A), regular(B)), x.T).T,
        [(4, 6), (2, 2), (3, 3)],
    ),
    "solve a sum": (
        lambda b: lambda x, A, B: b.solve([regular(A), regular(B)], x, kind="sum"),
        lambda x, A, B: jnp.linalg.solve(dense_sum(regular(A), regular(B)), x.T).T,
        [(4, 6), (2, 2), (3, 3)],
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_results_and_derivatives(bkj, array, name, dtype):
    make, own, shapes = CASES[name]
    given = [array(*shape, dtype=dtype) for shape in shapes]

    def everything(function):
        def loss(*operands):
            y = function(*operands)
            return jnp.sum(jnp.abs(y) ** 2), y

        gradients, y = jax.grad(loss, tuple(range(len(given))), has_aux=True)(*given)
        direction = jax.jvp(function, given, [one / 2 for one in given])[1]
        return y, direction, *gradients

    with jax.default_matmul_precision("highest"):
        found = jax.jit(lambda: everything(make(bkj)))()
        expected = jax.jit(lambda: everything(own))()
    eps = np.finfo(dtype).eps
    for one, other in zip(found, expected, strict=True):
        scale = max(1.0, float(jnp.abs(other).max()))
        assert one.devices() == given[0].devices()
        assert float(jnp.abs(one - other).max()) <= 2000 * eps * scale


@pytest.mark.parametrize("axes", [(0, None, None), (None, 0, None), (0, 0, 0)])
def test_mapped(bkj, array, axes):
    shapes = [(40, 64), (8, 16), (8, 4)]
    given = [
        array(*shape) if axis is None else array(3, *shape)
        for shape, axis in zip(shapes, axes, strict=True)
    ]
    found = jax.jit(jax.vmap(lambda x, A, B: bkj.kron_matmul(x, [A, B]), axes))(*given)
    expected = jax.vmap(lambda x, A, B: x @ jnp.kron(A, B), axes)(*given)
    assert float(jnp.abs(found - expected).max()) <= 1e-11


def test_calls_before_and_behind_are_waited_for(bkj, array):
    """A loop in which each product needs the last one, with work of XLA between."""
    x, A = array(512, 4096) / 64, array(64, 64) / 8

    def steps(product):
        return jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, x: jnp.sin(product(x)), x))

    found = steps(lambda x: bkj.kron_matmul(x, [A, A]))(x)

    def chain(x):
        y = jnp.einsum("nij,ip,jq->npq", x.reshape(-1, 64, 64), A, A)
        return y.reshape(x.shape)

    expected = steps(chain)(x)
    assert float(jnp.abs(found - expected).max()) <= 1e-6  # sin keeps errors of the start in bounds


def test_sums_that_are_not_hermitian(bkj, array):
    A, B, b = array(4, 4) / 4 + 3 * jnp.eye(4), array(3, 3) / 4 + 3 * jnp.eye(3), array(2, 12)
    found = jax.jit(lambda A, B, b: bkj.solve([A, B], b, kind="sum"))(A, B, b)
    assert found.devices() == b.devices()
    host = [jax.device_put(one, jax.devices("cpu")[0]) for one in (A, B, b)]
    expected = bkj.solve(host[:2], host[2], kind="sum")
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-11, atol=1e-12)


def test_errors_reach_the_caller(bkj, array):
    function = jax.jit(lambda A: bkj.solve([A, -A], jnp.ones(4), kind="sum"))
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="singular"):
        function(jnp.diag(array(2))).block_until_ready()


SIZES = {
    "one": (7, [(3, 4)]),
    "small": (64, [(8, 8)] * 3),
    "rectangular": (5, [(2, 3), (4, 1), (1, 6), (5, 2)]),
    "many rows": (3000, [(4, 4)] * 4),
    "edge of the kernel": (9, [(64, 33), (17, 64)]),
    "large": (40, [(65, 8), (8, 70)]),
}


def chain(x, *factors):
    y, behind = x.reshape(len(x), -1), x.shape[1]
    for A in factors:
        behind //= A.shape[0]
        y = jnp.einsum("npr,pq->nqr", y.reshape(-1, A.shape[0], behind), A)
    return y.reshape(len(x), -1)


def all_gradients(product, number):
    """A value and the gradients in all operands."""
    return jax.value_and_grad(lambda *given: jnp.sin(product(*given)).sum(), tuple(range(number)))


def assert_close(found, expected, steps):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        eps = float(jnp.finfo(other.dtype).eps)
        scale = max(1.0, float(jnp.abs(other).max()))
        assert bool(jnp.isfinite(one).all())
        assert float(jnp.abs(one - other).max()) <= 30 * eps * steps * scale


@pytest.fixture
def poisoned():
    """Memory that XLA gives to the next calls was full of NaN."""

    def poison(megabytes=64):
        jax.device_put(np.full(megabytes << 17, np.nan), jax.devices("cuda")[0]).delete()

    return poison


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SIZES)
def test_gradients(bkj, array, poisoned, name, dtype):
    rows, shapes = SIZES[name]
    x = array(rows, int(np.prod([shape[0] for shape in shapes])), dtype=dtype)
    given = [x, *(array(*shape, dtype=dtype) / shape[0] ** 0.5 for shape in shapes)]

    def ours(x, *factors):
        return bkj.kron_matmul(x, factors)

    with jax.default_matmul_precision("highest"):
        expected = jax.jit(all_gradients(chain, len(given)))(*given)
    compiled = jax.jit(all_gradients(ours, len(given)))
    first = compiled(*given)
    for _ in range(3):
        poisoned()
        found = compiled(*given)
        assert_close(found, expected, rows * x.shape[1])
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(first), strict=True):
            assert bool((one == other).all())  # sums have a fixed order


def training(product, number, steps, loop):
    """Steps of gradient descent with several products each, of which XLA makes graphs."""

    def loss(*given):
        y = product(*given)
        return sum(
            jnp.sin((k + 1) * product(given[0] / (k + 1), *given[1:]) + y).mean() for k in range(5)
        )

    def step(given):
        changes = jax.grad(loss, tuple(range(number)))(*given)
        return tuple(one - 0.1 * change for one, change in zip(given, changes, strict=True))

    def by_fori(given):
        return jax.lax.fori_loop(0, steps, lambda _, given: step(given), given)

    def by_scan(given):
        return jax.lax.scan(lambda given, _: (step(given), None), given, length=steps)[0]

    def unrolled(given):
        for _ in range(steps):
            given = step(given)
        return given

    return jax.jit({"fori": by_fori, "scan": by_scan, "unrolled": unrolled}[loop])


@pytest.mark.parametrize("loop", ["fori", "scan", "unrolled"])
@pytest.mark.parametrize("name", ["small", "rectangular", "many rows"])
def test_gradients_in_loops(bkj, array, poisoned, name, loop):
    """Called again with the same and with other buffers, which XLA's graphs have to follow."""
    rows, shapes = SIZES[name]
    size, number = int(np.prod([shape[0] for shape in shapes])), len(shapes) + 1
    ours = training(lambda x, *A: bkj.kron_matmul(x, A), number, 4, loop)
    theirs = training(chain, number, 4, loop)
    kept = []
    for _ in range(4):
        given = (array(rows, size), *(array(*shape) / shape[0] ** 0.5 for shape in shapes))
        expected = theirs(given)
        for _ in range(2):
            kept.append(ours(given))  # results that stay, so that the next ones lie elsewhere
            assert_close(kept[-1], expected, 1e4 * size)
            poisoned()


def test_a_graph_is_captured(bkj, array):
    """No call of a compiled function allocates memory: XLA may capture each."""
    x, A = array(64, 512), array(8, 8)
    compiled = jax.jit(all_gradients(lambda x, A: bkj.kron_matmul(x, [A] * 3), 2))
    text = compiled.lower(x, A).compile().as_text()
    assert "batchkron_captured" in text
    assert "batchkron_planned" not in text


@pytest.mark.parametrize("axes", [(0, None, None), (None, 0, None), (0, 0, 0)])
def test_mapped_gradients(bkj, array, axes):
    shapes = [(40, 64), (8, 16), (8, 4)]
    given = [
        array(*shape) if axis is None else array(3, *shape)
        for shape, axis in zip(shapes, axes, strict=True)
    ]

    def found(product):
        return jax.jit(jax.vmap(all_gradients(product, 3), axes))(*given)

    assert_close(found(lambda x, *A: bkj.kron_matmul(x, A)), found(chain), 40 * 64)


def test_second_derivatives(bkj, array):
    given = [array(30, 8), array(2, 3), array(4, 2)]
    steps = [array(*one.shape) for one in given]

    def found(product):
        def gradient(*operands):
            return all_gradients(product, 3)(*operands)[1]

        return jax.jit(lambda: jax.jvp(gradient, given, steps))()

    assert_close(found(lambda x, *A: bkj.kron_matmul(x, A)), found(chain), 1000)


def test_gradients_from_two_threads(bkj, array):
    """Each with functions of its own and a shared one; layouts are new for some of them."""
    shared = jax.jit(all_gradients(lambda x, A: bkj.kron_matmul(x, [A, A]), 2))
    problems = [(array(20 + k, 36), array(6, 6)) for k in range(8)]
    x64 = jax.enable_x64

    def run(k):
        with x64(True):
            x, A = problems[k % 8]
            own = training(lambda x, A: bkj.kron_matmul(x, [A, A]), 2, 3, "fori")
            return shared(x, A), [own((x, A)) for _ in range(3)]

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run, range(16)))
    for k, (gradients, steps) in enumerate(results):
        x, A = problems[k % 8]
        expected = all_gradients(lambda x, A: chain(x, A, A), 2)(x, A)
        assert_close(gradients, expected, 36 * 20)
        after = training(lambda x, A: chain(x, A, A), 2, 3, "fori")((x, A))
        for one in steps:
            assert_close(one, after, 36 * 2000)


@pytest.fixture
def devices():
    found = jax.devices("cuda")
    if len(found) < 2:
        pytest.skip("there is one device")
    return found[:2]


def test_two_devices(bkj, array, devices):
    """One compiled function, called with arrays of each device, and of both by turns."""
    compiled = jax.jit(all_gradients(lambda x, *A: bkj.kron_matmul(x, A), 3))
    loop = training(lambda x, *A: bkj.kron_matmul(x, A), 3, 3, "fori")
    given = [array(50, 48), array(6, 8), array(8, 4)]
    expected = jax.jit(all_gradients(chain, 3))(*given)
    after = training(chain, 3, 3, "fori")(tuple(given))
    for _ in range(3):
        for device in devices:
            there = [jax.device_put(one, device) for one in given]
            found, steps = compiled(*there), loop(tuple(there))
            assert all(one.devices() == {device} for one in jax.tree.leaves((found, steps)))
            assert_close(jax.device_put(found, devices[0]), expected, 50 * 48)
            assert_close(jax.device_put(steps, devices[0]), after, 48 * 1e4)


def test_rows_on_two_devices(bkj, array, devices):
    """Gradients of factors that both have are the sums over the rows of each."""
    mesh = jax.sharding.Mesh(np.array(devices), ("rows",))
    by_rows, everywhere = (
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
        for axes in (("rows",), ())
    )
    x, *factors = array(60, 48), array(6, 8), array(8, 4)
    expected = jax.jit(all_gradients(chain, 3))(x, *factors)

    def total(x, *factors):
        value, gradients = all_gradients(lambda x, *A: bkj.kron_matmul(x, A), 3)(x, *factors)
        return jax.lax.psum(value, "rows"), (gradients[0], *jax.lax.psum(gradients[1:], "rows"))

    rows, all_of_it = jax.sharding.PartitionSpec("rows"), jax.sharding.PartitionSpec()
    shared = jax.jit(
        jax.shard_map(
            total,
            mesh=mesh,
            in_specs=(rows, all_of_it, all_of_it),
            out_specs=(all_of_it, (rows, all_of_it, all_of_it)),
            check_vma=False,
        )
    )
    given = [jax.device_put(x, by_rows), *(jax.device_put(A, everywhere) for A in factors)]
    for _ in range(3):
        found = shared(*given)
        assert found[1][0].sharding.is_equivalent_to(by_rows, 2)
        assert_close(jax.device_put(found, devices[0]), expected, 60 * 48)
