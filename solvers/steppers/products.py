"""The products with A of a stepper: their number, and a hook around them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ..products import Vector

__all__ = ["ProductHook", "Products"]

ProductHook = Callable[[], AbstractContextManager[Any]]


class Products:
    """Counts products, of right-hand sides and of linear solves, and calls a hook around them.

    ``count``: number of products so far.
    ``hook``: returns a context manager, inside of which a product is done. It is not called for
      products that a CUDA graph or a call of the core does together with other work.
    """

    def __init__(self) -> None:
        self.count = 0
        self.hook: ProductHook | None = None

    def do(self, product: Callable[..., object], *arguments: Any) -> None:
        """Do a product, inside of the hook's context if there is a hook."""
        if self.hook is None:
            product(*arguments)
            return
        with self.hook():
            product(*arguments)

    def hooked(self, product: Callable[[Vector, Vector], object]) -> Callable[..., None]:
        """Return ``product(x, out)`` with the hook."""
        return lambda x, out: self.do(product, x, out)
