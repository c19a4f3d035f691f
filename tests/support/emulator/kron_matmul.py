"""Kernels of Kron-Matmuls on the CPU: random integers, compared with the definition bit by bit."""

import struct
from dataclasses import dataclass

import numpy as np

from emulator.host_compiler import COPIES, Launch


@dataclass(frozen=True)
class KronLaunch:
    """What a kernel is launched on: x (L, inputs, R), the modes of its factors in their order."""

    inputs: tuple
    outputs: tuple
    L: int
    R: int
    dtype: np.dtype
    modes: tuple
    threads: int
    shared_bytes: int


def launch_of(kernel, device, L=None):
    """Return what a planner's kernel is launched on; ``L``: another number of blocks."""
    run, shape = kernel.work, kernel.launch
    L = run.L if L is None else L
    sizes = run.inputs, run.outputs, L, run.R, run.dtype
    return KronLaunch(*sizes, kernel.modes, shape.threads, shape.shared_bytes)


def placed(values, offset, room=8):
    """Return values so many elements behind a multiple of 16 bytes, amid NaN, and the whole."""
    whole = np.full(values.size + 2 * room + 4, np.nan, values.dtype)
    begin = room + (-whole[room:].ctypes.data % 16) // values.itemsize + offset
    view = whole[begin : begin + values.size].reshape(values.shape)
    view[...] = values
    return view, whole


def run(case, launch, copies, rng, alpha=1, previous=None, powers=(0, 0)):
    """Run a kernel on random integers, and compare with the definition, bit by bit.

    ``powers``: of two, that x and the first factor are multiplied by.
    """
    dtype = case.dtype
    x, _ = placed(
        rng.integers(-3, 4, (case.L, *case.inputs, case.R)).astype(dtype), rng.choice([0, 0, 1])
    )
    factors = [
        np.array(rng.integers(-2, 3, (k, c)), dtype, order=rng.choice(["C", "F"]))
        for c, k in zip(case.inputs, case.outputs, strict=True)
    ]
    x *= dtype.type(2) ** powers[0]
    factors[0] *= dtype.type(2) ** powers[1]
    expected = x
    for mode, factor in enumerate(factors):
        expected = np.moveaxis(np.tensordot(factor, expected, (1, mode + 1)), 0, mode + 1)
    before = rng.integers(-5, 6, expected.shape).astype(dtype)
    poison = np.full(expected.shape, np.nan, dtype)
    y, whole = placed(before if previous == "y" else poison, rng.choice([0, 0, 1]))
    expected = alpha * expected
    if previous is not None:
        expected = expected - before
    added = {None: None, "y": y, "other": before}[previous]
    beta = 0 if previous is None else -1
    real = "f" if dtype.itemsize == 4 else "d"
    arguments = struct.pack("3Q", *(0 if a is None else a.ctypes.data for a in (x, y, added)))
    for mode in case.modes:
        factor = factors[mode]
        strides = [stride // dtype.itemsize for stride in factor.strides]
        arguments += struct.pack("Q4q", factor.ctypes.data, 0, 0, *strides)
    arguments += struct.pack(f"2q2{real}", case.L, case.R, alpha, beta)
    how = Launch(
        blocks=int(rng.integers(1, 4)),
        threads=case.threads,
        shared_bytes=case.shared_bytes,
        when=COPIES[copies],
        seed=int(rng.integers(1 << 30)),
    )
    beside = np.isnan(whole).sum() - np.isnan(y).sum()
    failure = launch(arguments, how, [x, *factors])
    assert not failure, f"{case}: {failure}"
    np.testing.assert_array_equal(y, expected, err_msg=str(case))
    assert np.isnan(whole).sum() == beside, f"{case}: y's neighbours were written"


def run_often(case, launch, rng):
    """Run a kernel as often as some mistakes need to be seen."""
    for _ in range(5):
        for copies in COPIES:
            run(case, launch, copies, rng)
