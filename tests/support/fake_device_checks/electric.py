"""Electric fields of several positions: the numbers of the CPU, and nothing read by the host."""

import cupy
import numpy as np
from fake_cupy.arrays import Array

from batchkron.problems import Mixed, gallery
from batchkron.problems.semidiscrete.fields import electric
from fake_device_checks.common import Counted, close


class HostMoments:
    """Moments by a batch list on the CPU: the kernels of lists are not imitated for these."""

    def __init__(self, operator):
        self.num_inputs, self._operator = operator.num_inputs, operator

    def apply(self, u):
        return cupy.asarray(self._operator.apply(np.asarray(u)))


def right_hand_sides():
    """Of calls before a graph is made, which sums of arrays are not imitated in."""
    on_cpu = electric.contraction
    electric.contraction = lambda *given: HostMoments(on_cpu(*given[:-1]))
    rng, reads = np.random.default_rng(0), Counted(Array, "get")
    for level, grid in ((2, "sparse"), ((1, 1, 2, 2), Mixed(["x", "y"], ["v1", "v2"]))):
        problem = gallery.make("landau-2x2v", level, 1, grid, amplitude=0.1)
        device = problem.to("cuda")
        for call in range(4):
            u = problem.initial * rng.uniform(0.9, 1.1, problem.unknowns)
            expected, found = np.full_like(u, np.nan), cupy.asarray(np.full(u.shape, np.nan))
            problem.rhs(0.0, u, expected)
            given = cupy.asarray(u)
            before = reads.calls
            device.rhs(0.0, given, found)
            assert call == 0 or reads.calls == before
            close(found, expected)
