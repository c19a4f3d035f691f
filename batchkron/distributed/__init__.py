"""Operators whose vectors are spread over many processes, by MPI or simulated.

`distribute` makes an operator distributed: each rank (a process of MPI, or a thread of `simulate`)
has a block of every vector, and all of them apply the operator at the same time.
"""

from batchkron.distributed.communication.communicator import Communicator, Pending, Traffic
from batchkron.distributed.communication.communicators import choose_device
from batchkron.distributed.communication.mpi import MpiCommunicator, world
from batchkron.distributed.communication.nccl import NcclCommunicator
from batchkron.distributed.communication.simulated import SimulatedCommunicator, simulate
from batchkron.distributed.distribute import distribute
from batchkron.distributed.operator import DistributedOperator, Volume
from batchkron.distributed.preconditioners.combination import DistributedCombination
from batchkron.distributed.problems.problem import DistributedProblem
from batchkron.distributed.vectors.layout import Layout

__all__ = [
    "Communicator",
    "DistributedCombination",
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
