"""Memory that processes of one machine have in common; here for simulated ranks."""

import os

import numpy as np
import pytest

from batchkron.distributed import simulate
from batchkron.distributed.communication import common_memory as module


def memory_of(comm, size):
    return module.common_memory(
        comm.rank, comm.size, size, lambda value: comm.broadcast(value, 0), comm.allgather
    )


@pytest.mark.parametrize("size", [0, 1, 4096, 100_001])
def test_all_ranks_see_what_each_writes(monkeypatch, tmp_path, size):
    monkeypatch.setattr(module, "_FOLDER", str(tmp_path))

    def program(comm):
        memory = memory_of(comm, size)
        assert memory is not None
        assert memory.dtype == np.uint8
        assert len(memory) >= size
        shares = np.array_split(memory, comm.size)
        shares[comm.rank][:] = comm.rank + 1
        comm.meet(memory)
        assert [set(share.tolist()) for share in shares] == [{k + 1} for k in range(comm.size)]
        assert not list(tmp_path.iterdir())

    simulate(3, program)


def test_without_memory_all_ranks_are_told(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_FOLDER", str(tmp_path / "nowhere"))
    assert simulate(2, lambda comm: memory_of(comm, 100)) == [None, None]


def test_too_little_memory_for_one_rank_is_told_to_all(monkeypatch, tmp_path):
    allocate = os.posix_fallocate

    def full(number, begin, size):
        if begin:
            raise OSError("no space")
        allocate(number, begin, size)

    monkeypatch.setattr(module, "_FOLDER", str(tmp_path))
    monkeypatch.setattr(module.os, "posix_fallocate", full)
    assert simulate(3, lambda comm: memory_of(comm, 100)) == [None, None, None]
    assert not list(tmp_path.iterdir())
