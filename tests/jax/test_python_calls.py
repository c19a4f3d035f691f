"""What devices run, here on arrays of NumPy, against what the CPU runs."""

import ctypes
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import jax
import numpy as np
import pytest

from batchkron.jax import batched, python_calls, solves, sparse


def run(name, inputs, shape, transpose=False):
    out = np.full(shape, np.nan)
    given = [np.asarray(one) for one in inputs]
    python_calls.call(name, given, [out], transpose, 0)
    return out


def test_batched_kron(array):
    pools = [array(2, 3, 2), array(3, 1, 4)]
    ids, reads, writes = np.array([[0, 2], [1, 0]]), np.array([1, 0]), np.array([0, 0])
    operands = [array(2, 2, 8), array(2), *pools, ids, reads, writes]
    expected = batched._multiply(*map(jax.numpy.asarray, operands), num_outputs=2)
    found = run("batched_kron", operands, expected.shape)
    assert np.allclose(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("inner", [1, 5])
def test_kronecker_sparse(array, inner):
    operands = [array(3, 12, inner), array(2, 4, 3, 2)]
    expected = sparse._multiply(*operands)
    found = run("kronecker_sparse", operands, expected.shape)
    assert np.allclose(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("transpose", [False, True])
def test_solve_sum(array, transpose):
    factors = [array(2, 2, 2) / 4 + 2 * np.eye(2), array(1, 3, 3) / 4 + np.eye(3)]
    x = array(2, 4, 6, 1)
    b, product = np.empty(x.shape), jax.jit(solves.multiply_sum)
    for s, m in np.ndindex(2, 4):
        own = [factors[0][s], factors[1][0]]
        b[s, m, :, 0] = product([A.T if transpose else A for A in own], x[s, m, :, 0])
    found = run("solve_sum", [b, *factors], x.shape, transpose)
    assert np.allclose(found, x, rtol=1e-11, atol=1e-11)


def fake_cupy(entered):
    """What is called of CuPy, for a device 3 whose memory is that of the host."""

    @contextmanager
    def context(name):
        entered.append(name)
        yield
        entered.append(f"end of {name}")

    def unowned(address, size, owner, device):
        assert device == 3
        return (ctypes.c_char * size).from_address(address)

    cuda = SimpleNamespace(
        runtime=SimpleNamespace(pointerGetAttributes=lambda _: SimpleNamespace(device=3)),
        Device=lambda number: context(f"device {number}"),
        Stream=SimpleNamespace(
            null=context("null stream"),
            from_external=lambda stream: context(
                "stream {1} by protocol {0}".format(*stream.__cuda_stream__())
            ),
        ),
        UnownedMemory=unowned,
        MemoryPointer=lambda memory, offset: memory,
    )
    cupy = ModuleType("cupy")
    cupy.cuda = cuda
    cupy.ndarray = lambda shape, dtype, memory: np.frombuffer(memory, dtype).reshape(shape)
    return cupy


@pytest.mark.parametrize("stream", [0, 77])
def test_views_of_a_devices_memory(rng, monkeypatch, stream):
    entered = []
    cupy = fake_cupy(entered)
    monkeypatch.setattr(python_calls, "backend_on", lambda _: SimpleNamespace(array_module=cupy))
    x, K = rng.standard_normal((5, 4, 1)), rng.standard_normal((1, 3, 4, 1))
    out = np.full((5, 3, 1), np.nan)
    given = [(one.ctypes.data, one.dtype.name, one.shape) for one in (x, K, out)]
    python_calls.call("kronecker_sparse", given[:2], given[2:], False, stream)
    assert np.allclose(out[:, :, 0], x[:, :, 0] @ K[0, :, :, 0].T, rtol=1e-13)
    name = f"stream {stream} by protocol 0" if stream else "null stream"
    assert entered == ["device 3", name, f"end of {name}", "end of device 3"]
