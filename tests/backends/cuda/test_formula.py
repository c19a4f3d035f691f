"""The kernel of formulas, run lane by lane on the CPU against NumPy."""

import sys

import numpy as np
import pytest
from device_programs import FORMULAS
from emulator.host_compiler import compiled, run_kernel

from batchkron.backends.cuda.formula.kernel import formula_arguments, formula_program
from batchkron.problems.statement.formula import Formula

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")

THREADS = 64
NAMES = ("f", "x", "y", "t")
TEXTS = [
    *FORMULAS,
    "2",
    "x",
    "--f / 3 - (x - y) - t",
    "2**-f * 10 ** (x * y)",
    "exp(sqrt(sqrt(f)))",
]


def spec_of(text):
    return Formula(text, NAMES).compiled(NAMES[:3], NAMES[3:])


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    programs = [formula_program(spec_of(text)[0], THREADS) for text in TEXTS]
    return compiled(programs, tmp_path_factory.mktemp("kernels"))


@pytest.mark.parametrize("number", range(len(TEXTS)), ids=TEXTS)
def test_formulas_are_those_of_numpy(rng, kernels, number):
    """Counts around the edges of blocks, with more threads than points and fewer, and in place."""
    text = TEXTS[number]
    _, own = spec_of(text)
    for count in (0, 1, 63, 64, 65, 1000):
        x = [rng.uniform(0.1, 2.0, count) for _ in range(3)]
        numbers = np.array([0.7, *own])
        given = dict(zip(NAMES, [*(one.copy() for one in x), 0.7], strict=True))
        expected = np.broadcast_to(Formula(text, NAMES)(given), (count,))
        for y in (np.full(count, np.nan), x[0]):
            arguments = np.zeros(1, formula_arguments(3))
            arguments["x"] = [one.ctypes.data for one in x]
            arguments["y"], arguments["numbers"] = y.ctypes.data, numbers.ctypes.data
            arguments["count"] = count
            arrays = [*x, numbers] if y is x[0] else [*x, numbers, y]
            run_kernel(kernels[number], arguments, 3, THREADS, 0, arrays, rng)
            np.testing.assert_allclose(y, expected, rtol=1e-14, atol=1e-14)


def test_numbers_of_the_text_come_after_those_that_are_given():
    spec, own = spec_of("3 * x + t**2 - 0.5")
    assert own == [3.0, 0.5]
    assert spec.code == (
        ("number", 1), ("variable", 1), ("*", 0), ("number", 0), ("square", 0), ("+", 0),
        ("number", 2), ("-", 0),
    )  # fmt: skip
    assert (spec.variables, spec.numbers) == (3, 3)
