"""Puts batchkron's products in the place of those of linear_operator, for a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from linear_operator.operators import KroneckerProductLinearOperator as TheirProduct

from batchkron.linear_operator.products import matmul, t_matmul

__all__ = ["accelerate"]

_lock = threading.Lock()


class _Replacement:
    """A method of a class that another one replaces as long as somebody wants it."""

    def __init__(self, owner: type, name: str, method: Any) -> None:
        self._owner, self._name, self._method = owner, name, method
        self._users = 0
        self._before: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with _lock:
            if self._users == 0:
                self._before = self._owner.__dict__[self._name]
                setattr(self._owner, self._name, self._method)
            self._users += 1
        try:
            yield
        finally:
            with _lock:
                self._users -= 1
                if self._users == 0:
                    setattr(self._owner, self._name, self._before)


_products = [
    _Replacement(TheirProduct, "_matmul", matmul),
    _Replacement(TheirProduct, "_t_matmul", t_matmul),
]


@contextmanager
def accelerate() -> Iterator[None]:
    """Multiply linear_operator's Kronecker products by batchkron's kernels, within the context.

    What GPyTorch and linear_operator compute of a `KroneckerProductLinearOperator` then uses these
    kernels: products and their gradients, solves by CG, and K + σ² I, which linear_operator solves
    by the eigenvectors of the factors. Results are the same but for rounding.

    Also a decorator: ``@accelerate()`` before a function that trains a model.

    Notes
    -----
    Left to linear_operator are products with a factor that is neither dense, triangular, a Toeplitz
    matrix of fewer than 512 rows, nor a multiple of one, and dtypes other than float32 and float64.
    Tensors on a CUDA device need CuPy.

    Like the settings of linear_operator, it holds for all threads of the process: PyTorch computes
    gradients on a device in threads of its own. Contexts may be nested, and entered by several
    threads; linear_operator's own methods return when the last one is left. What is recorded inside
    may be differentiated outside; then linear_operator's methods compute the gradients.

    Examples
    --------
    >>> import torch
    >>> from linear_operator.operators import KroneckerProductLinearOperator
    >>> from batchkron.linear_operator import accelerate
    >>> K = KroneckerProductLinearOperator(2 * torch.eye(2), torch.ones(2, 2))
    >>> with accelerate():
    ...     y = K @ torch.ones(4, 1)
    >>> y.mT
    tensor([[4., 4., 4., 4.]])
    """
    with ExitStack() as stack:
        for replacement in _products:
            stack.enter_context(replacement())
        yield
