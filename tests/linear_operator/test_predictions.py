"""Predictions of GPyTorch's kernel interpolation within accelerate(): as GPyTorch's, and small."""

import contextlib

import numpy as np
import pytest
import torch

gpytorch = pytest.importorskip("gpytorch")

from gpytorch.models.exact_prediction_strategies import InterpolatedPredictionStrategy  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from batchkron.linear_operator import (  # noqa: E402
    InterpolatedKroneckerLinearOperator,
    accelerate,
    interpolated,
    products,
)
from batchkron.torch import interpolated as torch_interpolated  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:CG terminated"),
    # linear_operator's sparse matrices, with torch 2.14
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),
    pytest.mark.filterwarnings("ignore:torch.sparse.SparseTensor"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]

# Sizes of grids with more training points than cells of a window, and with fewer.
POINTS = 60
SIZES = {"on the grid": [9, 9], "at the points": [8, 8, 8]}
BOUNDS = {torch.float32: 1e-3, torch.float64: 1e-8}
ITERATED = 1e-4  # the accuracy at which conjugate gradients of linear_operator end
NOISE = 0.5


class Regression(gpytorch.models.ExactGP):
    """KISS-GP: a scaled RBF kernel with a length for each dimension, interpolated on a grid."""

    def __init__(self, x, y, likelihood, sizes, bounds=None):
        super().__init__(x, y, likelihood)
        dimensions = len(sizes)
        self.mean_module = gpytorch.means.ConstantMean()
        self.scaled = gpytorch.kernels.ScaleKernel(
            gpytorch.kernels.GridInterpolationKernel(
                gpytorch.kernels.RBFKernel(ard_num_dims=dimensions),
                grid_size=sizes,
                num_dims=dimensions,
                grid_bounds=bounds,
            )
        )

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.scaled(x))


def make(sizes, dtype=torch.float64, points=POINTS, **options):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(points, len(sizes), generator=generator, dtype=torch.float64) * 2 - 1
    y = torch.sin(3 * x).sum(-1) + 0.1 * torch.randn(points, generator=generator).double()
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Regression(x.to(dtype), y.to(dtype), likelihood, sizes, **options).to(dtype)
    likelihood.noise = NOISE
    model.scaled.outputscale = 1.3
    model.scaled.base_kernel.base_kernel.lengthscale = torch.linspace(0.6, 0.9, len(sizes))
    model.eval()
    return model


