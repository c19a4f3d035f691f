"""The kernel `copy_rectangles`, lane by lane on the CPU: exchanges between ranks, and its cuts."""

import sys

import kernel_resources
import numpy as np
import pytest
from dense_oracle import DTYPES
from emulator.host_compiler import COPIES, Launch, compiled, mistake
from nvrtc import DEVICES, compile_program

from batchkron.backends.cuda.exchange import kernel
from batchkron.backends.cuda.exchange.kernel import ARGUMENTS, THREADS, Copies, copies_of
from batchkron.backends.cuda.runtime.program import compile_options, device_sources
from batchkron.distributed.exchanges.exchange import Exchange

EVERY = [(word, turned) for word in (4, 8, 16) for turned in (False, True)]
linux = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")


def programs():
    return [Copies(word, turned, np.zeros(1), 1).program() for word, turned in EVERY]


@pytest.fixture(scope="module")
def launches(tmp_path_factory):
    found = compiled(programs(), tmp_path_factory.mktemp("copies"))
    return dict(zip(EVERY, found, strict=True))


def run(launches, pairs, arrays, rng, blocks=3):
    """Copy on the emulated device; return the kinds of words that were used."""
    kinds = []
    for copies in copies_of(pairs):
        how = Launch(
            blocks=int(rng.integers(1, blocks + 1)),
            threads=THREADS,
            shared_bytes=copies.shared_bytes,
            when=COPIES["at random"],
            seed=int(rng.integers(1 << 30)),
        )
        kinds.append((copies.word, copies.turned))
        assert launches[kinds[-1]](copies.arguments.tobytes(), how, arrays) == ""
    return kinds


def filled(shape, dtype, value=np.nan):
    return np.full(shape, value, dtype)


WAYS = ("pack", "unpack", "pack_back", "unpack_back")


@linux
@pytest.mark.parametrize("dtype", DTYPES)
def test_exchanges_are_packed_unpacked_and_stored(launches, rng, dtype):
    seen = set()
    for _ in range(12):
        moved, others, parts = (int(n) for n in rng.integers(1, (70, 70, 5)))
        vectors, inner = (int(n) for n in rng.integers(1, 4, 2))
        inner = int(rng.choice([1, 1, inner]))
        exchange = Exchange(
            moved,
            others,
            (0, *sorted(rng.integers(0, others + 1, parts - 1).tolist()), others),
            (0, *sorted(rng.integers(0, moved * others + 1, parts - 1).tolist()), moved * others),
        )
        rank = int(rng.integers(parts))
        rows = exchange.sources[rank + 1] - exchange.sources[rank]
        width = exchange.targets[rank + 1] - exchange.targets[rank]
        products = rng.standard_normal((vectors, rows, moved, inner)).astype(dtype)
        part = rng.standard_normal((vectors, width, inner)).astype(dtype)
        places = [
            filled((vectors, exchange.targets[r + 1] - exchange.targets[r], inner), dtype)
            for r in range(parts)
        ]
        given = products, part.reshape(-1), part, products.reshape(-1)
        shapes = products.size, part.shape, part.size, products.shape
        for name, source, shape in zip(WAYS, given, shapes, strict=True):
            way = getattr(exchange, name)
            found, expected = filled(shape, dtype), filled(shape, dtype)
            seen.update(run(launches, way(rank, source, found), [source], rng))
            for target, view in way(rank, source, expected):
                target[...] = view
            np.testing.assert_array_equal(found, expected)
            assert not np.isnan(found).any()
        expected = [place.copy() for place in places]
        run(launches, exchange.store(rank, products, places), [products], rng)
        for target, source in exchange.store(rank, products, expected):
            target[...] = source
        for place, wanted in zip(places, expected, strict=True):
            np.testing.assert_array_equal(place, wanted)
    assert len(seen) >= 2


