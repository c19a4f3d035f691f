"""Products whose last kernel spreads its results over several owners, lane by lane on the CPU."""

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from emulator.host_compiler import COPIES, Launch, compiled, mistake
from nvrtc import compile_program

from batchkron.backends import Owners
from batchkron.backends.cuda.kron.choose import fastest_plan, product_of
from batchkron.backends.cuda.kron.fibres.family import Fibres
from batchkron.backends.cuda.kron.spread import MAX_OWNERS, spread_arguments, spread_kernel
from batchkron.backends.cuda.runtime.arguments import FACTOR
from batchkron.backends.cuda.runtime.cubin import resources
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import compile_options, device_sources
from batchkron.backends.cuda.steps import ModeRun
from batchkron.spec.kron import KronSpec

H100 = DeviceLimits(232448, 132, 8, True, "NVIDIA H100 80GB HBM3, sm_90, 132 multiprocessors")
SMALL = replace(H100, multiprocessors=2)
linux = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")

# Sizes of the factors, vectors in a group and groups, inner, row / inner, owners, dtype. A row that
# is longer than inner is that of the last exchange.
CASES = [
    ((8,), 3, 2, 64, 1, 2, "float32"),
    ((8,), 1, 2, 36, 3, 4, "float32"),
    ((16,), 2, 2, 30, 1, 4, "float64"),
    ((64,), 1, 1, 132, 2, 4, "float32"),
    ((128,), 1, 1, 36, 1, 4, "float64"),
    ((9, 7), 2, 2, 33, 1, 3, "float32"),
    ((32, 32), 1, 1, 32, 1, 4, "float32"),
    ((12, 10), 1, 2, 8, 2, 2, "float64"),
]


def last_kernel(sizes, outer, inner, dtype, device=SMALL):
    """The kernel of all factors at once, with the variant of the best rank that can spread."""
    family, scalar = Fibres(), np.dtype(dtype)
    run = ModeRun(0, sizes, sizes, outer, inner, scalar, 0, False, inner == 1)
    for variant in family.variants(run, device):
        kernel = family.kernel(run, variant, device)
        if spread_kernel(kernel, 1, device) is not None:
            return kernel
    raise AssertionError(f"no kernel of {sizes} spreads its results")


def kernels():
    for sizes, group, groups, inner, _, parts, dtype in CASES:
        kernel = last_kernel(sizes, group * groups, inner, dtype)
        yield spread_kernel(kernel, parts, SMALL)


