"""Operators whose vectors are spread over many processes, by MPI or simulated.

`distribute` makes an operator distributed: each rank (a process of MPI, or a thread of `simulate`)
has a block of every vector, and all of them apply the operator at the same time.
"""

from batchkron.distributed.communicator import Communicator, Pending, Traffic
from batchkron.distributed.communicators import choose_device
from batchkron.distributed.distribute import distribute
from batchkron.distributed.layout import Layout
from batchkron.distributed.mpi import MpiCommunicator, world
from batchkron.distributed.nccl import NcclCommunicator
from batchkron.distributed.operator import DistributedOperator, Volume
from batchkron.distributed.problem import DistributedProblem
from batchkron.distributed.simulated import SimulatedCommunicator, simulate

__all__ = [
    "Communicator",
    "DistributedOperator",
    "DistributedProblem",
    "Layout",
    "MpiCommunicator",
    "NcclCommunicator",
    "Pending",
    "SimulatedCommunicator",
    "Traffic",
    "Volume",
    "choose_device",
    "distribute",
    "simulate",
    "world",
]
