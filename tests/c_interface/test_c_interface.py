"""The C interface: the bits of the Python package, and bad arguments refused."""

import ctypes
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from c_library import (
    DTYPES,
    INVALID,
    NO_MEMORY,
    OVERFLOW,
    C,
    List,
    Part,
    Plan,
    RefusedError,
    Step,
    addresses,
    call,
    number,
    sizes,
)

import batchkron as bk

REAL = [np.float32, np.float64]


def random(rng, dtype, *shape):
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def poisoned(dtype, *shape):
    return np.full(shape, np.nan, dtype)


@pytest.fixture
def rng():
    return np.random.default_rng()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("seed", range(4))
def test_products_have_the_bits_of_python(rng, dtype, transposed, seed):
    rows, columns = rng.integers(1, 9, 3), rng.integers(1, 9, 3)
    factors = [random(rng, dtype, *shape) for shape in zip(rows, columns, strict=True)]
    x = random(rng, dtype, columns.prod(), 5)
    plan = Plan("kron", dtype, 3, rows, columns, 1, 5)
    memory = [np.ascontiguousarray(each.T) if transposed else each for each in factors]
    y, alpha, beta = poisoned(dtype, rows.prod(), 5), number(1.5, dtype), number(0.25, dtype)
    plan.run(addresses(memory), transposed, x, None, None, y)
    assert (y == bk.gekmm(factors, x)).all()
    before = y.copy()
    plan.run(addresses(memory), transposed, x, alpha, beta, y)
    expected = bk.gekmm(factors, x, alpha=1.5, beta=0.25, y=before)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
    # X times the product: the factors are transposed, and no vectors are behind
    mirrored = Plan("kron", dtype, 3, columns, rows, 7, 1)
    left, out = random(rng, dtype, 7, rows.prod()), poisoned(dtype, 7, columns.prod())
    mirrored.run(addresses(memory), 1 - transposed, left, None, None, out)
    assert (out == bk.gemkm(left, factors)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_explicit_products(rng, dtype):
    a, b = random(rng, dtype, 3, 4), random(rng, dtype, 5, 2)
    out = poisoned(dtype, 15, 8)
    call("bk_kron_explicit", DTYPES[dtype], 3, 4, a, 5, 2, b, out)
    assert (out == bk.kron(a, b)).all()


class Problem:
    """A random batch list, some factors of which are the identity."""

    def __init__(self, rng, dtype, modes=3, n=4, count=200, transposed=0):
        self.dtype, self.n, self.size = dtype, n, n**modes
        self.pools = [random(rng, dtype, 6, n, n) for _ in range(modes)]
        for pool in self.pools:
            pool[2] = np.eye(n)
        self.counts = rng.integers(5, 20, 2)
        self.ids = rng.integers(0, 6, (count, modes))
        self.inputs = rng.integers(0, self.counts[0], count)
        self.outputs = rng.integers(0, self.counts[1], count)
        self.weights = random(rng, dtype, count)
        self.shape = sizes(*[n] * modes), sizes(*[6] * modes)
        arrays = (self.shape[0], self.shape[0], self.shape[1])
        self.list = List(
            modes, transposed, *(array.ctypes.data for array in arrays), *map(int, self.counts),
            count, self.ids.ctypes.data, self.inputs.ctypes.data, self.outputs.ctypes.data,
        )  # fmt: skip
        if transposed:
            self.memory = [np.ascontiguousarray(pool.swapaxes(1, 2)) for pool in self.pools]
        else:
            self.memory = self.pools

    def plan(self, weights=None, flags=0):
        pools = addresses(self.memory)
        return Plan("batch", self.dtype, ctypes.byref(self.list), pools, weights, flags)

    def operator(self, weights=None, **options):
        num_inputs, num_outputs = map(int, self.counts)
        return bk.BatchedKron(
            self.pools, self.ids, self.inputs, self.outputs, weights=weights,
            num_inputs=num_inputs, num_outputs=num_outputs, **options,
        )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [0, 1])
