"""Products with Kronecker-sparse matrices that always go through transposed vectors."""

from contextlib import contextmanager
from unittest.mock import patch

from batchkron.backends.cuda.kernel_family import forget_plans
from batchkron.backends.cuda.kron_sparse import transposed


@contextmanager
def always_transposed(vectors=transposed._VECTORS):
    """Take the transposed way wherever there is one, with parts of at most so many vectors."""

    def sizes(shape):
        return [min(vectors, shape.outer - done) for done in range(0, shape.outer, vectors)]

    least = min(vectors, transposed._VECTORS)
    changed = {"_seconds": lambda *_: -1e9, "_VECTORS": least, "part_sizes": sizes}
    with patch.multiple(transposed, **changed):
        forget_plans()
        try:
            yield
        finally:
            forget_plans()
