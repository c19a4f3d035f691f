"""SciPy's class of linear operators; the file beside this one has its types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import scipy.sparse.linalg

from batchkron.spec.kron import Array

__all__ = ["LinearOperator", "Scalar", "Vectors"]

Related = TypeVar("Related")
Scalar: TypeAlias = complex | np.number[Any]
Vectors: TypeAlias = Array | Sequence[Any]


class LinearOperator(scipy.sparse.linalg.LinearOperator, Generic[Related]):
    """SciPy's class, generic in the class of what its algebra makes of operators."""
