"""Memory that ranks write to, with a CuPy of main memory: ranks are threads."""

import subprocess
import sys

import pytest

BEGIN = """
import ctypes
import threading
from types import SimpleNamespace

import numpy as np
from fake_cupy.arrays import Array
from fake_cupy.installation import install
from fake_cupy.memory import at

DEVICE = install()
import cupy

from batchkron.backends.cuda.exchange import nccl, peers
from batchkron.distributed import NcclCommunicator, simulate
from batchkron.errors import BackendUnavailableError

RANK = threading.local()  # what a rank's process, machine and memory are
OPENED = []
runtime, cuda = peers.runtime, cupy.cuda


def new_memory(size):
    if getattr(RANK, "is_full", False):
        error = runtime.CUDARuntimeError("out of memory")
        error.status = 2
        raise error
    return DEVICE.alloc(size)


def opened(handle, flags):
    OPENED.append(int(np.frombuffer(handle, np.uint64)[0]))
    return OPENED[-1]


cuda.Memory = new_memory
cuda.MemoryPointer = lambda memory, offset: memory
cuda.UnownedMemory = lambda address, size, owner: SimpleNamespace(ptr=address, owner=owner)
cupy.full = lambda shape, value, dtype: Array(None, host=np.full(shape, value, dtype))
cupy.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=lambda: None)
vars(runtime).update(
    ipcGetMemHandle=lambda address: np.array([address] * 8, np.uint64).tobytes(),
    ipcOpenMemHandle=opened,
    ipcCloseMemHandle=lambda address: OPENED.remove(address),
    deviceSynchronize=lambda: None,
)


def copied(pairs):
    for target, source in pairs:
        target.host[...] = source.host


peers.copy_views = copied
nccl.NcclRanks = lambda rank, size, broadcast: SimpleNamespace()


def tried(host):
    return peers.can_store(host.rank, host.size, host.allgather)


def shared(host):
    memory = peers.share_memory(host.rank, 5, np.dtype(np.float64), host.allgather)
    for other, each in enumerate(memory):
        each[host.rank] = 10.0 * host.rank + other
    host.allgather(np.zeros(1))
    own = memory[host.rank].get()[: host.size].tolist()
    host.allgather(np.zeros(1))
    return own


def refused(host, kind):
    try:
        shared(host)
    except kind as error:
        return str(error)
"""


def run(request, program):
    support = str(request.config.rootpath / "tests" / "support")
    text = f"import sys; sys.path.insert(0, {support!r})\n{BEGIN}\n{program}"
    ran = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_threads_of_a_process_write_to_each_other(request):
    run(request, """
sys.setswitchinterval(1e-6)  # seconds, so that threads ask at the same time
assert len(set(simulate(50, lambda host: peers._process()))) == 1
assert simulate(3, shared) == [[0, 10, 20], [1, 11, 21], [2, 12, 22]]
assert simulate(3, tried) == [True] * 3
assert not OPENED
""")  # fmt: skip


def test_processes_of_a_machine_map_handles(request):
    run(request, """
peers._process = lambda: RANK.process
known = set()


def program(host):
    RANK.process = bytes([host.rank] * 16)
    own = shared(host)
    known.update(OPENED)
    return own, tried(host)


found = simulate(3, program)
assert found == [([0, 10, 20], True), ([1, 11, 21], True), ([2, 12, 22], True)], found
assert len(known) == 3  # each rank's memory, mapped by the others
assert not OPENED, "memory is still mapped that nothing uses"
""")  # fmt: skip


def test_ranks_of_several_machines(request):
    """The whole cannot store, the pairs of a machine can; what the user says comes first."""
    run(request, """
peers._machine = lambda: RANK.machine


def program(host):
    RANK.machine = bytes([host.rank // 2] * 16)
    assert "another machine" in refused(host, BackendUnavailableError)
    whole = NcclCommunicator(host)
    by_nccl, stored = (NcclCommunicator(host, stores=each) for each in (False, True))
    found = [each.stores for each in (whole, by_nccl, stored)]
    found += [each.neighbours(2).stores for each in (whole, by_nccl, stored)]
    whole.stores, whole.overlaps = False, False
    pair = whole.neighbours(2)
    assert not pair.overlaps
    return *found, pair.stores


expected = False, False, True, True, False, True, False
assert simulate(4, program) == [expected] * 4
""")  # fmt: skip


