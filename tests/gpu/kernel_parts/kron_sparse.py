"""Kronecker-sparse matrices."""

from itertools import product

import cupy
import numpy as np
from kernel_parts.values import check, random_array
from transposed_products import always_transposed

import batchkron as bk
from batchkron.backends.cuda.kernel_family import without

SPARSE = [(1, 20, 24, 8), (2, 33, 17, 1), (2, 16, 40, 3), (1, 2, 4, 16), (3, 70, 9, 12)]
KRON_SPARSE = ("tiles", "registers", "general")


def half_dtypes():
    """float16, and bfloat16 where ml_dtypes and CuPy have it."""
    found = [np.dtype("float16")]
    try:
        from ml_dtypes import bfloat16

        if cupy.asarray(np.ones(2, bfloat16)).dtype != bfloat16:
            raise TypeError("CuPy converts it")
    except (ImportError, TypeError, ValueError) as error:
        print(f"no bfloat16: {error}", flush=True)
    else:
        found.append(np.dtype(bfloat16))
    return found


def kron_sparse(rng, dtype, small):
    """Both layouts, by each family of kernels that takes the matrix.

    float16 and bfloat16 beside each other dtype, with sums in float32: their tiles stand for those
    that complex matrices lack.
    """
    kinds = [np.dtype(dtype), *half_dtypes()]
    for kind, pattern, family in product(kinds, SPARSE, KRON_SPARSE):
        others = [one for one in (*KRON_SPARSE, "library") if one != family]
        wide = np.dtype("float32") if kind.itemsize == 2 else kind
        values = random_array(rng, pattern, wide).astype(kind)
        for layout in ("batch-first", "batch-last"):
            op = bk.KroneckerSparse(values, layout=layout)
            count = 9 if small else 70
            shape = (count, op.shape[1]) if layout == "batch-first" else (op.shape[1], count)
            x = random_array(rng, shape, wide).astype(kind)
            expected = op.apply(x.astype(wide))
            with without(*(f"kron_sparse.{name}" for name in others)):
                try:
                    y = op.to("cuda").apply(cupy.asarray(x))
                except LookupError:
                    continue  # the family does not take this matrix
                check(y, expected, (pattern, layout, kind, family), 40)
                if kind == "float32":
                    fast = bk.KroneckerSparse(values, layout=layout, precision="tf32x3")
                    check(fast.to("cuda").apply(cupy.asarray(x)), expected, pattern)
                turned = cupy.asarray(values.transpose(0, 2, 1, 3).copy()).transpose(0, 2, 1, 3)
                y = bk.kronecker_sparse_multiply(turned, cupy.asarray(x), layout=layout)
                check(y, expected, (pattern, layout, kind, family, "function"), 40)
            if kind.kind != "c" and layout == "batch-first":
                with always_transposed(vectors=8):
                    y = op.to("cuda").apply(cupy.asarray(x))
                check(y, expected, (pattern, kind, "transposed"), 40)
