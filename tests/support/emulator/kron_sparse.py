"""Kernels of Kronecker-sparse products on the CPU, compared with the definition bit by bit."""

import math

import numpy as np

from batchkron.backends.cuda.kron_sparse.kernel import WORD, sum_dtype
from batchkron.backends.cuda.kron_sparse.stored import store_kernel, stored_values
from emulator.host_compiler import COPIES, Launch
from emulator.kron_matmul import placed


def narrowed(values, dtype):
    """Small integers as numbers of a dtype; bfloat16 as its bits."""
    if dtype == "bfloat16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        assert not (bits & 0xFFFF).any(), "not a number of 16 bits"
        return (bits >> 16).astype(np.uint16)
    return np.ascontiguousarray(values, dtype)


def as_numbers(array, dtype):
    """What `narrowed` returned, as numbers."""
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else array


def amid_poison(values, dtype, offset):
    """Values ``offset`` elements behind a multiple of 16 bytes, and all around them NaN."""
    if dtype == "bfloat16":
        view, whole = placed(values.view(np.float16), offset)
        whole.view(np.uint16)[np.isnan(whole)] = 0x7FC0
        view.view(np.uint16)[...] = values
        return view.view(np.uint16), whole.view(np.uint16)
    return placed(values, offset)


def is_poison(array, dtype):
    return array == 0x7FC0 if dtype == "bfloat16" else np.isnan(array)


def emulated(how, copies, rng, blocks=None):
    """A launch of one to three thread blocks, or of so many, instead of all."""
    return Launch(
        blocks=min(how.blocks, blocks or int(rng.integers(1, 4))),
        threads=how.threads,
        shared_bytes=how.shared_bytes,
        when=COPIES[copies],
        seed=int(rng.integers(1 << 30)),
    )


def run(kernel, launch, device, copies, rng, alpha=1, accumulate=False, blocks=None):
    """Run a kernel on random integers, and compare with the definition, bit by bit."""
    shape = kernel.work
    sizes = shape.a, shape.b, shape.c, shape.d
    dtype, large = shape.dtype, 1 if shape.itemsize == 2 else 3
    is_complex = dtype.startswith("complex")

    def integers(*shape):
        found = rng.integers(-large, large + 1, shape).astype("f8")
        return found + 1j * rng.integers(-large, large + 1, shape) if is_complex else found

    values = integers(*sizes)
    given = integers(shape.outer, shape.a, shape.c, shape.d, shape.inner)
    before = integers(shape.outer, shape.a, shape.b, shape.d, shape.inner)
    expected = alpha * np.einsum("oiljr,iklj->oikjr", given, values) + before * accumulate
    offset = 0 if shape.alignment == 16 else shape.alignment // shape.itemsize
    x, _ = amid_poison(narrowed(given, dtype), dtype, offset)
    stored = stored_values(narrowed(values, dtype), kernel.family.stored)
    held, _ = amid_poison(stored, dtype, 0)
    poison = np.full(before.shape, 0x7FC0 if dtype == "bfloat16" else np.nan, x.dtype)
    y, whole = amid_poison(narrowed(before, dtype) if accumulate else poison, dtype, offset)
    around = is_poison(whole, dtype).sum() - is_poison(y, dtype).sum()
    arguments = kernel.arguments.copy()
    for name, array in (("x", x), ("y", y), ("values", held)):
        arguments[name] = array.ctypes.data
    arguments["alpha"] = np.asarray(alpha, sum_dtype(dtype))
    arguments["accumulate"] = accumulate
    how = emulated(kernel.launch, copies, rng, blocks)
    failure = launch(arguments.tobytes(), how, [x, held])
    assert not failure, f"{kernel}: {failure}"
    np.testing.assert_array_equal(as_numbers(y, dtype), expected, err_msg=str(kernel))
    assert is_poison(whole, dtype).sum() == around, f"{kernel}: y's neighbours were written"


