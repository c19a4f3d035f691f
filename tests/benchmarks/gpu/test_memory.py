"""The bytes of device memory that work needs at most, with a pool in place of CuPy's."""

import importlib
import itertools
import sys
from types import ModuleType, SimpleNamespace

import pytest

ACTIVE = []  # hooks
FREE, NEW = [], itertools.count(512, 512)  # addresses


class Hook:
    """As `cupy.cuda.MemoryHook`."""

    def __enter__(self):
        ACTIVE.append(self)
        return self

    def __exit__(self, *error):
        ACTIVE.remove(self)


class Block:
    """Memory of a pool, whose addresses are used again."""

    def __init__(self, size):
        self.at, self.size = FREE.pop() if FREE else next(NEW), size
        for hook in ACTIVE:
            hook.malloc_postprocess(size=size - 3, mem_size=size, mem_ptr=self.at, device_id=0)

    def __del__(self):
        FREE.append(self.at)
        for hook in ACTIVE:
            hook.free_postprocess(mem_size=self.size, mem_ptr=self.at, device_id=0)


@pytest.fixture
def memory(monkeypatch):
    cupy = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(
        MemoryHook=Hook, Device=lambda: SimpleNamespace(synchronize=lambda: None)
    )
    cupy.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=lambda: None)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    name = "benchmarks.core.memory"
    monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module(name)
    sys.modules.pop(name, None)


def test_the_most_at_a_time_counts_and_earlier_memory_does_not(memory):
    earlier, held = [Block(10_000)], []

    def work():
        held.append(Block(1000))
        for size in (300, 700, 200):
            block = Block(size)
            del block
        earlier.clear()  # a difference of bytes before and after would be negative
        held.append(Block(400))

    assert memory.peak_bytes(work) == 1700
    assert not ACTIVE


def test_garbage_is_collected_before(memory):
    cycle = [Block(512)]
    cycle.append(cycle)
    del cycle
    seen = []
    memory.peak_bytes(lambda: seen.append(len(FREE)))
    assert seen[0] >= 1


def test_tensors_count_too(memory):
    tensors = SimpleNamespace(
        empty_cache=lambda: None,
        reset_peak_memory_stats=lambda: None,
        memory_allocated=lambda: 50,
        max_memory_allocated=lambda: 80,
    )
    found = memory.peak_bytes(lambda: Block(100), SimpleNamespace(cuda=tensors))
    assert found == 130
