"""What the bridges to other libraries and `batchkron.distributed` launch; it imports CuPy."""

from batchkron.backends.cuda.exchange.copies import BlockCopies
from batchkron.backends.cuda.exchange.nccl import NcclRanks
from batchkron.backends.cuda.exchange.peers import can_store, share_memory
from batchkron.backends.cuda.gram.gradients import gradients_plan
from batchkron.backends.cuda.gram.plan import GramPlan
from batchkron.backends.cuda.kron.function_calls import addressed_multiply
from batchkron.backends.cuda.kron.plan import PreparedMultiply, kron_program
from batchkron.backends.cuda.kron_sparse.chain_plan import (
    ChainLayout,
    chain_gradients,
    chain_product,
)
from batchkron.backends.cuda.kron_sparse.kernel import Ending
from batchkron.backends.cuda.runtime.device import (
    device_errors,
    driver_context,
    prepare_thread,
    use_device,
)
from batchkron.backends.cuda.runtime.launch import LaunchSequence, Place

__all__ = [
    "BlockCopies",
    "ChainLayout",
    "Ending",
    "GramPlan",
    "LaunchSequence",
    "NcclRanks",
    "Place",
    "PreparedMultiply",
    "addressed_multiply",
    "can_store",
    "chain_gradients",
    "chain_product",
    "device_errors",
    "driver_context",
    "gradients_plan",
    "kron_program",
    "prepare_thread",
    "share_memory",
    "use_device",
]
