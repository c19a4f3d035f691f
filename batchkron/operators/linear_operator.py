"""SciPy's LinearOperator as a generic class; its type hints are in linear_operator.pyi."""

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
    """SciPy's class; ``Related`` is the class of transposes, sums and products of operators."""
