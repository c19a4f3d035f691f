"""Access to the datasets of a result file of ASGarD, with checks of kind, length and range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import ProblemFileError
from batchkron.storage.document import Value, value_kind

__all__ = ["AsgardContent"]


class AsgardContent:
    """The datasets that `batchkron.storage.read_foreign_file` has read, by their names in the file.

    Its methods raise ProblemFileError for a dataset that is missing or not as expected.

    ``datasets`` (mapping of str to (ndarray or tuple of str)): the datasets; their names have
      underscores for spaces.
    """

    def __init__(self, datasets: Mapping[str, Value]) -> None:
        self._datasets = datasets

    def __contains__(self, name: str) -> bool:
        return _key(name) in self._datasets

    def integer(self, name: str, smallest: int, largest: int) -> int:
        """Return a single integer; refuse one that is not in smallest … largest."""
        value = int(self._numbers(name, "int64", 1)[0])
        if not smallest <= value <= largest:
            expected = f"{smallest}" if smallest == largest else f"{smallest} … {largest}"
            raise ProblemFileError(f"dataset '{name}' is {value}; expected {expected}")
        return value

    def real(self, name: str) -> float:
        """Return a single floating-point number."""
        return float(self._numbers(name, "float64", 1)[0])

    def reals(self, name: str, length: int | None = None) -> NDArray[np.float64]:
        """Return a vector of floating-point numbers, float64 (length,)."""
        return self._numbers(name, "float64", length)

    def table(self, name: str, columns: int) -> NDArray[np.int64]:
        """Return a vector of integers as the rows of a table, int64 (rows, columns)."""
        values = self._numbers(name, "int64", None)
        if values.size % columns:
            raise ProblemFileError(
                f"dataset '{name}' has {values.size} values; expected a multiple of {columns}"
            )
        return values.reshape(-1, columns)

    def text(self, name: str) -> str:
        """Return a single text."""
        value = self._value(name)
        if not isinstance(value, tuple) or len(value) != 1:
            raise ProblemFileError(f"dataset '{name}' is no text; expected a single string")
        return value[0]

    def members(self, name: str) -> tuple[str, ...]:
        """Return the names of a group's members."""
        value = self._value(name)
        if not isinstance(value, tuple):
            raise ProblemFileError(f"object '{name}' is a dataset; expected a group")
        return value

    def _numbers(self, name: str, kind: str, length: int | None) -> NDArray[Any]:
        value = self._value(name)
        if isinstance(value, tuple) or value_kind(value) != kind:
            raise ProblemFileError(
                f"dataset '{name}' has type {value_kind(value)}; expected {kind}"
            )
        if value.ndim != 1 or (length is not None and value.size != length):
            expected = "any length" if length is None else f"length {length}"
            raise ProblemFileError(
                f"dataset '{name}' has shape {value.shape}; expected one dimension of {expected}"
            )
        return value

    def _value(self, name: str) -> Value:
        if name not in self:
            raise ProblemFileError(f"dataset '{name}' is missing")
        return self._datasets[_key(name)]


def _key(name: str) -> str:
    return name.replace(" ", "_")
