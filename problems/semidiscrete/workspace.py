"""Work arrays that belong to one object and one thread."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from batchkron.arrays import array_module

__all__ = ["Workspace"]


class Workspace:
    """One reusable array per thread, so that an object can be used by several at once.

    On a device an array is new each time: its memory pool keeps streams apart, at no cost.
    Copies and pickles of a workspace are fresh and empty.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    def array(
        self, shape: tuple[int, ...], dtype: DTypeLike = np.float64, *, like: Any = None
    ) -> NDArray[Any]:
        """Return this thread's array; its content is arbitrary.

        Parameters
        ----------
        shape : tuple of int
        dtype : dtype
        like : ndarray, optional
            Where the array is to be: NumPy's, or on the device of a CuPy array.

        Returns
        -------
        ndarray
            The same one as last time, unless shape or dtype differ from the last call's.
        """
        module = array_module(like)
        if module is not np:
            return module.empty(shape, dtype)  # type: ignore[no-any-return]
        array: NDArray[Any] | None = getattr(self._local, "array", None)
        if array is None or array.shape != shape or array.dtype != dtype:
            array = self._local.array = np.empty(shape, dtype)
        return array

    def __reduce__(self) -> tuple[type[Workspace], tuple[()]]:
        return Workspace, ()
