"""The kernel `kron_fibres` run lane by lane on the CPU: its bits, and mistakes that tests see."""

import random
import sys
from math import prod

import numpy as np
import pytest
from emulator.host_compiler import COPIES, compiled, mistake
from emulator.kron_matmul import launch_of, run, run_often
from nvrtc import DEVICES
from plans import square_run

from batchkron.backends.cuda.kron.families import FAMILY_OF
from batchkron.backends.cuda.kron.fibres.passes import RING
from batchkron.backends.cuda.steps import ModeRun

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")
FIBRES = FAMILY_OF["fibres"]
DRAWN = [*(("90", seed) for seed in range(5)), ("80", 5)]  # capability, seed
PER_SEED = 7
MAX_WARPS = 16


def variants_of(run, limits):
    """All variants of a run, small tiles and few warps first."""

    def size(one):
        return one.slices, -one.columns, one.warps, one.teams, one.stages, one.units

    return sorted(FIBRES.variants(run, limits), key=size)


def single_modes(pick):
    """Runs of one mode: tiles refilled by pieces or in a ring of buffers, factors in registers."""
    size, itemsize = pick.choice([(16, 4), (48, 4), (64, 4), (128, 4), (20, 8), (97, 8), (128, 8)])
    R = pick.choice([1, 1, 3, 40, 68, 96])
    L = pick.randrange(1, 120 if R == 1 else 9)
    return square_run((size,), L, R, f"f{itemsize}")


def several_modes(pick):
    """Runs of two to five modes, rectangular ones too, also on matrix units in float32."""
    count, itemsize = pick.choice([2, 2, 3, 4, 5]), pick.choice([4, 8])
    some = [3, 4, 5, 8, 9, 12, 16, 20, 24][: 11 - count] if count < 5 else [2, 3, 5]
    sizes = [pick.choice(some) for _ in range(2 * count)]
    inputs, outputs = sizes[:count], sizes[count:]
    if max(sizes) < 8:  # the family of fibres leaves such runs to registers
        inputs[pick.randrange(count)] = 8
    if pick.random() < 0.5:
        outputs = inputs
    products = pick.choice([0, 0, 1, 3]) if itemsize == 4 else 0
    R = pick.choice([1, 1, 2, 8, 72])
    L, dtype = pick.randrange(1, 12), np.dtype(f"f{itemsize}")
    return ModeRun(0, tuple(inputs), tuple(outputs), L, R, dtype, products)


def cases(seed, limits):
    """Return kernels of random runs and variants, small enough to run."""
    pick = random.Random(seed)
    found = []
    while len(found) < PER_SEED:
        given = pick.choice([single_modes, several_modes])(pick)
        ways = [one for one in variants_of(given, limits) if one.teams * one.warps <= MAX_WARPS]
        elements = given.L * prod(map(max, given.inputs, given.outputs)) * given.R
        if not ways or not FIBRES.accepts(given, limits) or elements > 200_000:
            continue
        rings = [one for one in ways if one.stages == RING]
        one = pick.choice(rings if rings and pick.random() < 0.5 else ways)
        found.append(FIBRES.kernel(given, one, limits))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "seed"), DRAWN)
def test_kernels_give_the_bits_of_the_definition(capability, seed, tmp_path):
    drawn = cases(seed, DEVICES[capability])
    launches = compiled([kernel.program for kernel in drawn], tmp_path, int(capability) * 10)
    rng = np.random.default_rng(seed)
    for kernel, launch in zip(drawn, launches, strict=True):
        case = launch_of(kernel, DEVICES[capability])
        for copies in COPIES:
            run(case, launch, copies, rng)
        run(case, launch, "at random", rng, alpha=2)
        run(case, launch, "at random", rng, alpha=2, previous="other")
        run(case, launch, "at random", rng, previous="y")


def one_mode(size, L, R, itemsize=4, **wanted):
    """Return the first kernel of one mode whose variant has what is wanted."""
    given, limits = square_run((size,), L, R, f"f{itemsize}"), DEVICES["90"]
    one = next(
        one
        for one in variants_of(given, limits)
        if all(getattr(one, name) == value for name, value in wanted.items())
    )
    return FIBRES.kernel(given, one, limits)


MISTAKES = {
    "a tile is not waited for": (
        one_mode(32, 40, 1, stages=2, slices=4, teams=2, warps=2),
        ("cuda/kron/fibres/kernel.cuh", "wait_for_copies<Tile::stages - 1>();", ""),
    ),
    "a tile is overwritten while others read it": (
        one_mode(32, 200, 1, stages=1, slices=16, teams=1, warps=8),
        (
            "cuda/kron/fibres/kernel.cuh",
            "const auto refill = [&] {\n        sync_group(group);",
            "const auto refill = [&] {",
        ),
    ),
    "a piece is asked for before it is read": (
        one_mode(64, 300, 1, stages=1, warps=1, slices=32, teams=4),
        ("cuda/kron/fibres/refill.cuh", "+ begin * entry;", "+ (begin + piece) % Last::C * entry;"),
    ),
    "rows beyond the last one are read": (
        one_mode(64, 70, 1, stages=1, warps=1, slices=32, teams=4),
        ("cuda/kron/fibres/array.cuh", "if (i * jump < left) use", "use"),
    ),
    "a word is written where an element begins": (
        one_mode(16, 30, 1, stages=1, warps=1, slices=8, teams=4),
        (
            "cuda/kron/fibres/array.cuh",
            "reinterpret_cast<unsigned long long>(first) % bytes == 0",
            "true",
        ),
    ),
    "some lanes are left out of a shuffle": (
        one_mode(16, 30, 1, stages=1, warps=1, slices=8, teams=4),
        (
            "cuda/kron/fibres/multiply.cuh",
            "Reader reader(tile",
            "if (lane == 3) __syncwarp();\n    Reader reader(tile",
        ),
    ),
    "a ring's tile is not waited for": (
        one_mode(128, 90, 1, itemsize=8, stages=RING, slices=8),
        ("cuda/kron/fibres/kernel.cuh", "full[stage].wait(n / stages);", ""),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_seen(name, tmp_path):
    kernel, made = MISTAKES[name]
    (launch,) = compiled([kernel.program], tmp_path, change=mistake(*made))
    rng = np.random.default_rng(0)
    with pytest.raises(AssertionError):
        run_often(launch_of(kernel, DEVICES["90"]), launch, rng)
