"""The communicator of what a user passes, and a device for each of its ranks."""

from __future__ import annotations

from typing import Any

from batchkron.distributed.communication.communicator import Communicator
from batchkron.distributed.communication.mpi import is_mpi, of_mpi
from batchkron.distributed.communication.simulated import SimulatedCommunicator

__all__ = ["as_communicator", "choose_device"]


def as_communicator(comm: Any) -> Communicator:
    """Return the communicator of ranks.

    ``comm`` (mpi4py communicator, Communicator or None): None for one rank.

    Raises `TypeError` if it is anything else. `ValueError` if it is ``MPI.COMM_NULL``, or joins two
    groups of processes.
    """
    if comm is None:
        return SimulatedCommunicator()
    if isinstance(comm, Communicator):
        return comm
    if is_mpi(comm):
        return of_mpi(comm)
    raise TypeError(
        f"comm is a {type(comm).__name__}; expected a communicator of mpi4py, such as "
        "MPI.COMM_WORLD, one of batchkron.distributed, or None for one rank"
    )


def choose_device(comm: Any = None) -> int:
    """Make one of this machine's devices the current one, another one for each rank. All call it.

    Parameters
    ----------
    comm : mpi4py communicator, Communicator or None
        The ranks.

    Returns
    -------
    int
        The device's number: that of the rank among the ranks of its machine, modulo the number of
        devices that the process sees.

    Raises
    ------
    BackendUnavailableError
        If CuPy is not installed, or there is no device.
    """
    place = as_communicator(comm).place_on_machine
    from batchkron.backends.cuda.interface.device import use_device

    return use_device(place)
