"""Which function computes what a kernel does."""

from dataclasses import dataclass

import numpy as np

from fake_cupy.kernels.batch import add_unsorted, multiply_batch
from fake_cupy.kernels.diagonal import multiply_diagonal
from fake_cupy.kernels.explicit import write_product
from fake_cupy.kernels.gram import add_parts, multiply_gram, multiply_small, rows_at_once
from fake_cupy.kernels.interpolated import fold_pieces, interpolate
from fake_cupy.kernels.kron import multiply
from fake_cupy.kernels.kron_sparse import (
    multiply_sparse,
    store_values,
    sum_gradients,
    transpose,
)
from fake_cupy.kernels.kron_sum import substitute_back
from fake_cupy.kernels.segmented import sum_edges
from fake_cupy.kernels.vector_sum import add_vectors


@dataclass(frozen=True)
class OtherKernel:
    """A kernel that is known by its dtype and numbers."""

    kind: str
    dtype: np.dtype
    numbers: tuple


def run_other(kernel, address):
    others = {
        "diagonal": multiply_diagonal,
        "back_substitution": substitute_back,
        "store": store_values,
        "fold": fold_pieces,
        "gram": multiply_gram,
        "vector_sum": add_vectors,
    }
    others.get(kernel.kind, interpolate)(kernel, address)


COMPUTE = {
    "OtherKernel": run_other,
    "SparseKernel": multiply_sparse,
    "KronKernel": multiply,
    "BatchKernel": multiply_batch,
    "ProductKernel": write_product,
    "UnsortedKernel": add_unsorted,
    "BlockTransposition": transpose,
    "GradientKernel": sum_gradients,
    "SmallGram": multiply_small,
    "RowGradients": rows_at_once,
    "Total": add_parts,
    "SumsKernel": sum_edges,
}
