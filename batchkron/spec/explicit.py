"""Validation of explicit Kronecker products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.spec.kron import Array, check_output, compute_dtype, factor_list


def explicit_product(
    factors: Sequence[ArrayLike], out: Array | None, module: Any
) -> tuple[list[Array], tuple[int, int], np.dtype[Any]]:
    """Validate one call of `batchkron.kron` on arrays of ``module``.

    Returns the matrices, as they were given; shape and dtype of their product.
    """
    matrices = factor_list(factors, matrices=True, module=module)
    dtype = compute_dtype(*matrices)
    rows = columns = 1
    for matrix in matrices:
        rows, columns = rows * matrix.shape[0], columns * matrix.shape[1]
    if out is not None:
        check_output(out, (rows, columns), dtype, matrices)
    return matrices, (rows, columns), dtype
