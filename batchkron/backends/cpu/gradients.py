"""Where all gradients of a Kron-Matmul are one call of the core, `native.kron_gradients`."""

from batchkron.backends.cpu.native import get_num_threads

__all__ = ["has_rows"]

_FEW_NUMBERS = 1 << 16  # of x, whose gradients one thread has before others would help


def has_rows(outer: int, elements: int) -> bool:
    """Return whether that keeps all threads busy, which take rows each, or needs only one.

    Parameters
    ----------
    outer : int
        Rows of x.
    elements : int
        Of x.
    """
    return outer >= get_num_threads() or elements <= _FEW_NUMBERS
