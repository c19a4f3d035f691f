"""SciPy's class of linear operators; the file beside this one has its types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse.linalg import LinearOperator

from batchkron.spec.kron import Array

__all__ = ["LinearOperator", "Scalar", "Vectors"]

Scalar: TypeAlias = complex | np.number[Any]
Vectors: TypeAlias = Array | Sequence[Any]
