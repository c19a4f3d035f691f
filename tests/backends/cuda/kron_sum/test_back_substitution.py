"""Back substitution lane by lane on the CPU, against dense matrices; it compiles for devices."""

import sys

import numpy as np
import pytest
from dense_oracle import random_array
from emulator.host_compiler import COPIES, Launch, compiled, mistake
from emulator.kron_matmul import placed
from kernel_resources import compile_kernel
from nvrtc import DEVICES

from batchkron.backends.cuda.kron_sum.back_substitution import (
    THREADS,
    back_substitution_arguments,
    back_substitution_blocks,
    back_substitution_program,
    levels,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")

CASES = [((7,), 3), ((40,), 1), ((3, 5), 1), ((35, 2), 2), ((1, 4), 2), ((3, 2, 4), 3)]


def triangles(rng, sizes, dtype):
    """Upper triangles with diagonals away from zero, below which there is NaN."""
    found = []
    for n in sizes:
        triangle = np.triu(random_array(rng, (n, n), dtype)) / n
        triangle += np.diag(2 + rng.random(n)).astype(dtype)
        triangle[np.tril_indices(n, -1)] = np.nan
        found.append(triangle.astype(dtype))
    return found


def solve(launch, given, b, shift, rng):
    """Run a launch for each level on a copy of b, amid NaN."""
    sizes, dtype = tuple(map(len, given)), b.dtype
    x, whole = placed(b, 1)
    around = np.isnan(whole).sum()
    arguments = np.zeros(1, back_substitution_arguments(dtype, len(sizes)))
    arguments["x"], arguments["sizes"], arguments["inner"] = x.ctypes.data, sizes, b.shape[1]
    arguments["triangles"] = [one.ctypes.data for one in given]
    arguments["shift"] = shift
    for level in levels(sizes):
        arguments["level"] = level
        how = Launch(
            blocks=int(rng.integers(1, 4)),
            threads=THREADS,
            shared_bytes=0,
            when=COPIES["late"],
            seed=int(rng.integers(1 << 30)),
        )
        assert not launch(arguments.tobytes(), how, [x, *given])
    assert np.isnan(whole).sum() == around, "neighbours were written"
    return x


def check(launch, case, dtype, rng, shift=0.5 - 0.25j):
    sizes, inner = case
    given = triangles(rng, sizes, dtype)
    b = random_array(rng, (int(np.prod(sizes)), inner), dtype)
    x = solve(launch, given, b, shift, rng)
    dense = shift * np.eye(len(b), dtype="complex128")
    for k, triangle in enumerate(given):
        before, behind = np.prod(sizes[:k], dtype=int), np.prod(sizes[k + 1 :], dtype=int)
        upper = np.triu(np.nan_to_num(triangle))
        dense += np.kron(np.kron(np.eye(before), upper), np.eye(behind))
    # |b - A x| <= gamma |A| |x| (Higham, theorem 8.5), complex arithmetic, a division
    bound = 4 * (sum(sizes) + 8) * np.finfo(dtype).eps * (abs(dense) @ abs(x) + abs(b))
    assert (abs(b - dense @ x) <= bound).all()


@linux
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_back_substitution_emulated(tmp_path, rng, dtype):
    kind = np.dtype(dtype)
    programs = [back_substitution_program(kind, modes) for modes in (1, 2, 3)]
    launches = compiled(programs, tmp_path)
    for case in CASES:
        check(launches[len(case[0]) - 1], case, kind, rng)
        check(launches[len(case[0]) - 1], case, kind, rng, shift=2j)


MISTAKES = [
    ("at[k] + 1 + lane", "at[k] + lane"),
    ("distance < 32", "distance < 16"),
    ("left -= at[k]", "left -= 0"),
    ("a.imag - a.real * ratio", "a.imag + a.real * ratio"),
]


@linux
@pytest.mark.parametrize(
    ("right", "wrong"),
    [MISTAKES[0], *(pytest.param(*one, marks=pytest.mark.slow) for one in MISTAKES[1:])],
)
def test_a_mistake_is_seen(tmp_path, rng, right, wrong):
    kind = np.dtype("complex128")
    change = mistake("cuda/kron_sum/back_substitution.cuh", right, wrong)
    (launch,) = compiled([back_substitution_program(kind, 2)], tmp_path, change=change)
    with pytest.raises(AssertionError):
        check(launch, ((35, 4), 2), kind, rng)


def test_levels_and_blocks():
    assert list(levels((3, 2))) == [3, 2, 1, 0]
    assert list(levels((1,))) == [0]
    device = DEVICES["90"]
    assert back_substitution_blocks((9,), 1, device) == 1
    assert back_substitution_blocks((10, 3, 9), 2, device) == 15
    assert back_substitution_blocks((1000, 1000, 9), 2, device) == 16 * 132


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize(("dtype", "modes"), [("complex64", 2), ("complex128", 3)])
def test_it_compiles(dtype, modes, capability):
    kernel = compile_kernel(back_substitution_program(np.dtype(dtype), modes), capability)
    assert "back_substitute" in kernel.name
    assert kernel.registers <= 128
    assert kernel.stack == 0
