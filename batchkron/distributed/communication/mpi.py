"""MPI's ranks, by mpi4py; the only module that imports it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from batchkron.distributed.communication.common_memory import common_memory
from batchkron.distributed.communication.communicator import Communicator, Parts, Pending, Traffic
from batchkron.distributed.communication.nccl import NcclCommunicator, current_device
from batchkron.errors import BackendUnavailableError
from batchkron.spec.kron import Array

__all__ = ["MpiCommunicator", "is_mpi", "of_mpi", "world"]


def world() -> MpiCommunicator:
    """Return all ranks that ``mpiexec`` has started; one if the process was started without it.

    Raises
    ------
    BackendUnavailableError
        If mpi4py, or the MPI library that it needs, is not installed.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: it finds no libmpi
        raise BackendUnavailableError(
            f"MPI cannot be used: {error}. Install it by: pip install 'batchkron[mpi]' and, if "
            "this machine has no MPI library of its own, pip install mpich"
        ) from error
    return of_mpi(MPI.COMM_WORLD)


def of_mpi(comm: Any) -> MpiCommunicator:
    """Return the communicator of one of mpi4py, always the same one for the same communicator.

    Raises `TypeError` if it is no communicator, but another of mpi4py's objects. `ValueError` if
    this process is none of its ranks, it has been freed, or it joins two groups.
    """
    from mpi4py import MPI

    if not isinstance(comm, MPI.Comm):
        raise TypeError(f"comm is a {type(comm).__name__} of mpi4py; expected a communicator")
    if comm == MPI.COMM_NULL:
        raise ValueError(
            "comm is MPI.COMM_NULL: this process is none of its ranks, or it has been freed; call "
            "on the processes of the communicator only: if comm != MPI.COMM_NULL: ..."
        )
    if comm.Is_inter():
        raise ValueError("comm joins two groups of processes; Merge() makes one group of them")
    key = _attribute()
    known: Any = comm.Get_attr(key)
    if known is None:
        known = MpiCommunicator(comm)
        comm.Set_attr(key, known)
    return known  # type: ignore[no-any-return]


@cache
def _attribute() -> int:
    """Return the key under which MPI keeps our object with a communicator."""
    from mpi4py import MPI

    key: int = MPI.Comm.Create_keyval()
    return key


def is_mpi(comm: object) -> bool:
    """Whether an object is a communicator of mpi4py, without importing it."""
    return any(kind.__module__.startswith("mpi4py") for kind in type(comm).__mro__)


class MpiCommunicator(Communicator):
    """A communicator of mpi4py.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    traffic : Traffic, optional
        Where what this rank sends is counted.
    """

    def __init__(self, comm: Any, traffic: Traffic | None = None) -> None:
        super().__init__(comm.Get_rank(), comm.Get_size(), traffic)
        self.comm = comm
        self.shares_memory = self.size > 1
        self._of_devices: dict[int, NcclCommunicator] = {}

    def _begin_alltoallv(self, sent: Parts, received: Parts) -> Pending:
        ends = [[array, (counts, _begins(counts))] for array, counts in (sent, received)]
        return Pending(self.comm.Ialltoallv(*ends).Wait)

    @cached_property
    def place_on_machine(self) -> int:
        """The rank's number among those of its machine, by which ranks choose devices."""
        from mpi4py import MPI

        beside = self.comm.Split_type(MPI.COMM_TYPE_SHARED, self.rank)
        place = int(beside.Get_rank())
        beside.Free()
        return place

    def of_devices(self) -> Communicator:
        """Return the communicator of their devices, made on the first request for a device.

        Products store results to each other's memory if all devices can.
        """
        device = current_device()
        if device not in self._of_devices:
            self._of_devices[device] = NcclCommunicator(self)
        return self._of_devices[device]

    def allgather(self, values: Array) -> Array:
        """Return the arrays (n,) of all ranks as (size, n)."""
        gathered = np.empty((self.size, *values.shape), values.dtype)
        self.comm.Allgather(values, gathered)
        return gathered

    def meet(self, like: Array) -> None:
        """Return when all ranks have come here."""
        self.comm.Barrier()

    def _new_common_memory(self, size: int) -> Array | None:
        """Return new memory of the ranks of one machine."""
        return common_memory(
            self.rank, self.size, size, lambda value: self.broadcast(value, 0), self.allgather
        )

    def broadcast(self, value: Any, root: int) -> Any:
        """Return what the rank ``root`` passes, on every rank."""
        return self.comm.bcast(value, root)

    def split(self, group: int) -> MpiCommunicator:
        """Return the communicator of the ranks that pass the same number, in their order."""
        return MpiCommunicator(self.comm.Split(group, self.rank), self.traffic)


def _begins(counts: Sequence[int]) -> list[int]:
    """Return where parts of these lengths begin."""
    return [0, *accumulate(counts)][:-1]
