"""Which function computes what a kernel does."""

from dataclasses import dataclass

import numpy as np

from batchkron.backends.cuda.formula.kernel import formula_arguments
from batchkron.backends.cuda.step_sums.kernel import step_sum_arguments
from batchkron.backends.cuda.vector_sum.kernel import vector_sum_arguments
from batchkron.backends.krylov_arguments import ARGUMENTS
from fake_cupy.kernels.batch import add_unsorted, multiply_batch
from fake_cupy.kernels.diagonal import multiply_diagonal
from fake_cupy.kernels.explicit import write_product
from fake_cupy.kernels.formula import evaluate_formula
from fake_cupy.kernels.gram import add_parts, multiply_gram
from fake_cupy.kernels.interpolated import fold_pieces, interpolate
from fake_cupy.kernels.kron import multiply
from fake_cupy.kernels.kron_sparse import (
    multiply_sparse,
    store_values,
    sum_gradients,
    transpose,
)
from fake_cupy.kernels.kron_sum import substitute_back
from fake_cupy.kernels.krylov import run_passes
from fake_cupy.kernels.segmented import sum_edges
from fake_cupy.kernels.step_sum import sum_of_step
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
        "fold": fold_pieces,
        "formula": evaluate_formula,
        "vector_sum": add_vectors,
        "krylov": run_passes,
        "step_sum": sum_of_step,
    }
    others.get(kernel.kind, interpolate)(kernel, address)


def run_kernel(kernel, address):
    of_operation = {
        "batch": multiply_batch,
        "explicit": write_product,
        "gram": multiply_gram,
        "kron": multiply,
        "kron_sparse": multiply_sparse,
        "segmented": sum_edges,
    }
    family = kernel.family
    of_family = {
        "gram.total": add_parts,
        "kron_sparse.gradients": sum_gradients,
        "kron_sparse.store": store_values,
        "kron_sparse.transposition": transpose,
    }
    name = f"{family.operation}.{family.name}"
    (of_family.get(name) or of_operation[family.operation])(kernel, address)


COMPUTE = {
    "OtherKernel": run_other,
    "Kernel": run_kernel,
    "UnsortedKernel": add_unsorted,
}


def argument_bytes(kernel):
    """The size of the arguments of a kernel that graphs can have."""
    if type(kernel).__name__ == "Kernel":
        return kernel.arguments.dtype.itemsize
    if kernel.kind == "formula":  # which is in the place of a dtype
        return formula_arguments(kernel.dtype.variables).itemsize
    if kernel.kind == "vector_sum":
        return vector_sum_arguments(kernel.dtype, kernel.numbers[1]).itemsize
    if kernel.kind == "step_sum":
        return step_sum_arguments(kernel.numbers[1]).itemsize
    assert kernel.kind == "krylov"
    return ARGUMENTS.itemsize
