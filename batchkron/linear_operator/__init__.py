"""Products with Kronecker products for linear_operator and GPyTorch."""

from batchkron.errors import BackendUnavailableError

try:
    import linear_operator as _linear_operator  # noqa: F401
except ImportError as error:
    raise BackendUnavailableError(
        "batchkron.linear_operator needs linear_operator, which GPyTorch has; install it with: "
        "pip install 'batchkron[gpytorch]'"
    ) from error

from batchkron.linear_operator.acceleration import accelerate
from batchkron.linear_operator.interpolated import InterpolatedKroneckerLinearOperator
from batchkron.linear_operator.operators import (
    KroneckerProductAddedDiagLinearOperator,
    KroneckerProductLinearOperator,
    SumKroneckerLinearOperator,
)

__all__ = [
    "InterpolatedKroneckerLinearOperator",
    "KroneckerProductAddedDiagLinearOperator",
    "KroneckerProductLinearOperator",
    "SumKroneckerLinearOperator",
    "accelerate",
]
