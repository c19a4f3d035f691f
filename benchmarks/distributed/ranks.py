"""The ranks of a run: where their arrays are, how long they take, how much time is left."""

import faulthandler
import gc
import statistics
import sys
import time

import numpy as np

from batchkron.distributed import NcclCommunicator, choose_device, world
from batchkron.errors import BackendUnavailableError
from benchmarks.core.tables import words
from benchmarks.core.timing import seconds_of

REPEATS = 5  # times that a call is measured, after two that are not
MAX_SECONDS = 4.0  # that the repeats of a call take, about
START_SECONDS = 60.0  # in which the ranks find each other, or something hangs


class Ranks:
    """All ranks, on devices or processors; nothing new is begun after ``seconds``."""

    def __init__(self, device, seconds, quick=False):
        self.host = world()
        self.device, self._begin, self._seconds = device, time.perf_counter(), seconds
        self.quick = quick
        self.rank, self.size = self.host.rank, self.host.size
        self.module = np
        self.records = []
        if device == "cuda":
            self.number = choose_device(self.host)
            import cupy

            faulthandler.dump_traceback_later(START_SECONDS, exit=True)
            self.module = cupy
            self.nccl = NcclCommunicator(self.host, stores=False)
            self._direct = None
            faulthandler.cancel_dump_traceback_later()

    def transport(self, name):
        if name == "mpi":
            return self.host
        if name == "peer":
            if self._direct is None:
                self._direct = NcclCommunicator(self.host, stores=True)
            return self._direct
        self.nccl.overlaps = name == "nccl"
        return self.nccl

    def has(self, name):
        if name != "peer":
            return True
        rates = self._rates("peer")
        return bool(rates[-1]) if rates else self.can_store()

    def can_store(self):
        """Return whether ranks can write to each other's memory; all of them ask."""
        try:
            self.transport("peer").share_memory(1, np.dtype(np.float32), self.module)
        except BackendUnavailableError as error:
            self.say(f"  no stores to other devices' memory: {error}")
            return False
        return self.size > 1

    def rate(self, name):
        rates = self._rates(name.partition(",")[0])
        return rates[-1] if rates else None

    def _rates(self, name):
        links = [one for one in self.records if one["case"] == "link"]
        return [one["bytes_per_second"] for one in links if one["transport"] == name]

    def wait(self):
        self.finish()
        self.host.allreduce(np.zeros(1))

    def finish(self):
        if self.device == "cuda":
            self.module.cuda.Device().synchronize()

    def free(self):
        gc.collect()
        self.wait()
        if self.device == "cuda":
            self.module.get_default_memory_pool().free_all_blocks()

    def random(self, shape, dtype):
        """Return random numbers from -1 to 1, others on each rank."""
        random = self.module.random.default_rng(self.rank)
        values = random.random(shape, dtype=np.dtype(dtype).type)
        values *= 2
        values -= 1
        return values

    def seconds(self, call, alone=False):
        """Return the median time until all ranks are done; ``alone``: of this rank's call."""
        times = []
        for turn in range(2 + REPEATS):
            if not alone:
                self.wait()
            taken = seconds_of(call, wait=self.finish)
            taken = taken if alone else self.together(taken)
            long = taken * (turn + 1) > MAX_SECONDS
            if turn >= 2 or long:
                times.append(taken)
            if long:
                break
        return statistics.median(times)

    def seconds_alone(self, make):
        """Return the time of a call that the first rank makes and does alone."""
        seconds = self.seconds(make(), alone=True) if self.rank == 0 else None
        return float(self.host.broadcast(seconds, 0))

    def together(self, value):
        """Return the largest of all ranks' values."""
        values = np.array([value], float)
        self.host.allreduce(values, maxima=True)
        return float(values[0])

    def elapsed(self):
        return time.perf_counter() - self._begin

    def has_time(self, needed):
        """Return whether so many seconds are left; the same on all ranks."""
        return bool(self.host.broadcast(self.elapsed() + needed < self._seconds, 0))

    def end_all(self):
        """End all ranks: they would wait for this one for ever."""
        if self.size > 1:
            from mpi4py import MPI

            sys.stdout.flush()
            MPI.COMM_WORLD.Abort(1)

    def say(self, *text):
        if self.rank == 0:
            print(*text, flush=True)

    def record(self, **values):
        self.records.append({**values, "elapsed": round(self.elapsed(), 1)})
        return self.records[-1]

    def report(self, **values):
        self.say("  " + words(values))
        return self.record(**values)
