"""The public names of batchkron, which `batchkron` itself imports on first use."""

from batchkron import backends
from batchkron.backends import get_num_threads, instruction_set, set_num_threads
from batchkron.errors import (
    BackendUnavailableError,
    ContextLostError,
    NotPhysicalError,
    ProblemFileError,
)
from batchkron.functions.batched_kron import batched_kron
from batchkron.functions.kron import batched_gemm, gekmm, gemkm, kron
from batchkron.functions.kron_sparse import kronecker_sparse_multiply
from batchkron.functions.segmented import SegmentedModeMultiply
from batchkron.functions.vector_sum import linear_combination
from batchkron.operators import (
    BatchedKron,
    Diagonal,
    Identity,
    InterpolatedKronecker,
    Interpolation,
    KroneckerProduct,
    KroneckerSparse,
    KroneckerSparseChain,
    KroneckerSum,
    Operator,
    SparseGridOperator,
    ValidationReport,
    eigh,
    eigvalsh,
)
from batchkron.spec.interpolated import RegularGrid

__all__ = [
    "BackendUnavailableError",
    "BatchedKron",
    "ContextLostError",
    "Diagonal",
    "Identity",
    "InterpolatedKronecker",
    "Interpolation",
    "KroneckerProduct",
    "KroneckerSparse",
    "KroneckerSparseChain",
    "KroneckerSum",
    "NotPhysicalError",
    "Operator",
    "ProblemFileError",
    "RegularGrid",
    "SegmentedModeMultiply",
    "SparseGridOperator",
    "ValidationReport",
    "backends",
    "batched_gemm",
    "batched_kron",
    "eigh",
    "eigvalsh",
    "gekmm",
    "gemkm",
    "get_num_threads",
    "instruction_set",
    "kron",
    "kronecker_sparse_multiply",
    "linear_combination",
    "set_num_threads",
]
