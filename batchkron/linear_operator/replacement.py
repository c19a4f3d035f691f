"""Attributes of classes and modules that others replace for a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Replacement"]

_lock = threading.Lock()


class Replacement:
    """An attribute of a class or a module that another one replaces while somebody wants it."""

    def __init__(self, owner: Any, name: str, value: Any) -> None:
        self._owner, self._name, self._value = owner, name, value
        self._users = 0
        self._before: Any = None

    @property
    def name(self) -> str:
        """The full name of what is replaced."""
        owner = self._owner
        place = (
            f"{owner.__module__}.{owner.__qualname__}"
            if isinstance(owner, type)
            else owner.__name__
        )
        return f"{place}.{self._name}"

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Return a context; the first one that is entered replaces, the last one restores."""
        with _lock:
            if self._users == 0:
                self._before = vars(self._owner)[self._name]
                setattr(self._owner, self._name, self._value)
            self._users += 1
        try:
            yield
        finally:
            with _lock:
                self._users -= 1
                if self._users == 0:
                    setattr(self._owner, self._name, self._before)
