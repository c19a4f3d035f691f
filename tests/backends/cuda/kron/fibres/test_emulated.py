"""`kron_fibres` itself, lane by lane on the CPU: bits of small tiles of all kinds, and mistakes."""

import random
import sys
from dataclasses import dataclass
from math import prod

import numpy as np
import pytest
from emulator.host_compiler import COPIES, compiled, mistake
from emulator.kron_matmul import KronLaunch, run, run_often
from nvrtc import DEVICES

from batchkron.backends.cuda.kron.fibres.cost import RING, Shape, cuts_of
from batchkron.backends.cuda.kron.fibres.layout import FibreTile, fibre_program, fibre_tile

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")
DRAWN = [*(("90", seed) for seed in range(5)), ("80", 5)]  # capability, seed
PER_SEED = 7
MAX_WARPS = 16


@dataclass(frozen=True)
class Case:
    """One kernel, and what it is launched on."""

    shape: Shape
    tile: FibreTile

    @property
    def launch(self):
        shape, tile = self.shape, self.tile
        sizes = shape.inputs, shape.outputs, shape.L, shape.R, np.dtype(f"f{shape.itemsize}")
        return KronLaunch(*sizes, tile.modes, tile.threads * tile.teams, tile.shared_bytes)

    @property
    def program(self):
        return fibre_program(self.launch.dtype, self.tile)


def single_modes(pick):
    """Shapes and cuts of one mode: pieces of the next tile, rings, factors in registers."""
    size, itemsize = pick.choice([(16, 4), (48, 4), (64, 4), (128, 4), (20, 8), (97, 8), (128, 8)])
    R = pick.choice([1, 1, 3, 40, 68, 96])
    return Shape((size,), (size,), pick.randrange(1, 120 if R == 1 else 9), R, itemsize)


def several_modes(pick):
    """Shapes of two to five modes, rectangular ones too, also on matrix units in float32."""
    count, itemsize = pick.choice([2, 2, 3, 4, 5]), pick.choice([4, 8])
    some = [3, 4, 5, 8, 9, 12, 16, 20, 24][: 11 - count] if count < 5 else [2, 3, 5]
    sizes = [pick.choice(some) for _ in range(2 * count)]
    inputs, outputs = sizes[:count], sizes[count:]
    if pick.random() < 0.5:
        outputs = inputs
    products = pick.choice([0, 0, 1, 3]) if itemsize == 4 else 0
    R = pick.choice([1, 1, 2, 8, 72])
    return Shape(tuple(inputs), tuple(outputs), pick.randrange(1, 12), R, itemsize, products)


def cases(seed, limits):
    """Return kernels of random shapes and cuts, small enough to run."""
    pick = random.Random(seed)
    found = []
    while len(found) < PER_SEED:
        shape = pick.choice([single_modes, several_modes])(pick)
        cuts = [cut for cut in cuts_of(shape, limits) if cut.teams * cut.warps <= MAX_WARPS]
        if not cuts or shape.L * prod(shape.extents) * shape.R > 200_000:
            continue
        rings = [cut for cut in cuts if cut.stages == RING]
        cut = pick.choice(rings if rings and pick.random() < 0.5 else cuts)
        found.append(Case(shape, fibre_tile(0, shape, cut, limits)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "seed"), DRAWN)
def test_kernels_give_the_bits_of_the_definition(capability, seed, tmp_path):
    drawn = cases(seed, DEVICES[capability])
    launches = compiled([case.program for case in drawn], tmp_path, int(capability) * 10)
    rng = np.random.default_rng(seed)
    for case, launch in zip(drawn, launches, strict=True):
        for copies in COPIES:
            run(case.launch, launch, copies, rng)
        run(case.launch, launch, "at random", rng, alpha=2)
        run(case.launch, launch, "at random", rng, alpha=2, previous="other")
        run(case.launch, launch, "at random", rng, previous="y")


def one_mode(size, L, R, itemsize=4, **wanted):
    """Return the first kernel of one mode whose cut has what is wanted."""
    shape, limits = Shape((size,), (size,), L, R, itemsize), DEVICES["90"]
    cut = next(
        cut
        for cut in cuts_of(shape, limits)
        if all(getattr(cut, name) == value for name, value in wanted.items())
    )
    return Case(shape, fibre_tile(0, shape, cut, limits))


MISTAKES = {
    "a tile is not waited for": (
        one_mode(32, 40, 1, stages=2, slices=4, teams=2, warps=2),
        ("cuda/kron/fibres/kernel.cuh", "wait_for_copies<Tile::stages - 1>();", ""),
    ),
    "a tile is overwritten while others read it": (
        one_mode(32, 200, 1, stages=1, slices=16, teams=1, warps=8),
        (
            "cuda/kron/fibres/kernel.cuh",
            "const auto refill = [&] {\n        sync_team(team);",
            "const auto refill = [&] {",
        ),
    ),
    "a piece is asked for before it is read": (
        one_mode(64, 300, 1, stages=1, warps=1, slices=32, teams=4),
        ("cuda/kron/fibres/refill.cuh", "+ begin * entry;", "+ (begin + piece) % Last::C * entry;"),
    ),
    "rows beyond the last one are read": (
        one_mode(64, 70, 1, stages=1, warps=1, slices=32, teams=4),
        ("cuda/kron/fibres/kernel.cuh", "if (i * jump < left) use", "use"),
    ),
    "a word is written where an element begins": (
        one_mode(16, 30, 1, stages=1, warps=1, slices=8, teams=4),
        (
            "cuda/kron/fibres/kernel.cuh",
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
    case, made = MISTAKES[name]
    (launch,) = compiled([case.program], tmp_path, change=mistake(*made))
    rng = np.random.default_rng(0)
    with pytest.raises(AssertionError):
        run_often(case.launch, launch, rng)
