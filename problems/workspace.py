"""Work arrays that belong to one object and one thread."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["Workspace"]


class Workspace:
    """One reusable array per thread, so that an object can be used by several at once.

    Copies and pickles of a workspace are fresh and empty.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    def array(self, shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Return this thread's array; its content is arbitrary.

        Parameters
        ----------
        shape : tuple of int
        dtype : dtype

        Returns
        -------
        ndarray
            The same one as last time, unless shape or dtype differ from the last call's.
        """
        array: NDArray[Any] | None = getattr(self._local, "array", None)
        if array is None or array.shape != shape or array.dtype != dtype:
            array = self._local.array = np.empty(shape, dtype)
        return array

    def __reduce__(self) -> tuple[type[Workspace], tuple[()]]:
        return Workspace, ()
