"""What is computed from an operator's factors, and kept until they are replaced."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["Kept"]

Found = TypeVar("Found")


class Kept(Generic[Found]):
    """The last result of a computation on arrays that nobody changes, such as a factorisation.

    Operators on a device keep their factorisations: computing one moves factors to the device.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.operators.kept import Kept
    >>> kept, matrix = Kept(), np.eye(2)
    >>> kept.get([matrix], lambda: np.linalg.inv(matrix)) is kept.get([matrix], lambda: None)
    True
    """

    def __init__(self) -> None:
        self._known: tuple[tuple[Any, ...], Hashable, Found] | None = None

    def get(
        self, sources: Sequence[Any], compute: Callable[[], Found], key: Hashable = None
    ) -> Found:
        """Return the result for these very objects and an equal key, computed if they are new.

        ``sources``: arrays that are replaced as a whole, never changed; they are compared by
          identity.
        ``key`` (hashable): all else that the result depends on.
        """
        known = self._known
        if known is not None and known[1] == key and _are_same(known[0], sources):
            return known[2]
        found = compute()
        self._known = tuple(sources), key, found
        return found


def _are_same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether two sequences have the same objects."""
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))