def run_ending(kernel, ending, launch, copies, rng, *, bias=True, before=True):
    """Run a kernel whose product has an ending, with a bias or none, and z written or not."""
    shape, dtype = kernel.work, kernel.work.dtype
    values = rng.integers(-1, 2, (shape.a, shape.b, shape.c, shape.d)).astype("f8") / 4
    given = rng.integers(-1, 2, (shape.outer, shape.a, shape.c, shape.d, shape.inner)).astype("f8")
    added = rng.integers(-2, 3, (shape.a, shape.b, shape.d)) / 2 * bias
    z = np.einsum("oiljr,iklj->oikjr", given, values) + added[..., None]
    offset = 0 if shape.alignment == 16 else shape.alignment // shape.itemsize
    x, _ = amid_poison(narrowed(given, dtype), dtype, offset)
    held, _ = amid_poison(stored_values(narrowed(values, dtype), kernel.family.stored), dtype, 0)
    of_bias, _ = amid_poison(narrowed(added, dtype), dtype, 1)
    poison = np.full(z.shape, 0x7FC0 if dtype == "bfloat16" else np.nan, x.dtype)
    y, whole = amid_poison(poison, dtype, offset)
    of_z, around = amid_poison(poison, dtype, offset)
    outside = is_poison(whole, dtype).sum() - y.size
    arguments = kernel.arguments.copy()
    for name, array in (("x", x), ("y", y), ("values", held)):
        arguments[name] = array.ctypes.data
    arguments["bias"] = of_bias.ctypes.data * bias
    arguments["before"] = of_z.ctypes.data * before
    failure = launch(arguments.tobytes(), emulated(kernel.launch, copies, rng), [x, held, of_bias])
    assert not failure, f"{kernel}: {failure}"
    expected = {
        "bias": z,
        "gelu": z * (1 + np.vectorize(math.erf)(z / 2**0.5)) / 2,
        "gelu-tanh": z * (1 + np.tanh((2 / np.pi) ** 0.5 * (z + 0.044715 * z**3))) / 2,
    }[ending]
    eps = {"float16": 2**-10, "bfloat16": 2**-7}.get(dtype) or np.finfo(dtype).eps
    np.testing.assert_allclose(as_numbers(y, dtype), expected, rtol=4 * eps, atol=4 * eps)
    assert is_poison(whole, dtype).sum() == outside, f"{kernel}: y's neighbours were written"
    if before and ending != "bias":
        np.testing.assert_array_equal(as_numbers(of_z, dtype), z, str(kernel))
        assert is_poison(around, dtype).sum() == outside, f"{kernel}: z's neighbours were written"
    else:
        assert is_poison(around, dtype).all(), f"{kernel}: z was written"


def run_often(kernel, launch, device, rng):
    """Run a kernel as often as some mistakes need to be seen."""
    for copies in COPIES:
        run(kernel, launch, device, copies, rng, blocks=1)


def run_store(case, launch, device, rng):
    """Copy random values to where they are stored, and compare all bits; padding is zero."""
    pattern, strides, dtype, stored = case
    kind = np.dtype("uint16" if dtype in ("float16", "bfloat16") else dtype)
    reach = 1 + sum((size - 1) * step for size, step in zip(pattern, strides, strict=True))
    held = rng.integers(1, 100, reach).astype(kind)
    in_bytes = tuple(step * kind.itemsize for step in strides)
    values = np.lib.stride_tricks.as_strided(held, pattern, in_bytes)
    expected = stored_values(np.ascontiguousarray(values), stored)
    whole = np.full(expected.size + 2, 101, kind)
    kernel = store_kernel(pattern, in_bytes, kind.itemsize, dtype, stored, device)
    arguments = kernel.arguments
    arguments["values"] = held.ctypes.data
    arguments["stored"] = whole.ctypes.data + kind.itemsize
    failure = launch(arguments.tobytes(), emulated(kernel.launch, "at once", rng), [held])
    assert not failure, f"{case}: {failure}"
    np.testing.assert_array_equal(whole[1:-1].reshape(expected.shape), expected, str(case))
    assert whole[0] == whole[-1] == 101, f"{case}: neighbours were written"


def run_transpositions(one, alignment, launch, rng, times, blocks=None):
    """Transpose random bits between neighbours that must stay."""
    for _ in range(times):
        run_transposition(one, alignment, launch, rng, blocks)


def run_transposition(one, alignment, launch, rng, blocks):
    count, length, width, itemsize, to_long = one.work
    kind, size = np.dtype(f"u{itemsize}"), count * length * width
    source, target = (rng.integers(1, 1 << 16, size + 2 * WORD).astype(kind) for _ in range(2))
    before = target.copy()

    def begin(array, alignment):
        first = -array.ctypes.data % WORD // itemsize  # of a whole word
        return first + (0 if alignment == WORD else alignment // itemsize)

    ends = (alignment, WORD) if to_long else (WORD, alignment)
    sides = (length, width) if to_long else (width, length)
    given, result = begin(source, ends[0]), begin(target, ends[1])
    matrices = source[given : given + size].reshape(count, *sides)
    arguments = one.arguments.copy()
    arguments["from"] = matrices.ctypes.data
    arguments["to"] = target.ctypes.data + result * itemsize
    how = emulated(one.launch, "at once", rng, blocks)
    failure = launch(arguments.tobytes(), how, [source])
    assert not failure, f"{one}: {failure}"
    before[result : result + size] = matrices.swapaxes(1, 2).ravel()
    np.testing.assert_array_equal(target, before, str(one))