def test_lists_have_the_bits_of_python(rng, dtype, transposed):
    case = Problem(rng, dtype, transposed=transposed)
    x = random(rng, dtype, 3, case.counts[0] * case.size)
    for weights in (None, case.weights):
        plan, operator = case.plan(weights), case.operator(weights)
        y = poisoned(dtype, 3, case.counts[1] * case.size)
        plan.run(3, 1, x, None, None, y)
        assert (y == operator.apply(x)).all()
        added = y.copy()
        operator.accumulate(x, added, alpha=2)
        plan.run(3, 1, x, number(2, dtype), number(1, dtype), y)
        assert (y == added).all()
    case.pools[0][0] *= 2
    case.memory[0][0] = case.pools[0][0].T if transposed else case.pools[0][0]
    plan.set_values(addresses(case.memory), case.weights)
    plan.run(3, 1, x, None, None, y)
    assert (y == case.operator(case.weights).apply(x)).all()


def test_identities_that_get_other_values(rng):
    case, keep = Problem(rng, np.float64), 2
    x = rng.standard_normal(case.counts[0] * case.size)
    plan, y = case.plan(flags=keep), poisoned(np.float64, case.counts[1] * case.size)
    plan.run(1, 1, x, None, None, y)
    np.testing.assert_allclose(y, case.operator().apply(x), atol=1e-12)
    case.pools[1][2] *= 3
    plan.set_values(addresses(case.pools), None)
    plan.run(1, 1, x, None, None, y)
    np.testing.assert_allclose(y, case.operator().apply(x), atol=1e-12)


