"""What the command and the bridges to other libraries use without a device."""

from batchkron.backends.cuda.gram.tiles import MAX_OF_KERNEL
from batchkron.backends.cuda.kernel_family import forget_by
from batchkron.backends.cuda.runtime.kernel_cache import is_kept, private_folder, recorded_kernels
from batchkron.backends.cuda.tuning.search import RejectedError
from batchkron.backends.cuda.tuning.tuning import DEFAULT_CANDIDATES, DEFAULT_SECONDS, Outcome

__all__ = [
    "DEFAULT_CANDIDATES",
    "DEFAULT_SECONDS",
    "MAX_OF_KERNEL",
    "Outcome",
    "RejectedError",
    "forget_by",
    "is_kept",
    "private_folder",
    "recorded_kernels",
]
