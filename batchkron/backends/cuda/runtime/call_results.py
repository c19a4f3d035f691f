"""Arrays that the user gives to a call of a function: for its result, or to add to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.device import cupy


def result_check(
    shape: tuple[int, ...], dtype: np.dtype[Any], device: int
) -> Callable[[Any], bool]:
    """Return a function that says whether a call can use an array as it is, given anything.

    It can if that is a C-contiguous CuPy array of this shape and dtype on this device.
    """
    # The check runs in each call, and a closure's names are found faster than attributes.
    kind = cupy.ndarray
    strides = tuple(dtype.itemsize * math.prod(shape[k + 1 :]) for k in range(len(shape)))

    def fits(array: Any) -> bool:
        return (
            type(array) is kind
            and array.dtype == dtype
            and array.shape == shape
            and array.strides == strides
            and array.data.device_id == device
        )

    return fits
