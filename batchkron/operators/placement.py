"""Arrays on the device of an operator."""

from __future__ import annotations

from typing import cast

from numpy.typing import ArrayLike

from batchkron.arrays import to_host
from batchkron.backends import backend_on
from batchkron.spec.kron import Array


def on_device(array: ArrayLike, device: str) -> Array:
    """Return an array on a device.

    Parameters
    ----------
    array : array_like
        A NumPy or CuPy array, or anything that `numpy.asarray` takes.
    device : {"cpu", "cuda"}
        "cuda" is CuPy's current device.

    Returns
    -------
    ndarray
        A NumPy or CuPy array; the array itself if it is on the device already.

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
