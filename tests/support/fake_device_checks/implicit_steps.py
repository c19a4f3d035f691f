"""Implicit steps: the same states as on the CPU, in few launches and readings of the device."""

import cupy
import numpy as np
from fake_cupy.arrays import Array
from fake_cupy.device import Graph, Stream

from batchkron.problems import gallery
from batchkron.solvers import evolve, preconditioners
from batchkron.solvers.preconditioners.swept_grids import SweptGrids
from fake_device_checks import DEVICE
from fake_device_checks.common import Counted, close


def preconditioned():
    """Full grids by sweeps: as many launches as modes ask for, and in place for other scales."""
    rng = np.random.default_rng(0)
    for name, level in (("diffusion-2d", 3), ("diffusion-3d", 2), ("continuity-2d", 2)):
        problem = gallery.make(name, level=level, degree=1)
        x = rng.standard_normal(problem.unknowns)
        for kind in ("combination", "symmetric-combination"):
            M = preconditioners.make(kind, problem.to("cuda").operator, 0.1)
            assert M.capturable
            assert all(isinstance(group._shared, SweptGrids) for group in M._groups)
            for scale in (0.1, 0.3):
                expected = preconditioners.make(kind, problem.operator, scale).matvec(x)
                if scale != M.scale:
                    M.rescale(scale)
                before = len(DEVICE.launches)
                close(M.matvec(cupy.asarray(x)), expected)
                if kind == "combination":
                    assert len(DEVICE.launches) == before + 2 * len(problem.axes)


def equal_steps():
    """A step has a graph for each solve, which is made in the first steps, and one reading."""
    graphs, reads = Counted(Graph, "launch"), Counted(Array, "get")
    for name, method, level, solves in (
        ("diffusion-2d", "crank-nicolson", 2, 1),
        ("diffusion-3d", "esdirk3", 1, 3),
    ):
        problem, counts = gallery.make(name, level=level, degree=1), []
        options = {"until": 0.04, "dt": 0.0025, "method": method, "preconditioner": "auto"}
        expected = evolve(problem, **options)
        graphs.calls = 0
        found = evolve(
            problem.to("cuda"),
            **options,
            callback=lambda _, c=counts: c.append((graphs.calls, reads.calls, DEVICE.made)),
        )
        close(found.u, expected.u)
        (graphs_of_step, reads_of_step, streams), *others = np.diff(counts[-4:], axis=0).tolist()
        assert (graphs_of_step, streams) == (solves, 0)
        assert reads_of_step <= solves + 1  # the loop's own
        assert all(other == [graphs_of_step, reads_of_step, 0] for other in others)


def adapted_steps():
    """Other steps need no new graphs: c is in memory, and so is what depends on it."""
    problem, captured = gallery.make("diffusion-2d", level=2, degree=1), []
    options = {"until": 0.05, "dt": 1e-4, "rtol": 1e-4, "method": "esdirk3"}
    expected = evolve(problem, **options, preconditioner="auto")
    recorded = Counted(Stream, "begin_capture")
    found = evolve(
        problem.to("cuda"),
        **options,
        preconditioner="auto",
        callback=lambda state: captured.append((state.dt, recorded.calls)),
    )
    assert found.steps == expected.steps
    np.testing.assert_allclose(found.u.get(), expected.u, atol=1e-8 * np.abs(expected.u).max())
    lengths, (*_, (_, graphs)) = {dt for dt, _ in captured}, captured
    assert graphs <= 6 < len(lengths)  # a graph for each number of iterations
