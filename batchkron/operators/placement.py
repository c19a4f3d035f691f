"""Arrays where an operator works."""

from __future__ import annotations

from typing import cast

from numpy.typing import ArrayLike

from batchkron.arrays import to_host
from batchkron.backends import backend_on
from batchkron.spec.kron import Array


def on_device(array: ArrayLike, device: str) -> Array:
    """Return an array where the operators of a device take it.

    Parameters
    ----------
    array : array_like
        NumPy's or CuPy's.
    device : {"cpu", "cuda"}
        "cuda" is CuPy's current device.

    Returns
    -------
    ndarray
        NumPy's or CuPy's; the array itself if it is there already.

    Raises
    ------
    ValueError
        For any other device.
    BackendUnavailableError
        If CuPy is not installed, or there is no usable device.
    """
    chosen = backend_on(device)
    if isinstance(array, chosen.array_module.ndarray):
        return cast(Array, array)
    return chosen.place([to_host(array, "array")])[0]
