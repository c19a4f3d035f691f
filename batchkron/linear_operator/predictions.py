"""Predictions of GPyTorch's kernel interpolation, mean and LOVE, without 4^N entries a point."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch import settings
from gpytorch.models.exact_prediction_strategies import InterpolatedPredictionStrategy
from gpytorch.utils.memoize import cached, pop_from_cache
from linear_operator.operators import LinearOperator, RootLinearOperator
from linear_operator.utils.interpolation import left_interp
from torch import Tensor

from batchkron.linear_operator.interpolated import InterpolatedKroneckerLinearOperator
from batchkron.linear_operator.replacement import Replacement
from batchkron.spec.interpolated import WEIGHTS

__all__ = ["REPLACEMENTS"]

_MAX_PERMUTED = 1 << 20  # cells of a grid whose random order is made to choose some: 8 MiB

# The attributes as GPyTorch has them, also while others are in their place.
_theirs: dict[str, Any] = dict(vars(InterpolatedPredictionStrategy))
_their_mean_cache: Any = _theirs["mean_cache"].fget
_their_covar_cache: Any = _theirs["covar_cache"].fget


def _trained(strategy: InterpolatedPredictionStrategy) -> LinearOperator:
    """Return the covariance W K Wᵀ of the training points."""
    return strategy.train_prior_dist.lazy_covariance_matrix


def _are_points_few(covariance: InterpolatedKroneckerLinearOperator) -> bool:
    """Whether a vector at the training points is shorter than a window of the grid.

    Then a prediction is a product with the covariances of test and training points: for each vector
    it reads fewer numbers than interpolation, and no vector on the grid is needed.
    """
    grid = covariance.left.interpolation.grid
    return len(covariance.left) <= WEIGHTS ** len(grid.sizes)


def _by_points(strategy: InterpolatedPredictionStrategy, test_train: LinearOperator) -> bool:
    """Whether predictions keep vectors at the training points in the place of ones on the grid."""
    trained = _trained(strategy)
    ours = InterpolatedKroneckerLinearOperator
    return isinstance(test_train, ours) and isinstance(trained, ours) and _are_points_few(trained)


def _kept(found: Tensor) -> Tensor:
    return found.detach() if settings.detach_test_caches.on() else found


def _at_test_points(test_train: InterpolatedKroneckerLinearOperator, vectors: Tensor) -> Tensor:
    """Return W' K Wᵀ vectors; of what GPyTorch would keep on the grid there is no gradient."""
    if settings.detach_test_caches.on():
        test_train = test_train._with_detached_grid()
    return test_train._multiply_rows(vectors)


def _from_grid(covariance: LinearOperator, values: Tensor) -> Tensor:
    """Return W u for values u on the grid, W on the left of the covariance."""
    if isinstance(covariance, InterpolatedKroneckerLinearOperator):
        return covariance._gather(values)
    left: Tensor = left_interp(
        covariance.left_interp_indices, covariance.left_interp_values, values
    )
    return left


def _are_on_two_grids(one: Any, other: Any) -> bool:
    """Whether both are ours, and a kernel has chosen another grid between them.

    It does so, unless its bounds are given, if points are outside of its grid.
    """
    ours = InterpolatedKroneckerLinearOperator
    if not isinstance(one, ours) or not isinstance(other, ours):
        return False
    return one.left.interpolation.grid != other.left.interpolation.grid


# What is computed once for all predictions.


def _solution(strategy: InterpolatedPredictionStrategy) -> Tensor:
    """Return (W K Wᵀ + D)⁻¹ (y - μ), (..., n, 1); labels and means may have a batch."""
    noisy = strategy.likelihood(strategy.train_prior_dist, strategy.train_inputs)
    difference = (strategy.train_labels - noisy.mean).unsqueeze(-1)
    return noisy.lazy_covariance_matrix.solve(difference)  # type: ignore[no-any-return]


@cached(name="batchkron_solution")  # type: ignore[untyped-decorator]
def _kept_solution(strategy: InterpolatedPredictionStrategy) -> Tensor:
    return _kept(_solution(strategy))


def _random_cells(number: int, count: int) -> Tensor:
    """Return some of the grid's cells: on small grids those of GPyTorch, whose order has them all.

    On large ones two may be the same, which is of no harm.
    """
    if number > _MAX_PERMUTED:
        return torch.randint(number, (count,))
    return torch.randperm(number)[:count]


def _inverse_root(strategy: InterpolatedPredictionStrategy) -> Tensor:
    """Return S with S Sᵀ ≈ (W K Wᵀ + D)⁻¹, (..., n, rank), as GPyTorch computes it."""
    trained = _trained(strategy)
    centred = strategy.train_prior_dist.__class__(
        torch.zeros_like(strategy.train_prior_dist.mean), trained
    )
    noisy = strategy.likelihood(centred, strategy.train_inputs).lazy_covariance_matrix
    probes = None, None
    if noisy._choose_root_method() == "lanczos":  # which begins with a column of W K
        count = settings.fast_pred_var.num_probe_vectors()
        cells = _random_cells(trained.base_linear_op.shape[-1], 2 * count)
        columns = trained._grid_columns(cells.to(trained.device))
        probes = columns[:, :count], columns[:, count:]
    root = noisy.root_inv_decomposition(initial_vectors=probes[0], test_vectors=probes[1]).root
    return root.to_dense()  # type: ignore[no-any-return]


@cached(name="batchkron_inverse_root")  # type: ignore[untyped-decorator]
def _kept_inverse_root(strategy: InterpolatedPredictionStrategy) -> Tensor:
    return _kept(_inverse_root(strategy))


