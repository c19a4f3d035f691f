"""What NCCL is asked for, with a CuPy and an NCCL of main memory: ranks are threads."""

import subprocess
import sys

PROGRAM = """
import ctypes
import sys
import threading
from types import ModuleType, SimpleNamespace

import numpy as np
from fake_cupy.arrays import Array
from fake_cupy.device import Stream as DeviceStream
from fake_cupy.installation import install

DEVICE = install()
import cupy

from batchkron.backends.cuda.runtime import device as module

LOG = []
BOARD, ARRIVED = {}, threading.Condition()
LOCAL = threading.local()


class Ranks:
    '''A communicator whose sends leave bytes on a board, and whose receives take them.'''

    def __init__(self, size, identifier, rank):
        assert identifier == ("id", 7)
        self.size, self.rank = size, rank

    def send(self, address, count, kind, peer, stream):
        assert kind == 1
        assert stream == cupy.cuda.get_current_stream().ptr
        LOCAL.group.append(("send", self, address, count, peer))

    def recv(self, address, count, kind, peer, stream):
        assert kind == 1
        LOCAL.group.append(("recv", self, address, count, peer))


def end():
    group, LOCAL.group = LOCAL.group, None
    LOG.append([(what, own.rank, peer, count) for what, own, _, count, peer in group])
    with ARRIVED:
        for what, own, address, count, peer in group:
            if what == "send":
                BOARD.setdefault((own.rank, peer), []).append(ctypes.string_at(address, count))
        ARRIVED.notify_all()
        for what, own, address, count, peer in group:
            if what == "recv":
                ARRIVED.wait_for(lambda key=(peer, own.rank): BOARD.get(key), 20)
                sent = BOARD[peer, own.rank].pop(0)
                assert len(sent) == count
                ctypes.memmove(address, sent, count)


nccl = ModuleType("cupy.cuda.nccl")
vars(nccl).update(
    available=True,
    get_unique_id=lambda: ("id", 7),
    NcclCommunicator=Ranks,
    NcclError=type("NcclError", (RuntimeError,), {}),
    groupStart=lambda: setattr(LOCAL, "group", []),
    groupEnd=end,
)
cupy.cuda.nccl = nccl
sys.modules["cupy.cuda.nccl"] = nccl


class Stream(DeviceStream):
    def __enter__(self):
        self.before, DEVICE.stream = DEVICE.stream, self

    def __exit__(self, *_):
        DEVICE.stream = self.before

    def wait_event(self, event):
        LOG.append("waits")

    def synchronize(self):
        raise AssertionError("the host waits")


DEVICE.stream = Stream(0)
cupy.cuda.Stream = lambda non_blocking, priority: Stream(9)
cupy.cuda.Event = lambda disable_timing: SimpleNamespace(record=lambda stream: None)
module.runtime.memcpyDeviceToDevice = 3
module.runtime.memcpyAsync = lambda to, source, size, kind, stream: ctypes.memmove(to, source, size)

from batchkron.distributed import NcclCommunicator, simulate


cupy.zeros = lambda shape, dtype=float: Array(None, host=np.zeros(shape, dtype))


def array(values):
    return Array(None, host=np.array(values, float))


def program(host):
    comm = NcclCommunicator(host)
    assert (comm.rank, comm.size) == (host.rank, host.size)
    # rank r sends r + 1 elements to rank 0, none to itself but for rank 1, two to rank 2
    counts = [[1, 0, 2], [2, 3, 2], [3, 0, 0]]
    mine = counts[comm.rank]
    sent = array(100 * comm.rank + np.arange(sum(mine)))
    wanted = [counts[other][comm.rank] for other in range(3)]
    received = array(np.full(sum(wanted), np.nan))
    comm.alltoallv(sent, mine, received, wanted)
    expected = []
    for other in range(3):
        begin = sum(counts[other][: comm.rank])
        expected += list(100 * other + begin + np.arange(wanted[other]))
    assert received.host.tolist() == expected, received.host
    others = sum(count for rank, count in enumerate(mine) if rank != comm.rank)
    assert comm.traffic.elements == others
    gathered = array(np.full((3, 4), np.nan))
    comm.gather_into(array(10 * comm.rank + np.arange(4)), gathered)
    assert (gathered.host == 10 * np.arange(3)[:, None] + np.arange(4)).all()
    total = np.array([1.0, comm.rank])
    comm.allreduce(total)
    assert total.tolist() == [3, 3]
    pair = comm.split(comm.rank // 2)
    assert pair.size == (2 if comm.rank < 2 else 1)
    assert pair.traffic is comm.traffic
    return comm


def aside(host):
    comm = NcclCommunicator(host)
    sent, received = array([1 + host.rank]), array([np.nan])
    comm.ialltoallv(sent, [1], received, [1]).wait()
    assert received.host.tolist() == [1]
    return comm


comms = simulate(3, program)
first = next(group for group in LOG if isinstance(group, list) and group and group[0][1] == 1)
assert [each[2] for each in first] == [2, 0], first  # begins with the next rank
LOG.clear()
simulate(1, aside)
assert LOG == ["waits", [], "waits"], LOG
print("right")
"""


def test_sends_and_receives_are_groups(request):
    support = str(request.config.rootpath / "tests" / "support")
    program = f"import sys; sys.path.insert(0, {support!r})\n{PROGRAM}"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout == "right\n"


NONE = """
from fake_cupy.installation import install

install()
from batchkron.distributed import NcclCommunicator, SimulatedCommunicator

NcclCommunicator(SimulatedCommunicator())
"""


def test_without_nccl_the_error_says_what_to_install(request):
    support = str(request.config.rootpath / "tests" / "support")
    program = f"import sys; sys.path.insert(0, {support!r})\n{NONE}"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert "BackendUnavailableError: CuPy finds no NCCL" in run.stderr
    assert "pip install nvidia-nccl-cu13" in run.stderr
