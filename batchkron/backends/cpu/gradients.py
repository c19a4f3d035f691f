"""Where all gradients of a Kron-Matmul are one call of the core, `native.kron_gradients`."""

from batchkron.backends.cpu.native import get_num_threads

__all__ = ["by_one_call"]

_FEW_NUMBERS = 1 << 16  # whose gradients one thread has before others would help
_MAX_ROW = 1 << 20  # numbers; a thread keeps memory for some rows
_MAX_SIZE = 128  # rows or columns of a factor, all sums of which each part of the rows has


def by_one_call(outer: int, numbers: int, largest: int) -> bool:
    """Return whether gradients are computed row by row, and not mode by mode by all threads.

    ``outer``: rows of x.
    ``numbers``: of x or of the gradient, whichever has more.
    ``largest``: most rows or columns of a factor.
    """
    has_rows = outer >= get_num_threads() and numbers <= _MAX_ROW * outer
    return largest <= _MAX_SIZE and (has_rows or numbers <= _FEW_NUMBERS)