def others(sizes, count=11, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(count, len(sizes), generator=generator, dtype=torch.float64)
    return (x * 1.6 - 0.8).to(dtype)


@pytest.fixture
def nothing_stored(monkeypatch):
    """No windows of 4^N cells are formed."""

    def stored(*arguments):
        raise AssertionError("windows are formed")

    monkeypatch.setattr(InterpolatedKroneckerLinearOperator, "_stored", stored)


@contextlib.contextmanager
def settings(solver, fast=True, samples=False):
    with (
        gpytorch.settings.max_cholesky_size(800 if solver == "cholesky" else 0),
        gpytorch.settings.eval_cg_tolerance(1e-12),
        gpytorch.settings.max_cg_iterations(200),
        gpytorch.settings.fast_pred_var(fast),
        gpytorch.settings.fast_pred_samples(samples),
    ):
        yield


class Largest(TorchDispatchMode):
    """The most elements of 8 bytes of a dense tensor that an operation has returned."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for one in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(one, torch.Tensor) and one.layout is torch.strided:
                self.elements = max(self.elements, one.untyped_storage().nbytes() // 8)
        return found


def predicted(model, x, context):
    torch.manual_seed(5)
    with context:
        found = model(x)
        return found.mean, found.variance, found.covariance_matrix


def assert_close(found, expected, bound):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert float((one - other).abs().max()) <= bound * float(other.abs().max())


@pytest.mark.parametrize("way", list(SIZES))
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("solver", ["cholesky", "iterations"])
@pytest.mark.parametrize("dtype", list(BOUNDS), ids=str)
def test_mean_and_covariance(nothing_stored, dtype, solver, fast, way):
    sizes = SIZES[way]
    x = others(sizes, dtype=dtype)
    with torch.no_grad(), settings(solver, fast):
        theirs, model = make(sizes, dtype), make(sizes, dtype)
        for points in (x, x[:1]):  # the second time with what is kept
            expected = predicted(theirs, points, contextlib.nullcontext())
            bound = max(BOUNDS[dtype], ITERATED if solver == "iterations" else 0)
            assert_close(predicted(model, points, accelerate()), expected, bound)
        kept = {name for name, *_ in model.prediction_strategy._memoize_cache}
        assert ("mean_cache" in kept) == (way == "on the grid")


@pytest.mark.parametrize("way", list(SIZES))
@pytest.mark.parametrize("solver", ["cholesky", "iterations"])
def test_toeplitz_factors_by_transforms(nothing_stored, monkeypatch, solver, way):
    sizes, transformed = SIZES[way], torch_interpolated._transformed
    made = []

    def counted(*arguments):
        made.append(arguments)
        return transformed(*arguments)

    with torch.no_grad(), settings(solver):
        expected = predicted(make(sizes), others(sizes), contextlib.nullcontext())
        for module in (products, torch_interpolated):
            monkeypatch.setattr(module, "MIN_FFT_ROWS", 8)
        monkeypatch.setattr(torch_interpolated, "_transformed", counted)
        found = predicted(make(sizes), others(sizes), accelerate())
    assert_close(found, expected, 1e-8 if solver == "cholesky" else ITERATED)
    assert bool(made) == (way == "on the grid" or solver == "iterations")


@pytest.mark.parametrize("way", list(SIZES))
@pytest.mark.parametrize("probes", [1, 5])
def test_lanczos_begins_with_the_columns_of_gpytorch(nothing_stored, way, probes):
    """A root of rank 8 of a matrix of 60 rows depends on them."""
    sizes, found = SIZES[way], []
    for context in (contextlib.nullcontext(), accelerate()):
        with (
            torch.no_grad(),
            settings("iterations"),
            gpytorch.settings.fast_pred_var(True, probes),
            gpytorch.settings.max_root_decomposition_size(8),
        ):
            found.append(predicted(make(sizes), others(sizes), context))
    assert_close(found[1][:1], found[0][:1], ITERATED)
    assert_close(found[1][1:], found[0][1:], 1e-10)


@pytest.mark.parametrize("way", list(SIZES))
def test_samples(nothing_stored, way):
    """The covariance is a root's on the grid; then that without samples, and again."""
    sizes, found = SIZES[way], []
    for context in (contextlib.nullcontext, accelerate):
        model = make(sizes)
        with torch.no_grad():
            for samples in (True, False, True):
                with settings("cholesky", samples=samples):
                    found.append(predicted(model, others(sizes), context()))
    for one, expected in zip(found[3:], found[:3], strict=True):
        assert_close(one, expected, 1e-4)  # GPyTorch's root has a jitter of 1e-6, relative to 1


@pytest.mark.parametrize("way", list(SIZES))
@pytest.mark.parametrize("detach", [True, False])
def test_gradients(way, detach):
    """Of test points and hyperparameters; what is kept has none if GPyTorch detaches it."""
    sizes, found = SIZES[way], []
    for context in (contextlib.nullcontext(), accelerate()):
        model, x = make(sizes), others(sizes).requires_grad_()
        with settings("cholesky"), gpytorch.settings.detach_test_caches(detach), context:
            prediction = model(x)
            total = (prediction.mean**2).sum() + (prediction.variance**2).sum()
        total.backward()
        given = [x, *model.parameters()]
        found.append([torch.zeros(1) if one.grad is None else one.grad for one in given])
    largest = max(float(one.abs().max()) for one in found[0])
    for one, other in zip(found[1], found[0], strict=True):
        assert float((one - other).abs().max()) <= 1e-6 * largest


@pytest.mark.parametrize("way", list(SIZES))
@pytest.mark.parametrize("first", ["inside", "outside"])
def test_contexts_that_begin_or_end_between_predictions(way, first):
    sizes, x = SIZES[way], others(SIZES[way])
    with torch.no_grad(), settings("cholesky"):
        expected = predicted(make(sizes), x, contextlib.nullcontext())
        model = make(sizes)
        contexts = [accelerate(), contextlib.nullcontext()]
        for context in contexts if first == "inside" else contexts[::-1]:
            assert_close(predicted(model, x, context), expected, 1e-8)


@pytest.mark.parametrize("way", list(SIZES))
@pytest.mark.parametrize("fast", [True, False])
def test_test_points_in_the_outermost_interval(way, fast):
    """Their windows are GPyTorch's, those of the training points are not."""
    sizes = SIZES[way]
    x = others(sizes)
    x[0, 0], x[1, -1] = 1.39, -1.38
    given = {"bounds": [(-1.4, 1.4)] * len(sizes)}
    with torch.no_grad(), settings("cholesky", fast):
        expected = predicted(make(sizes, **given), x, contextlib.nullcontext())
        # a grid with given bounds is equidistant to single precision
        assert_close(predicted(make(sizes, **given), x, accelerate()), expected, 1e-5)


@pytest.mark.parametrize("way", list(SIZES))
@pytest.mark.parametrize("samples", [True, False])
@pytest.mark.parametrize("fast", [True, False])
def test_several_labels_of_the_same_points(monkeypatch, fast, samples, way):
    """Means have a batch, and the covariance of the points has none."""
    sizes, found = SIZES[way], []
    monkeypatch.setattr(interpolated, "_MAX_ENTRIES", 4 * POINTS)  # of eleven rows
    for context in (contextlib.nullcontext(), accelerate()):
        model = make(sizes)
        model.mean_module = gpytorch.means.ConstantMean(batch_shape=torch.Size([3])).double()
        y = model.train_targets
        model.set_train_data(targets=torch.stack([y, 2 * y, y**2]), strict=False)
        with torch.no_grad(), settings("cholesky", fast, samples):
            found.append(predicted(model, others(sizes), context))
    assert found[0][0].shape == (3, 11)
    # GPyTorch's root has a jitter of 1e-6, relative to 1
    assert_close(found[1], found[0], 1e-4 if samples else 1e-8)


def test_rows_in_shares(monkeypatch):
    sizes = SIZES["at the points"]
    x = others(sizes)
    with torch.no_grad(), settings("cholesky"):
        expected = predicted(make(sizes), x, accelerate())
        monkeypatch.setattr(interpolated, "_MAX_ENTRIES", 4 * POINTS)  # of eleven rows
        assert_close(predicted(make(sizes), x, accelerate()), expected, 1e-12)


@pytest.mark.filterwarnings("ignore:A not p.d.")  # GPyTorch's matrix
@pytest.mark.parametrize("way", list(SIZES))
def test_fantasies(way):
    """Predictions after more data, which GPyTorch makes of a matrix of its own."""
    sizes, found = SIZES[way], []
    x, more = others(sizes), others(sizes, 3) * 0.5
    for context in (contextlib.nullcontext(), accelerate()):
        model = make(sizes)
        with torch.no_grad(), settings("cholesky"), context:
            model(x)
            model = model.get_fantasy_model(more, more.sum(-1))
            found.append(predicted(model, x, contextlib.nullcontext()))
    assert_close(found[1], found[0], 1e-4)  # it adds a jitter


def test_all_is_restored():
    before = dict(vars(InterpolatedPredictionStrategy))
    with accelerate():
        assert dict(vars(InterpolatedPredictionStrategy)) != before
        with accelerate(interpolation=False):
            pass
    assert dict(vars(InterpolatedPredictionStrategy)) == before
    with accelerate(interpolation=False):
        assert dict(vars(InterpolatedPredictionStrategy)) == before


@pytest.mark.parametrize("way", list(SIZES))
def test_memory(way):
    """The largest array is a vector on the grid for each training point, or there is none."""
    sizes, elements = SIZES[way], []
    for context in (contextlib.nullcontext(), accelerate()):
        with torch.no_grad(), settings("cholesky"), Largest() as largest:
            predicted(make(sizes), others(sizes), context)
        elements.append(largest.elements)
    wanted = POINTS * (np.prod(sizes) if way == "on the grid" else POINTS)
    assert elements[1] <= wanted
    assert elements[0] >= 4 * wanted


def covariance(x, y, lengths, axes, scale):
    """W K W'ᵀ entry by entry: interpolation in each dimension by Keys' kernel (1981).

    K is as GPyTorch has it: the matrices of the dimensions in reverse.
    """

    def weights(points, axis):
        distance = np.abs(points[:, None] - axis) / (axis[1] - axis[0])
        near = (1.5 * distance - 2.5) * distance**2 + 1
        far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
        return np.where(distance < 1, near, np.where(distance < 2, far, 0))

    found = np.full((len(x), len(y)), scale)
    for k, axis in enumerate(axes):
        other, length = axes[-1 - k], lengths[-1 - k]
        kernel = np.exp(-0.5 * ((other[:, None] - other) / length) ** 2)
        found *= weights(x[:, k], axis) @ kernel @ weights(y[:, k], axis).T
    return found


@pytest.mark.parametrize("solver", ["cholesky", "iterations"])
@pytest.mark.parametrize("fast", [True, False])
def test_few_points_in_six_dimensions(nothing_stored, fast, solver):
    """A grid of 16^6, on which GPyTorch keeps a vector of 128 MiB for each training point."""
    sizes, bounds = [16] * 6, [(-1.640625, 1.640625)] * 6  # steps of 0.25, also in single precision
    model, test = make(sizes, points=40, bounds=bounds), others(sizes)
    with torch.no_grad(), settings(solver, fast), Largest() as largest:
        mean, variance, _ = predicted(model, test, accelerate())
    assert 40 * 40 <= largest.elements <= 1 << 16
    x, y = model.train_inputs[0].numpy(), model.train_targets.numpy()
    lengths = model.scaled.base_kernel.base_kernel.lengthscale.detach().numpy()[0]
    axes = [axis.numpy() for axis in model.scaled.base_kernel.grid]
    known = lengths, axes, model.scaled.outputscale.item()
    noise = model.likelihood.noise.item() * np.eye(40)
    bound = 1e-9 if solver == "cholesky" else ITERATED
    inverse = np.linalg.inv(covariance(x, x, *known) + noise)
    between = covariance(test.numpy(), x, *known)
    np.testing.assert_allclose(mean, between @ inverse @ y, rtol=0, atol=bound)
    expected = covariance(test.numpy(), test.numpy(), *known) - between @ inverse @ between.T
    np.testing.assert_allclose(variance, np.diag(expected), rtol=0, atol=bound)


def axes_for(sizes, points):
    """The grid that GPyTorch chooses for points."""
    model = make(sizes)
    model.scaled(points).evaluate_kernel()
    return [axis.numpy() for axis in model.scaled.base_kernel.grid]


@pytest.mark.parametrize("way", list(SIZES))
@pytest.mark.parametrize("before", [False, True], ids=["at once", "after others"])
def test_a_grid_that_test_points_move(nothing_stored, way, before):
    """GPyTorch chooses another grid for points outside; what is kept is of the one before.

    It evaluates the covariance of the test points on a grid of their own.
    """
    sizes = [2 * size for size in SIZES[way]]
    model, test = make(sizes), others(sizes)
    test[0, 0] = 1.1
    x, y = model.train_inputs[0], model.train_targets.numpy()
    with torch.no_grad(), settings("cholesky"), accelerate():
        if before:
            predicted(model, others(sizes), contextlib.nullcontext())
        mean, variance, _ = predicted(model, test, contextlib.nullcontext())
        trained, both, alone = (axes_for(sizes, one) for one in (x, torch.cat([x, test]), test))
    assert both[0][-1] > trained[0][-1]
    x, test = x.numpy(), test.numpy()
    lengths = model.scaled.base_kernel.base_kernel.lengthscale.detach().numpy()[0]
    scale = model.scaled.outputscale.item()
    noise = model.likelihood.noise.item() * np.eye(POINTS)
    inverse = np.linalg.inv(covariance(x, x, lengths, trained, scale) + noise)
    between = covariance(test, x, lengths, both, scale)
    np.testing.assert_allclose(mean, between @ inverse @ y, rtol=0, atol=1e-9)
    expected = covariance(test, test, lengths, alone, scale) - between @ inverse @ between.T
    np.testing.assert_allclose(variance, np.diag(expected), rtol=0, atol=1e-9)