@cached(name="mean_cache")  # type: ignore[untyped-decorator]
def mean_cache(strategy: InterpolatedPredictionStrategy) -> Tensor:
    """Return K Wᵀ (W K Wᵀ + D)⁻¹ (y - μ) on the grid, in the place of GPyTorch's property."""
    trained = _trained(strategy)
    if not isinstance(trained, InterpolatedKroneckerLinearOperator):
        return _their_mean_cache(strategy)  # type: ignore[no-any-return]
    on_grid = trained._scatter_right(_kept_solution(strategy))
    return _kept(trained.base_linear_op.matmul(on_grid))


def _mean_on_grid(strategy: InterpolatedPredictionStrategy, test_train: LinearOperator) -> Tensor:
    """Return K Wᵀ (W K Wᵀ + D)⁻¹ (y - μ) on the grid of the test points.

    GPyTorch reads what it keeps on the grid of the training points by windows on this one.
    """
    if not _are_on_two_grids(_trained(strategy), test_train):
        return strategy.mean_cache  # type: ignore[no-any-return]
    on_grid = test_train._scatter_right(_kept_solution(strategy))
    return _kept(test_train.base_linear_op.matmul(on_grid))


@cached(name="covar_cache")  # type: ignore[untyped-decorator]
def covar_cache(strategy: InterpolatedPredictionStrategy) -> Any:
    """Return K Wᵀ S on the grid, or a root of K - K Wᵀ S Sᵀ W K for samples, as GPyTorch does."""
    trained = _trained(strategy)
    if not isinstance(trained, InterpolatedKroneckerLinearOperator):
        return _their_covar_cache(strategy)
    root = strategy._exact_predictive_covar_inv_quad_form_cache(
        _inverse_root(strategy), strategy._last_test_train_covar
    )
    if not settings.fast_pred_samples.on():
        return None, _kept(root)
    inside = trained.base_linear_op + RootLinearOperator(root).mul(-1)
    return _kept(inside.root_decomposition().root.to_dense()), None


def inverse_quad_form_cache(
    strategy: InterpolatedPredictionStrategy, inverse_root: Tensor, test_train: LinearOperator
) -> Tensor:
    """Return K Wᵀ S on the grid; W is on the right of the covariance."""
    if isinstance(test_train, InterpolatedKroneckerLinearOperator):
        on_grid = test_train._scatter_right(inverse_root)
        return test_train.base_linear_op.matmul(on_grid)  # type: ignore[no-any-return]
    name = "_exact_predictive_covar_inv_quad_form_cache"
    return _theirs[name](strategy, inverse_root, test_train)  # type: ignore[no-any-return]


def inverse_quad_form_root(
    strategy: InterpolatedPredictionStrategy, on_grid: Tensor, test_train: LinearOperator
) -> Tensor:
    """Return W' times what is kept on the grid."""
    return _from_grid(test_train, on_grid)


# Predictions.


def exact_predictive_mean(
    strategy: InterpolatedPredictionStrategy, test_mean: Tensor, test_train: LinearOperator
) -> Tensor:
    """Return the mean at test points, (..., m), as GPyTorch's method."""
    if not strategy.uses_wiski and _by_points(strategy, test_train):
        found = _at_test_points(test_train, _kept_solution(strategy))
    else:
        if strategy.uses_wiski:
            on_grid = strategy.fantasy_mean_cache
        else:
            on_grid = _mean_on_grid(strategy, test_train)
        found = _from_grid(test_train, on_grid)
    return found.squeeze(-1) + test_mean


def exact_predictive_covar(
    strategy: InterpolatedPredictionStrategy, test_test: LinearOperator, test_train: LinearOperator
) -> LinearOperator:
    """Return the covariance at test points, (..., m, m), as GPyTorch's method."""
    samples = settings.fast_pred_samples.on()
    is_slow = not samples and settings.fast_pred_var.off()
    ours = isinstance(test_train, InterpolatedKroneckerLinearOperator)
    if is_slow or not ours or strategy.uses_wiski:
        return _theirs["exact_predictive_covar"](strategy, test_test, test_train)
    has_moved = _are_on_two_grids(strategy._last_test_train_covar, test_train)
    strategy._last_test_train_covar = test_train
    if not samples and _by_points(strategy, test_train):
        root = _at_test_points(test_train, _kept_inverse_root(strategy))
        return test_test + RootLinearOperator(root).mul(-1)
    on_grid = strategy.covar_cache[0 if samples else 1]
    if on_grid is None or has_moved:  # it was computed for the other one, or on another grid
        pop_from_cache(strategy, "covar_cache")
        on_grid = strategy.covar_cache[0 if samples else 1]
    root = strategy._exact_predictive_covar_inv_quad_form_root(on_grid, test_train)
    if samples:
        return RootLinearOperator(root)
    return test_test + RootLinearOperator(root).mul(-1)


REPLACEMENTS = [
    Replacement(InterpolatedPredictionStrategy, name, value)
    for name, value in {
        "mean_cache": property(mean_cache),
        "covar_cache": property(covar_cache),
        "_exact_predictive_covar_inv_quad_form_cache": inverse_quad_form_cache,
        "_exact_predictive_covar_inv_quad_form_root": inverse_quad_form_root,
        "exact_predictive_mean": exact_predictive_mean,
        "exact_predictive_covar": exact_predictive_covar,
    }.items()
]
"""What `accelerate` replaces in GPyTorch's predictions."""
