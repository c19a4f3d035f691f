"""Products with Kronecker products for JAX: functions that it differentiates, maps and compiles."""

from batchkron.errors import BackendUnavailableError

try:
    import jax as _jax  # noqa: F401
except ImportError as error:
    raise BackendUnavailableError(
        "batchkron.jax needs JAX; install it with: pip install 'batchkron[jax]'"
    ) from error

from batchkron.jax.batched import batched_kron
from batchkron.jax.kron import kron_matmul
from batchkron.jax.solves import expm_apply, logdet, solve
from batchkron.jax.sparse import kronecker_sparse

__all__ = ["batched_kron", "expm_apply", "kron_matmul", "kronecker_sparse", "logdet", "solve"]
