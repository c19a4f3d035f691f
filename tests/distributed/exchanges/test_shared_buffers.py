"""Buffers that all ranks write to: how they grow, and what captured graphs keep."""

from types import SimpleNamespace

import numpy as np
import pytest

from batchkron.distributed import SimulatedCommunicator, simulate
from batchkron.distributed.exchanges.shared_buffers import SharedBuffers


def test_buffers_grow_and_are_reused():
    def program(comm):
        buffers = SharedBuffers(comm, np.dtype(np.float32), np)
        first = buffers.take(0, 10)
        assert [(each.size, each.dtype) for each in first] == [(10, np.float32)] * comm.size
        assert buffers.take(0, 7) is first
        other = buffers.take(1, 10)
        assert not any(np.shares_memory(a, b) for a in first for b in other)
        grown = buffers.take(0, 11)
        assert grown[0].size == 11
        assert buffers.take(0, 10) is grown
        assert buffers.take(1, 10) is other
        return first

    one, two = simulate(2, program)
    assert all(a is b for a, b in zip(one, two, strict=True))  # of all ranks, on each


class Module:
    """NumPy with a stream that may capture."""

    def __init__(self):
        self.stream = SimpleNamespace(is_capturing=lambda: self.capturing)
        self.cuda, self.capturing = self, False
        self.empty = np.empty

    def get_current_stream(self):
        return self.stream


def test_buffers_of_a_captured_graph_are_kept():
    module = Module()
    buffers = SharedBuffers(SimulatedCommunicator(), np.dtype(float), module)
    module.capturing = True
    with pytest.raises(RuntimeError, match="once before the capture"):
        buffers.take(0, 5)
    module.capturing = False
    (small,) = buffers.take(0, 5)
    module.capturing = True
    assert buffers.take(0, 5)[0] is small
    assert buffers.take(0, 4)[0] is small
    with pytest.raises(RuntimeError, match="once before the capture"):
        buffers.take(0, 6)
    module.capturing = False
    (large,) = buffers.take(0, 6)
    assert large is not small
    assert [kept[0] is small for kept in buffers._captured] == [True]
