"""The same bits for any number of threads; no allocation with out=; a second thread is safe."""

import os
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import batchkron as bk


def batch_operator(rng, accumulation="auto", products=20000):
    pool = rng.standard_normal((50, 3, 3))
    pool[7] = np.eye(3)
    ids = rng.integers(0, 50, (products, 3))
    source, target = rng.integers(0, 500, products), rng.integers(0, 200, products)
    return bk.BatchedKron(
        pool, ids, source, target, num_inputs=500, num_outputs=200, accumulation=accumulation
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_bits_do_not_depend_on_threads(rng, threads, dtype):
    op = batch_operator(rng).astype(dtype)
    x = rng.standard_normal((500, 27)).astype(dtype)
    factors = [rng.standard_normal((n, n)).astype(dtype) for n in (5, 8, 16, 7)]
    shapes = [(1, 4480), (3, 4480), (700, 4480)]
    vectors = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    results = []
    for count in (1, 2, 3, 8):
        threads(count)
        products = [bk.gemkm(v, factors) for v in vectors]
        products += [bk.gekmm(factors, np.ascontiguousarray(v.T)) for v in vectors]
        results.append([op.apply(x), op.apply(x), *products])
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(results[0][0], results[0][1])


def test_fused_instruction_sets_give_the_same_bits(rng, tmp_path):
    """Each set is forced in turn; "baseline", without fused multiply-adds, agrees to rounding."""
    script = tmp_path / "run.py"
    script.write_text(
        "import sys, numpy as np, batchkron as bk\n"
        "rng, results = np.random.default_rng(5), []\n"
        "for dtype in ('float32', 'float64', 'complex64', 'complex128'):\n"
        "    for sizes in ((3, 7, 8, 5), (1,), (2,), (1, 2, 1), (2, 2), (16, 9)):\n"
        "        def array(*shape):\n"
        "            values = rng.standard_normal((2, *shape))\n"
        "            imag = 1j * values[1] if dtype[0] == 'c' else 0\n"
        "            return (values[0] + imag).astype(dtype)\n"
        "        factors = [array(n, n) for n in sizes]\n"
        "        x = array(8, int(np.prod(sizes)))\n"
        "        alpha = 0.3 + 0.2j if dtype[0] == 'c' else 0.3\n"
        "        whole = bk.gekmm(factors, x.T, alpha=alpha)\n"
        "        part = bk.gekmm(factors, x.T[:, :2], alpha=alpha)\n"
        "        assert np.array_equal(whole[:, :2], part), (dtype, sizes)\n"
        "        results += [whole.ravel(), bk.gemkm(x, factors).ravel()]\n"
        "np.save(sys.argv[1], np.concatenate(results))\n"
        "print(bk.instruction_set())\n"
    )
    results = {}
    for name in ("baseline", "avx2", "avx512"):
        path = tmp_path / f"{name}.npy"
        run = subprocess.run(
            [sys.executable, script, path],
            env={**os.environ, "BATCHKRON_ISA": name},
            capture_output=True,
            text=True,
        )
        if "not supported by this processor" in run.stderr:
            continue
        assert run.stdout.strip() == name, run.stderr
        results[name] = np.load(path)
    assert "baseline" in results
    fused = [results[name] for name in results if name != "baseline"]
    for result in fused[1:]:
        np.testing.assert_array_equal(result, fused[0])
    for result in fused:
        np.testing.assert_allclose(result, results["baseline"], rtol=0, atol=0.01)


def allocated(call):
    """Bytes that Python and NumPy allocate at most during a warm call."""
    call()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_out_allocates_nothing(rng):
    """Only the interpreter's own small objects; one vector would be 100 times larger."""
    batch = batch_operator(rng)
    product = bk.KroneckerProduct(rng.standard_normal((3, 20, 20)))
    x, y = rng.standard_normal((500, 27)), np.empty((200, 27))
    u, v = rng.standard_normal(8000), np.empty(8000)
    assert x.nbytes > 60_000
    assert v.nbytes > 60_000
    for call in (
        lambda: batch.apply(x, out=y),
        lambda: batch.accumulate(x, y),
        lambda: batch.matvec(x.reshape(-1), y.reshape(-1)),
        lambda: product.apply(u, out=v),
        lambda: product.matvec(u, v),
    ):
        assert allocated(call) < 2000


def test_atomic_equals_owner_to_rounding(rng, threads):
    owner, x = batch_operator(rng), rng.standard_normal((500, 27))
    atomic = bk.BatchedKron(
        [pool[0] for pool in owner._spec.pools],
        owner._spec.factor_ids,
        owner._spec.inputs,
        owner._spec.outputs,
        num_inputs=500,
        num_outputs=200,
        accumulation="atomic",
    )
    expected = owner.apply(x)
    threads(4)
    for _ in range(5):
        result = atomic.apply(x)
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


def test_eight_python_threads_at_once(rng):
    op, product = batch_operator(rng), bk.KroneckerProduct(rng.standard_normal((4, 9, 9)))
    inputs = [(rng.standard_normal((500, 27)), rng.standard_normal(6561)) for _ in range(16)]
    expected = [(op.apply(x), product @ u) for x, u in inputs]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda pair: (op.apply(pair[0]), product @ pair[1]), inputs * 4))
    for result, wanted in zip(results, expected * 4, strict=True):
        np.testing.assert_array_equal(result[0], wanted[0])
        np.testing.assert_array_equal(result[1], wanted[1])


def test_thread_count_errors():
    for wrong in (0, -1, 5000):
        with pytest.raises(ValueError, match=f"count is {wrong}"):
            bk.set_num_threads(wrong)
    for odd in (2.0, "2", True):
        with pytest.raises(TypeError, match="expected an integer"):
            bk.set_num_threads(odd)
