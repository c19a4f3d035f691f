"""The kernel `copy_blocks`, lane by lane on the CPU, and its arguments."""

import sys

import kernel_resources
import numpy as np
import pytest
from emulator.host_compiler import COPIES, Launch, compiled
from nvrtc import DEVICES, compile_program

from batchkron.backends.cuda.exchange.block_kernel import ARGUMENTS, arguments_of, block_program
from batchkron.backends.cuda.kernel import THREADS
from batchkron.backends.cuda.runtime.program import compile_options, device_sources

WORDS = (4, 8, 16)
linux = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")


@pytest.fixture(scope="module")
def launches(tmp_path_factory):
    programs = [block_program(word) for word in WORDS]
    return dict(zip(WORDS, compiled(programs, tmp_path_factory.mktemp("blocks")), strict=True))


def memory_of(rng, vectors, blocks, size, dtype):
    """A poisoned (vectors, blocks, size) at any place of a larger array of as many vectors."""
    before, behind = (int(n) for n in rng.integers(0, 9, 2))
    whole = np.full((vectors, before + blocks * size + behind), -7, dtype)
    return whole, whole[:, before : before + blocks * size].reshape(vectors, blocks, size)


@linux
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_random_blocks(launches, rng, dtype):
    seen = set()
    for _ in range(20):
        vectors, blocks = int(rng.integers(1, 4)), int(rng.integers(1, 30))
        size = int(rng.choice([1, 2, 3, 27, 64, 1100]))
        source = rng.integers(0, 99, (vectors, blocks, size)).astype(dtype)
        counts = rng.integers(0, 20, int(rng.integers(1, 6)))
        chosen = rng.integers(0, blocks, counts.sum())
        begins = np.cumsum([0, *counts]).tolist()
        found = [memory_of(rng, vectors, count, size, dtype) for count in counts.tolist()]
        word, arguments = arguments_of(source, chosen, begins, [part for _, part in found])
        seen.add(word)
        how = Launch(
            blocks=int(rng.integers(1, 4)),
            threads=THREADS,
            shared_bytes=0,
            when=COPIES["at random"],
            seed=int(rng.integers(1 << 30)),
        )
        assert launches[word](arguments.tobytes(), how, [source, chosen]) == ""
        for (whole, part), begin, end in zip(found, begins, begins[1:], strict=False):
            np.testing.assert_array_equal(part, source[:, chosen[begin:end]])
            assert np.count_nonzero(whole != -7) <= part.size
    assert np.dtype(dtype).itemsize in seen or 16 in seen


@linux
def test_stores_begin_at_lines(launches, rng):
    """Each warp's store goes to whole lines, however a target lies in memory."""
    source = rng.standard_normal((1, 5, 729))
    whole = np.zeros(729 * 5 + 40)
    first = (-whole.ctypes.data // 8) % 16 + 3  # three words behind a line
    target = whole[first : first + 729 * 5].reshape(1, 5, 729)
    _, arguments = arguments_of(source, np.arange(5), [0, 5], [target])
    assert arguments["targets"]["pieces"][0, 0] == -(-(5 * 729 + 15) // (4 * THREADS))


@pytest.mark.parametrize("capability", DEVICES)
def test_kernels_compile_without_a_stack(capability):
    for used in kernel_resources.compiled(map(block_program, WORDS), capability):
        assert used.registers <= 64
        assert used.stack == 0


def test_arguments_are_laid_out_as_in_the_kernel():
    assert ARGUMENTS.itemsize <= 4096
    lines = [
        '#include "cuda/exchange/block_copies.cuh"',
        "using R = batchkron::BlockTarget<batchkron::Word16>;",
        "using A = batchkron::BlockCopyArguments<batchkron::Word16>;",
        f"static_assert(sizeof(A) == {ARGUMENTS.itemsize});",
    ]
    target = ARGUMENTS.fields["targets"][0].base
    for name, record in (("A", ARGUMENTS), ("R", target)):
        for field in record.names:
            at = record.fields[field][1]
            lines.append(f"static_assert(__builtin_offsetof({name}, {field}) == {at});")
    lines.append("__global__ void nothing() {}")
    compile_program("\n".join(lines), device_sources(), "nothing", compile_options("90"))