@linux
@pytest.mark.parametrize("inner", [1, 3])
@pytest.mark.parametrize("parts", [2, 4])
def test_neighbours_on_both_sides_are_copied_in_runs(launches, rng, parts, inner):
    """Parts that stay in the order (l, s): words of 16 bytes, and threads along the runs of s."""
    moved, others, vectors = 8 * parts, 3 * parts, 2
    sources = tuple(3 * part for part in range(parts + 1))
    targets = tuple(8 * others * part for part in range(parts + 1))
    exchange = Exchange(moved, others, sources, targets, in_place=True)
    products = rng.standard_normal((vectors, 3, moved, inner)).astype("float32")
    packed = filled(products.size, "float32")
    pairs = exchange.pack(1, products, packed)
    for copies in copies_of(pairs):
        assert (copies.word, copies.turned) == (16, False)
        sizes = copies.arguments["rectangles"][0]["sizes"][: len(pairs)]
        assert sizes.tolist() == [[1, vectors, 3, 8 * inner // 4]] * parts
    run(launches, pairs, [products], rng)
    expected = filled(products.size, "float32")
    for target, view in exchange.pack(1, products, expected):
        target[...] = view
    np.testing.assert_array_equal(packed, expected)
    part = filled((vectors, 8 * others, inner), "float32")
    received = rng.standard_normal(part.size).astype("float32")
    pairs = exchange.unpack(1, received, part)
    assert {copies.word for copies in copies_of(pairs)} == {16}
    run(launches, pairs, [received], rng)
    expected = np.full_like(part, np.nan)
    for target, view in exchange.unpack(1, received, expected):
        target[...] = view
    np.testing.assert_array_equal(part, expected)


@linux
def test_more_rectangles_than_a_launch_takes(launches, rng):
    source = rng.standard_normal((80, 5, 6, 1))
    target = filled((80, 6, 5, 1), float)
    pairs = [(target[k : k + 1].transpose(0, 2, 1, 3), source[k : k + 1]) for k in range(80)]
    assert len(run(launches, pairs, [source], rng)) == 3
    np.testing.assert_array_equal(target.transpose(0, 2, 1, 3), source)


@linux
def test_large_rectangles_are_cut(launches, rng, monkeypatch):
    monkeypatch.setattr(kernel, "_MAX_WORDS", 100)
    source = rng.standard_normal((3, 20, 7, 2))
    target = filled((3, 7, 20, 2), float)
    pairs = [(target.transpose(0, 2, 1, 3), source)]
    assert sum(int(each.arguments["count"][0]) for each in copies_of(pairs)) > 8
    run(launches, pairs, [source], rng)
    np.testing.assert_array_equal(target.transpose(0, 2, 1, 3), source)


def test_nothing_is_launched_for_nothing():
    assert copies_of([]) == []
    assert copies_of([(np.empty((2, 0, 3, 1)), np.empty((2, 0, 3, 1)))]) == []


def test_words_are_as_large_as_sizes_and_addresses_allow():
    memory = np.zeros(4096, np.float32)
    first = (-memory.ctypes.data % 16) // 4
    aligned, odd = (memory[first + k :][:480].reshape(1, 4, 1, 120) for k in (0, 1024 + 1))
    other = memory[first + 512 :][:480].reshape(1, 4, 1, 120)
    assert [(c.word, c.turned) for c in copies_of([(aligned, other)])] == [(16, False)]
    assert [(c.word, c.turned) for c in copies_of([(aligned, odd)])] == [(4, False)]
    turned = memory[first : first + 64].reshape(1, 8, 8, 1)
    found = copies_of([(turned, memory[first + 512 :][:64].reshape(1, 8, 8, 1).swapaxes(1, 2))])
    assert [(c.word, c.turned) for c in found] == [(4, True)]


@linux
def test_a_missing_barrier_is_seen(tmp_path, rng):
    """A tile that is overwritten while others read it."""
    header = "cuda/exchange/copies.cuh"
    change = mistake(header, "  __syncthreads();  // the tile before has been read\n", "")
    found = dict(zip(EVERY, compiled(programs(), tmp_path, change=change), strict=True))
    source = rng.standard_normal((5, 64, 64, 1))
    target = filled((5, 64, 64, 1), float)
    wrong = False
    for _ in range(20):
        run(found, [(target.swapaxes(1, 2), source)], [source], rng, blocks=1)
        wrong = wrong or not np.array_equal(target.swapaxes(1, 2), source)
    assert wrong


@pytest.mark.parametrize("capability", DEVICES)
def test_kernels_compile_without_a_stack(capability):
    for used in kernel_resources.compiled(programs(), capability):
        assert used.registers <= 40
        assert used.stack == 0


def test_arguments_are_laid_out_as_in_the_kernel():
    assert ARGUMENTS.itemsize <= 4096
    rectangle = ARGUMENTS.fields["rectangles"][0].base
    lines = [
        '#include "cuda/exchange/copies.cuh"',
        "using R = batchkron::Rectangle<batchkron::Word16>;",
        "using A = batchkron::CopyArguments<batchkron::Word16>;",
        f"static_assert(sizeof(A) == {ARGUMENTS.itemsize});",
        f"static_assert(sizeof(R) == {rectangle.itemsize});",
    ]
    for name in rectangle.names:
        at = rectangle.fields[name][1]
        lines.append(f"static_assert(__builtin_offsetof(R, {name}) == {at});")
    lines.append("__global__ void nothing() {}")
    options = compile_options("90")
    compile_program("\n".join(lines), device_sources(), "nothing", options)
