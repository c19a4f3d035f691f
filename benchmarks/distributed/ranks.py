"""The ranks of a run: where their arrays are, how long they take, how much time is left."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from batchkron.distributed import Communicator, NcclCommunicator, choose_device, world

REPEATS = 5  # times that a call is measured, after two that are not
MAX_SECONDS = 4.0  # that the repeats of a call take, about


class Ranks:
    """All ranks, on devices or processors, with the seconds of the whole run.

    Parameters
    ----------
    device : {"cpu", "cuda"}
    seconds : float
        After which nothing new is begun.
    quick : bool
        Small cases, to try the program.
    """

    def __init__(self, device: str, seconds: float, quick: bool = False) -> None:
        self.host = world()
        self.device, self._begin, self._seconds = device, time.perf_counter(), seconds
        self.quick = quick
        self.rank, self.size = self.host.rank, self.host.size
        self.module: Any = np
        self.records: list[dict[str, Any]] = []
        if device == "cuda":
            self.number = choose_device(self.host)
            import cupy

            self.module = cupy
            self.nccl = NcclCommunicator(self.host)
            self._direct: NcclCommunicator | str | None = None

    def transport(self, name: str) -> Communicator:
        """Return the communicator of a transport: "mpi", "nccl", "nccl, no overlap" or "peer".

        Raises
        ------
        BackendUnavailableError
            If there is none.
        """
        if name == "mpi":
            return self.host
        if name == "peer":
            if not isinstance(self._direct, NcclCommunicator):
                self._direct = NcclCommunicator(self.host, stores=True)
            return self._direct
        self.nccl.overlaps = name == "nccl"
        return self.nccl

    def wait(self) -> None:
        """Wait for the rank's device, then for all ranks."""
        self.finish()
        self.host.allreduce(np.zeros(1))

    def finish(self) -> None:
        """Wait for the rank's device."""
        if self.device == "cuda":
            self.module.cuda.Device().synchronize()

    def free(self) -> None:
        """Give memory that nothing uses back to the device."""
        if self.device == "cuda":
            self.module.get_default_memory_pool().free_all_blocks()

    def random(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return random numbers from -1 to 1, others on each rank."""
        random = self.module.random.default_rng(self.rank)
        if self.device == "cuda":
            values = random.random(shape, dtype=np.dtype(dtype).type)
        else:
            values = random.random(shape).astype(dtype, copy=False)
        values *= 2
        values -= 1
        return values

    def seconds(self, call: Callable[[], object], alone: bool = False) -> float:
        """Return the median time until all ranks are done; ``alone``: of this rank's call."""
        times: list[float] = []
        for turn in range(2 + REPEATS):
            if not alone:
                self.wait()
            self.finish()
            begin = time.perf_counter()
            call()
            self.finish()
            taken = np.array([time.perf_counter() - begin])
            if not alone:
                self.host.allreduce(taken, maxima=True)
            long = float(taken[0]) * (turn + 1) > MAX_SECONDS
            if turn >= 2 or long:
                times.append(float(taken[0]))
            if long:
                break
        return statistics.median(times)

    def together(self, value: float, *, maxima: bool = True) -> float:
        """Return the largest of the ranks' numbers, or their sum."""
        values = np.array([value], float)
        self.host.allreduce(values, maxima=maxima)
        return float(values[0])

    def elapsed(self) -> float:
        """Return the seconds since the run began."""
        return time.perf_counter() - self._begin

    def has_time(self, needed: float = 0.0) -> bool:
        """Return whether so many seconds are left; the same on all ranks."""
        return bool(self.host.broadcast(self.elapsed() + needed < self._seconds, 0))

    def say(self, *text: object) -> None:
        """Print a line, once."""
        if self.rank == 0:
            print(*text, flush=True)

    def record(self, **values: Any) -> dict[str, Any]:
        """Keep a record, and return it."""
        self.records.append({**values, "elapsed": round(self.elapsed(), 1)})
        return self.records[-1]
