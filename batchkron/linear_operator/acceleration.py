"""Puts batchkron's products in the place of those of linear_operator, for a while."""

from __future__ import annotations

import importlib.util
import warnings
from contextlib import ContextDecorator, ExitStack
from typing import Any

from linear_operator.operators import KroneckerProductLinearOperator as TheirProduct

from batchkron.linear_operator.products import matmul, t_matmul
from batchkron.linear_operator.replacement import Replacement

__all__ = ["accelerate"]

_products = [
    Replacement(TheirProduct, "_matmul", matmul),
    Replacement(TheirProduct, "_t_matmul", t_matmul),
]


def _chosen(interpolation: bool) -> list[Replacement]:
    if not interpolation or importlib.util.find_spec("gpytorch") is None:
        return _products
    # these import GPyTorch
    from batchkron.linear_operator.kernel_interpolation import REPLACEMENTS as OF_KERNELS
    from batchkron.linear_operator.predictions import REPLACEMENTS as OF_PREDICTIONS

    return [*_products, *OF_KERNELS, *OF_PREDICTIONS]


class accelerate(ContextDecorator):  # noqa: N801 - users call it as a function
    """Compute with Kronecker products in GPyTorch by batchkron's kernels, within the context.

    Products with a `KroneckerProductLinearOperator` of linear_operator, and their gradients, are
    then computed by these kernels: also those of solvers, and of K + σ² I, which linear_operator
    solves by the eigenvectors of the factors. GPyTorch's `GridInterpolationKernel` makes an
    `InterpolatedKroneckerLinearOperator` instead of sparse matrices with 4^N entries a row, and
    predictions, also with ``gpytorch.settings.fast_pred_var`` (LOVE), do without them. Results are
    the same but for rounding.

    It is a decorator, too: ``@accelerate()`` before a function that trains a model. It is no
    function of a model: models stay as they are, and what is replaced are methods of
    linear_operator and GPyTorch.

    Parameters
    ----------
    interpolation : bool
        Whether `GridInterpolationKernel` and its predictions are changed; if not, only the products
        are.

    Raises
    ------
    TypeError
        If it is given a model, or used as a decorator without parentheses.

    Warns
    -----
    UserWarning
        If it is a statement of its own, which has no effect.

    Notes
    -----
    ``with accelerate() as replaced`` tells what was replaced: the full names of methods and
    functions, in a tuple.

    Left to linear_operator are products with a factor that is neither dense, triangular, Toeplitz,
    nor a multiple of one, and dtypes other than float32 and float64. Toeplitz factors of 512 rows
    or more are multiplied by real Fourier transforms, those of a batch by linear_operator.
    Left to GPyTorch are interpolations with a batch, and those with points in the outermost
    intervals of the grid, where it takes the nearest grid point; a grid that GPyTorch has laid
    around the points has none there.
    Tensors on a CUDA device need CuPy.

    GPyTorch keeps vectors on the grid for predictions: one for means, for LOVE up to 800. They are
    kept at the training points instead if there are at most 4^N of these. ``get_fantasy_model``
    forms the interpolation matrix.

    With linear_operator's preconditioner (from 2000 points on) losses of interpolated covariances
    are other estimates of the same value: its pivots are chosen among entries that are equal but
    for rounding.

    Like the settings of linear_operator, it holds for all threads of the process: PyTorch computes
    gradients on a device in threads of its own. Contexts may be nested, and entered by several
    threads; what was replaced returns when the last one is left. What is recorded inside may be
    differentiated outside.

    Examples
    --------
    >>> import torch
    >>> from linear_operator.operators import KroneckerProductLinearOperator
    >>> from batchkron.linear_operator import accelerate
    >>> K = KroneckerProductLinearOperator(2 * torch.eye(2), torch.ones(2, 2))
    >>> with accelerate() as replaced:
    ...     y = K @ torch.ones(4, 1)
    >>> y.mT
    tensor([[4., 4., 4., 4.]])
    >>> [name.rpartition(".")[2] for name in replaced][:2]
    ['_matmul', '_t_matmul']
    """

    _is_used = True  # so that what is refused gives no warning

    def __init__(self, *wrong: object, interpolation: bool = True) -> None:
        if wrong:
            raise TypeError(
                f"accelerate takes no {type(wrong[0]).__name__}: it changes no model, but methods "
                "of linear_operator and GPyTorch within a context. Write 'with accelerate():' "
                "around what trains or predicts, or '@accelerate()' before a function that does"
            )
        self._interpolation, self._is_used = interpolation, False
        self._entered: list[ExitStack] = []  # it may be entered again inside of itself

    def __enter__(self) -> tuple[str, ...]:
        self._is_used = True
        chosen = _chosen(self._interpolation)
        with ExitStack() as stack:
            for replacement in chosen:
                stack.enter_context(replacement.in_place())
            self._entered.append(stack.pop_all())
        return tuple(replacement.name for replacement in chosen)

    def __exit__(self, *error: object) -> None:
        self._entered.pop().close()

    def __call__(self, function: Any) -> Any:
        """Return a function that runs within a context of its own in each call."""
        self._is_used = True
        return super().__call__(function)

    def _recreate_cm(self) -> accelerate:
        """Return a context of its own for each call of a decorated function, and each thread."""
        return accelerate(interpolation=self._interpolation)

    def __del__(self) -> None:
        if not self._is_used:
            warnings.warn(
                "accelerate() was called and not entered, which has no effect; write "
                "'with accelerate():' around what it is to accelerate",
                UserWarning,
                stacklevel=2,
            )