def test_one_machine_stores_unless_told_otherwise(request):
    run(request, """
def program(host):
    whole, by_nccl = NcclCommunicator(host), NcclCommunicator(host, stores=False)
    pairs = whole.neighbours(2), by_nccl.neighbours(2)
    return whole.stores, by_nccl.stores, *(pair.stores for pair in pairs)


assert simulate(4, program) == [(True, False, True, False)] * 4
assert simulate(1, lambda host: NcclCommunicator(host).stores) == [False]
""")  # fmt: skip


@pytest.mark.parametrize("rank", [0, 1])
def test_a_full_device_is_an_error_on_every_rank(request, rank):
    run(request, f"""
def program(host):
    RANK.is_full = host.rank == {rank}
    return refused(host, MemoryError), tried(host)


for text, able in simulate(2, program):
    assert "40 bytes" in text
    assert not able
""")  # fmt: skip


def test_stores_that_do_not_arrive_are_noticed(request):
    """A machine that maps other devices' memory, but where writes go elsewhere."""
    run(request, """
elsewhere = DEVICE.alloc(4096)
peers._process = lambda: RANK.process
runtime.ipcOpenMemHandle = lambda handle, flags: elsewhere.ptr
runtime.ipcCloseMemHandle = lambda address: None


def program(host):
    RANK.process = bytes([host.rank] * 16)
    return tried(host)


assert simulate(2, program) == [False] * 2
""")  # fmt: skip


def test_devices_without_access_are_refused(request):
    run(request, """
devices = threading.local()
peers.current_device = lambda: devices.own
runtime.deviceCanAccessPeer = lambda here, other: False


def program(host):
    devices.own = host.rank
    return refused(host, BackendUnavailableError), tried(host)


for text, able in simulate(2, program):
    assert "cannot access device" in text
    assert "stores=False" in text
    assert not able
""")  # fmt: skip


def test_a_rank_whose_device_fails_keeps_no_other_waiting(request):
    run(request, """
from batchkron.errors import ContextLostError

ALL, given, found = threading.Barrier(2), [None, None], [None, None]


def synchronize():
    if RANK.number == 1:
        error = runtime.CUDARuntimeError("an illegal memory access was encountered")
        error.status = 700
        raise error


def program(rank):
    def allgather(array):
        given[rank] = array
        ALL.wait(10)
        together = np.stack(given)
        ALL.wait(10)
        return together

    RANK.number = rank
    try:
        found[rank] = peers.can_store(rank, 2, allgather)
    except Exception as error:
        found[rank] = error


runtime.deviceSynchronize = synchronize
threads = [threading.Thread(target=program, args=(rank,)) for rank in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert found[0] is False, found
assert isinstance(found[1], ContextLostError), found
""")  # fmt: skip


def test_numbers_of_an_earlier_trial_do_not_count(request):
    run(request, """
peers.copy_views = lambda pairs: None  # nothing arrives
alloc = DEVICE.alloc


def stale(size):
    memory = alloc(size)
    at(memory.ptr, (2,), np.uint32)[...] = 1, 2
    return memory


DEVICE.alloc = stale
assert simulate(2, tried) == [False] * 2
""")  # fmt: skip


def test_who_turns_peer_access_off_gets_none(request):
    run(request, """
import os

os.environ["NCCL_P2P_DISABLE"] = "1"
assert simulate(2, tried) == [False] * 2
os.environ["NCCL_P2P_DISABLE"] = "0"
assert simulate(2, tried) == [True] * 2
""")  # fmt: skip
