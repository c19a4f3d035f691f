"""Products with Kronecker products for PyTorch: functions with gradients, and layers."""

from batchkron.errors import BackendUnavailableError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise BackendUnavailableError(
        "batchkron.torch needs PyTorch; install it with: pip install 'batchkron[torch]'"
    ) from error

from batchkron.torch.batched import batched_kron
from batchkron.torch.interpolated import interpolate, interpolated_kronecker
from batchkron.torch.kron import gekmm, kron_matmul
from batchkron.torch.modules import KroneckerLinear, KroneckerSparseLinear
from batchkron.torch.solves import expm_apply, logdet, solve
from batchkron.torch.sparse import kronecker_sparse

__all__ = [
    "KroneckerLinear",
    "KroneckerSparseLinear",
    "batched_kron",
    "expm_apply",
    "gekmm",
    "interpolate",
    "interpolated_kronecker",
    "kron_matmul",
    "kronecker_sparse",
    "logdet",
    "solve",
]


def __dir__() -> list[str]:
    """Return the public names, without the modules that they are in."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