@pytest.mark.parametrize("dtype", REAL)
def test_atomic_sums(rng, dtype):
    case = Problem(rng, dtype)
    x = random(rng, dtype, case.counts[0] * case.size)
    y = poisoned(dtype, case.counts[1] * case.size)
    case.plan(flags=1).run(1, 1, x, None, None, y)
    np.testing.assert_allclose(y, case.operator().apply(x), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_list_that_is_used_once(rng, dtype):
    case = Problem(rng, dtype)
    x = random(rng, dtype, 2, case.counts[0], case.size)
    y = random(rng, dtype, 2, case.counts[1], case.size)
    expected = y.copy()
    bk.batched_kron(
        case.pools, case.ids, x, case.inputs, case.outputs, expected, weights=case.weights
    )
    pools = addresses(case.memory)
    call("bk_batch_once", DTYPES[dtype], ctypes.byref(case.list), pools, case.weights, 2, x, y)
    assert (y == expected).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transpose", [0, 1])
def test_batched_gemm(rng, dtype, transpose):
    m, n, k, count = 3, 4, 5, 40
    a, c = random(rng, dtype, 7, m, k), random(rng, dtype, 6, m, n)
    b = random(rng, dtype, 8, *((n, k) if transpose else (k, n)))
    a_ids, b_ids, c_ids = (rng.integers(0, limit, count) for limit in (7, 8, 6))
    options = {"transpose_b": bool(transpose), "alpha": 2.0, "beta": 1.0}
    expected = bk.batched_gemm(a, b, c.copy(), a_ids=a_ids, b_ids=b_ids, c_ids=c_ids, **options)
    alpha, beta = number(2, dtype), number(1, dtype)
    call(
        "bk_gemm_batched", DTYPES[dtype], m, n, k, transpose, count, a_ids, b_ids, c_ids, 7, 8, 6,
        a, b, alpha, beta, c,
    )  # fmt: skip
    assert (c == expected).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_kronecker_sparse_matrices(rng, dtype):
    a, b, c, d = rng.integers(1, 7, 4).tolist()
    values = random(rng, dtype, a, b, c, d)
    matrix, plan = bk.KroneckerSparse(values), Plan("kron_sparse", dtype, a, b, c, d, values)
    for outer, inner in ((1, 1), (9, 1), (1, 33), (3, 2)):
        x = random(rng, dtype, outer, a * c * d, inner)
        y = poisoned(dtype, outer, a * b * d, inner)
        plan.run(outer, inner, x, None, None, y)
        np.testing.assert_allclose(y, matrix.to_dense() @ x, rtol=1e-4, atol=1e-4)
        if inner == 1:
            assert (y[..., 0] == matrix.apply(x[..., 0])).all()
    plan.set_values(np.zeros_like(values))
    plan.run(outer, inner, x, None, None, y)
    assert not y.any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_sweeps(rng, dtype):
    """Two sweeps, the second along another mode: y = (I x B) (A x I) x by nodes of one block."""
    nodes, n = 5, 3
    A, B = random(rng, dtype, 2, n, n), random(rng, dtype, 1, n, n)
    starts = np.arange(0, 2 * nodes + 1, 2, dtype=np.int32)
    ids = np.tile(np.array([0, 1], np.int32), nodes)
    children = rng.integers(0, nodes, 2 * nodes).astype(np.int32)
    same, zero = np.arange(nodes + 1, dtype=np.int32), np.zeros(nodes, np.int32)
    parts = [
        Part(0, 0, 2, starts.ctypes.data, ids.ctypes.data, children.ctypes.data),
        Part(2, 1, 1, same.ctypes.data, zero.ctypes.data, same.ctypes.data),
    ]
    steps = (Step * 2)(
        Step(2, 0, 1, ctypes.pointer(parts[0])), Step(1, 0, 1, ctypes.pointer(parts[1]))
    )
    vectors = sizes(0, 0, 0), sizes(nodes, nodes, nodes)
    plan = Plan("sweeps", dtype, 2, sizes(n, n), 3, *vectors, 2, steps, addresses([A, B]))
    x, y = random(rng, dtype, nodes, n, n), poisoned(dtype, nodes, n, n)
    plan.run(1, 1, x, None, None, y)
    middle = np.array(
        [sum(A[ids[e]] @ x[children[e]] for e in (2 * i, 2 * i + 1)) for i in range(nodes)]
    )
    np.testing.assert_allclose(y, middle @ B[0].T, rtol=1e-4, atol=1e-4)
    plan.set_values(addresses([A, 2 * B]))
    again = poisoned(dtype, nodes, n, n)
    plan.run(1, 1, x, None, None, again)
    np.testing.assert_allclose(again, 2 * y, rtol=1e-5)
    for order, text in (
        ([steps[1]], "reads a vector that no step has written"),
        ([steps[0]], "no step writes vector 1"),
        ([steps[0], steps[1], steps[1]], "overwrites vector 1"),
        ([Step(1, 1, 1, ctypes.pointer(parts[0]))], "adds to a vector that no step"),
    ):
        given, matrices = (Step * len(order))(*order), addresses([A, B, B])
        with pytest.raises(RefusedError, match=text):
            Plan("sweeps", dtype, 2, sizes(n, n), 3, *vectors, len(order), given, matrices)
    parts[0].mode = 2
    with pytest.raises(RefusedError, match="the mode of a part is 2; expected 0 to 1"):
        Plan("sweeps", dtype, 2, sizes(n, n), 3, *vectors, 2, steps, addresses([A, B]))


def refusals(rng):
    dtype = np.float64
    two = sizes(2, 2)
    factors, x, y = [np.eye(2), np.eye(2)], np.ones(4), np.ones(4)
    plan = Plan("kron", dtype, 2, two, two, 1, 1)
    both = addresses(factors)
    yield lambda: Plan("kron", dtype, 0, two, two, 1, 1), "num_factors is 0; expected at least 1"
    yield lambda: Plan("kron", dtype, 2, sizes(2, 0), two, 1, 1), "rows of a factor is 0"
    yield lambda: Plan("kron", dtype, 2, None, two, 1, 1), "rows or columns is null"
    yield lambda: Plan("kron", dtype, 2, two, two, -1, 1), "outer is -1"
    yield lambda: plan.run(None, 0, x, None, None, y), "a list of arrays is null"
    yield lambda: plan.run((ctypes.c_void_p * 2)(), 0, x, None, None, y), r"factors\[0\] is null"
    yield lambda: plan.run(both, 0, None, None, None, y), "x is null"
    yield lambda: plan.run(both, 0, x, None, None, x), "x and the result overlap"
    odd = ctypes.c_void_p(x.ctypes.data + 1)
    yield lambda: plan.run(both, 0, odd, None, None, y), "x is not aligned"
    own = np.zeros(8)
    inside = addresses([own[:4], factors[1]])
    yield lambda: plan.run(inside, 0, x, None, None, own[2:6]), "a factor and the result overlap"
    case = Problem(rng, dtype)
    yield lambda: case.plan(flags=8), "flags has an unknown one"
    for name, array, text in (
        ("inputs", case.inputs, r"inputs\[3\] is 1000; expected 0 to"),
        ("outputs", case.outputs, r"outputs\[3\] is 1000; expected 0 to"),
        ("ids", case.ids, r"ids\[3, 0\] is 1000; expected 0 to 5"),
    ):
        broken = Problem(rng, dtype)
        getattr(broken, name)[3] = 1000
        yield broken.plan, text
        assert array.max() < 1000
    plan = case.plan()
    case.pools[0][2] *= 2
    yield lambda: plan.set_values(addresses(case.pools), None), r"pools\[0\]\[2\] was the identity"


def test_bad_arguments_are_refused(rng):
    for act, text in refusals(rng):
        with pytest.raises(RefusedError, match=text) as caught:
            act()
        assert caught.value.status == INVALID


def test_sizes_beyond_64_bits_and_memory():
    large = sizes(2**31, 2**31)
    with pytest.raises(RefusedError) as caught:
        Plan("kron", np.float64, 2, large, large, 4, 1)
    assert caught.value.status == OVERFLOW
    with pytest.raises(RefusedError) as caught:
        Plan("kron_sparse", np.float64, 2**15, 2**15, 2**15, 1, np.ones(1))
    assert caught.value.status in (NO_MEMORY, OVERFLOW, INVALID)


def test_an_unknown_dtype_is_refused():
    handle = ctypes.c_void_p(1)
    with pytest.raises(RefusedError, match="dtype is 9"):
        call("bk_kron_create", ctypes.byref(handle), 9, 1, sizes(2), sizes(2), 1, 1)
    assert handle.value is None


def test_errors_belong_to_their_threads():
    with pytest.raises(RefusedError):
        Plan("kron", np.float64, 0, sizes(2), sizes(2), 1, 1)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(C.bk_last_error).result() == b""


def test_several_threads_run_one_plan(rng):
    case = Problem(rng, np.float64)
    plan, operator = case.plan(), case.operator()

    def work(seed):
        x = np.random.default_rng(seed).standard_normal(case.counts[0] * case.size)
        y = np.empty(case.counts[1] * case.size)
        for _ in range(20):
            plan.run(1, 1, x, None, None, y)
            assert (y == operator.apply(x)).all()
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_what_the_library_says_of_itself():
    assert C.bk_abi_version() == 1
    assert C.bk_version().decode() == bk.__version__
    name = ctypes.c_char_p()
    call("bk_instruction_set", ctypes.byref(name))
    assert name.value in (b"baseline", b"avx2", b"avx512")
    assert {C.bk_status_text(status) for status in range(6)} >= {
        b"no error",
        b"an argument is wrong",
    }


def test_threads_are_those_of_python():
    before = bk.get_num_threads()
    try:
        call("bk_set_num_threads", ctypes.c_int32(2))
        assert bk.get_num_threads() == C.bk_num_threads() == min(2, bk.get_num_threads())
    finally:
        bk.set_num_threads(before)


@pytest.mark.parametrize(
    ("option", "end"),
    [("--include", "include"), ("--libs", "lib"), ("--cmake-dir", "cmake/batchkron")],
)
def test_where_things_are(option, end):
    command = [sys.executable, "-P", "-m", "batchkron.config", option]
    found = subprocess.check_output(command, text=True).split()[0]
    assert found.endswith(end)
    folder = Path(found[2:] if found.startswith("-") else found)
    assert folder.exists() or option == "--cmake-dir"  # which is made by the installation