def run(launch, case, kernel, rng, offset=0, alpha=1.0, when="at random"):
    sizes, group, groups, inner, factor, parts, dtype = case
    rows = math.prod(sizes) // parts
    row = factor * inner
    width = rows * row  # of an l
    begin = int(rng.integers(1, 3)) * 4  # of what other ranks write
    vector = group * width + 8 * int(rng.integers(1, 3))
    x = rng.integers(-3, 4, (group * groups, *sizes, inner)).astype(dtype)
    factors = [rng.integers(-2, 3, (n, n)).astype(dtype) for n in sizes]
    expected = x
    for mode, matrix in enumerate(factors):
        expected = np.moveaxis(np.tensordot(matrix, expected, (1, mode + 1)), 0, mode + 1)
    expected = expected.reshape(groups, group, parts, rows, inner) * alpha
    memory = [np.full(begin + groups * vector + 8, np.nan, dtype) for _ in range(parts)]
    memory = [m[offset + -m.ctypes.data % 16 // m.itemsize :] for m in memory]
    owners = Owners(tuple(m[begin:] for m in memory), group, vector, width, row)
    addresses = tuple(m.ctypes.data for m in owners.arrays)
    arguments = spread_arguments(kernel, owners, addresses, inner, alpha)
    arguments["x"] = x.ctypes.data
    strides = [[s // x.itemsize for s in f.strides] for f in factors]
    arguments["factors"][0] = np.array(
        [(factors[m].ctypes.data, 0, 0, *strides[m]) for m in kernel.modes], FACTOR
    )
    shape = kernel.launch
    how = Launch(
        blocks=int(rng.integers(1, 4)),
        threads=shape.threads,
        shared_bytes=shape.shared_bytes,
        when=COPIES[when],
        seed=int(rng.integers(1 << 30)),
    )
    failure = launch(arguments.tobytes(), how, [x, *factors])
    assert not failure, failure
    for owner, found in enumerate(memory):
        wanted = np.full_like(found, np.nan)
        for number in range(groups):
            for l in range(group):  # noqa: E741
                at = begin + number * vector + l * width
                part = wanted[at : at + width].reshape(rows, row)
                part[:, :inner] = expected[number, l, owner]
        np.testing.assert_array_equal(found, wanted, err_msg=str(case))
    return int(arguments["aligned"][0])


@linux
def test_results_are_where_their_owners_need_them(rng, tmp_path):
    made = list(kernels())
    launches = compiled([kernel.program for kernel in made], tmp_path)
    seen = set()
    for case, kernel, launch in zip(CASES, made, launches, strict=True):
        for when in COPIES:
            seen.add(run(launch, case, kernel, rng, when=when))
        seen.add(run(launch, case, kernel, rng, offset=1, alpha=-2.0))
    assert seen == {0, 1}


@linux
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("a.to[owner] + part.y", "a.to[0] + part.y"),
        ("(place.k - owner * own)", "(own - 1 - (place.k - owner * own))"),
        ("vector * a.vector +", "vector * a.group * a.slice +"),
    ],
)
def test_a_wrong_place_is_seen(right, wrong, rng, tmp_path):
    case = CASES[0]
    kernel = next(kernels())
    change = mistake("cuda/kron/fibres/array.cuh", right, wrong)
    (launch,) = compiled([kernel.program], tmp_path, change=change)
    with pytest.raises(AssertionError):
        run(launch, case, kernel, rng)


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["90"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("P", "N", "outer"), [(64, 3, 512), (128, 3, 64)])
def test_kernels_of_a_group_compile_and_spill_no_more(P, N, outer, dtype, capability):
    """What ends a group of multiplies of 64^4 and 128^4 on four devices can spread."""
    spec = KronSpec((P,) * N, (P,) * N, outer, 1, np.dtype(dtype), None)
    last = fastest_plan(product_of(spec, False), H100)[-1]
    spread = spread_kernel(last, 4, H100)
    assert spread is not None
    found = []
    for program in (last.program, spread.program):
        _, code = compile_program(
            program.source, device_sources(), program.expression, compile_options(capability)
        )
        found.append(resources(code)[1])
    assert found[1] <= found[0]


def test_what_cannot_be_spread():
    kernel = last_kernel((8, 8), 4, 16, "float32")
    assert spread_kernel(kernel, 8, SMALL) is not None
    assert spread_kernel(kernel, 3, SMALL) is None  # rows do not divide
    assert spread_kernel(kernel, MAX_OWNERS + 1, SMALL) is None
    in_tile = Fibres().fastest(ModeRun(0, (8, 2), (8, 2), 4, 1, np.dtype("float32")), SMALL)
    assert in_tile.tile.step == 0
    assert in_tile.variant.slices == 1
    assert spread_kernel(in_tile, 2, SMALL) is None
    several = replace(kernel, variant=kernel.variant._replace(slices=2))
    assert spread_kernel(several, 2, SMALL) is None
    assert spread_kernel(replace(kernel, work=replace(kernel.work, L=1 << 31)), 2, SMALL) is None
    assert spread_kernel(replace(kernel, work=replace(kernel.work, first=1)), 2, SMALL) is None
    owners = Owners((np.zeros(4),) * 2, 1, 64, 64, 8)
    found = spread_kernel(kernel, 2, SMALL)
    assert spread_arguments(found, owners, (16, 32), 4, 1) is None
    assert spread_arguments(found, owners, (16, 32), 16, 1) is not None


@pytest.mark.parametrize("scalar", ["float", "double"])
def test_arguments_are_laid_out_as_in_the_kernel(scalar):
    dtype = {"float": "float32", "double": "float64"}[scalar]
    kernel = spread_kernel(last_kernel((8, 8), 4, 16, dtype), 4, SMALL)
    owners = Owners((np.zeros(4),) * 4, 1, 64, 64, 16)
    layout = spread_arguments(kernel, owners, (16,) * 4, 16, 1).dtype
    lines = [
        '#include "cuda/kron/arguments.cuh"',
        f"using A = batchkron::SpreadArguments<{scalar}, 2, 4>;",
        f"static_assert(sizeof(A) == {layout.itemsize});",
    ]
    for name in layout.names:
        at = layout.fields[name][1]
        lines.append(f"static_assert(__builtin_offsetof(A, {name}) == {at});")
    lines.append("__global__ void nothing() {}")
    compile_program("\n".join(lines), device_sources(), "nothing", compile_options("90"))
