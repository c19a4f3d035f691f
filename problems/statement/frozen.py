"""A mapping that cannot be changed but can be copied and pickled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

__all__ = ["Frozen"]

Key = TypeVar("Key")
Value = TypeVar("Value")


class Frozen(Mapping[Key, Value]):
    """A read-only mapping. Unlike `types.MappingProxyType` it can be pickled.

    ``values``: its entries are copied.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[Key, Value]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: Key) -> Value:
        return self._values[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)
