"""GPyTorch's kernel interpolation within accelerate(): losses, gradients, predictions."""

import contextlib
import gc

import pytest
import torch

gpytorch = pytest.importorskip("gpytorch")

from linear_operator.operators import InterpolatedLinearOperator  # noqa: E402

import batchkron as bk  # noqa: E402
from batchkron.linear_operator import (  # noqa: E402
    InterpolatedKroneckerLinearOperator,
    accelerate,
    kernel_interpolation,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:CG terminated"),
    # linear_operator's sparse matrices, with torch 2.14
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),
    pytest.mark.filterwarnings("ignore:torch.sparse.SparseTensor"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]
BOUNDS = {torch.float32: 1e-4, torch.float64: 1e-9}


class Regression(gpytorch.models.ExactGP):
    """KISS-GP: a scaled RBF kernel with a length for each dimension, interpolated on a grid."""

    def __init__(self, x, y, likelihood, sizes, bounds=None, transform=None):
        super().__init__(x, y, likelihood)
        dimensions = len(sizes)
        self.mean_module = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.GridInterpolationKernel(
            gpytorch.kernels.RBFKernel(ard_num_dims=dimensions),
            grid_size=sizes,
            num_dims=dimensions,
            grid_bounds=bounds,
        )
        self.scaled = gpytorch.kernels.ScaleKernel(self.kernel)
        self.transform = transform or torch.nn.Identity()

    def forward(self, x):
        features = self.transform(x)
        mean, covariance = self.mean_module(x), self.scaled(features)
        return gpytorch.distributions.MultivariateNormal(mean, covariance)


def make(dtype=torch.float64, dimensions=3, points=60, **options):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(points, dimensions, generator=generator, dtype=torch.float64) * 2 - 1
    y = torch.sin(3 * x).sum(-1) + 0.1 * torch.randn(points, generator=generator).double()
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    sizes = options.pop("sizes", [8] * dimensions)
    model = Regression(x.to(dtype), y.to(dtype), likelihood, sizes, **options).to(dtype)
    likelihood.noise = 2.0  # so much that ten iterations do not enlarge roundings a thousand times
    model.kernel.base_kernel.lengthscale = torch.linspace(0.4, 0.8, len(sizes))
    return model


@contextlib.contextmanager
def settings(solver, toeplitz):
    iterate = solver != "cholesky"
    with (
        gpytorch.settings.max_cholesky_size(0 if iterate else 800),
        gpytorch.settings.use_toeplitz(toeplitz),
        gpytorch.settings.cg_tolerance(0),
        gpytorch.settings.max_cg_iterations(10),
        gpytorch.settings.max_lanczos_quadrature_iterations(10),
        gpytorch.settings.min_preconditioning_size(10 if solver == "preconditioned" else 2000),
    ):
        yield


def step(model, context):
    """The loss of a training step, and its gradients."""
    model.train()
    model.zero_grad()
    target = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    with context:
        torch.manual_seed(2)
        loss = -target(model(*model.train_inputs), model.train_targets)
        loss.backward()
    return loss.detach(), [one.grad.clone() for one in model.parameters()]


def assert_close(found, expected, bound):
    """Within a bound relative to the loss, and to the largest gradient."""
    assert abs(found[0] - expected[0]) <= bound * abs(expected[0])
    largest = max(float(one.abs().max()) for one in expected[1])
    for one, other in zip(found[1], expected[1], strict=True):
        assert float((one - other).abs().max()) <= bound * largest


@pytest.fixture
def covariances(monkeypatch):
    """The covariances that kernels make within the context."""
    made = []

    def noted(base, *windows):
        made.append(operator(base, *windows))
        return made[-1]

    operator = kernel_interpolation.operator
    monkeypatch.setattr(kernel_interpolation, "operator", noted)
    return made


@pytest.mark.parametrize("interpolation", [True, False])
@pytest.mark.parametrize("toeplitz", [True, False])
@pytest.mark.parametrize("solver", ["cholesky", "conjugate gradients"])
@pytest.mark.parametrize("dtype", list(BOUNDS), ids=str)
def test_a_training_step(covariances, dtype, solver, toeplitz, interpolation):
    model = make(dtype)
    with settings(solver, toeplitz):
        expected = step(model, contextlib.nullcontext())
        assert not covariances
        found = step(model, accelerate(interpolation=interpolation))
        assert_close(found, expected, BOUNDS[dtype])
        if interpolation:
            assert {type(one) for one in covariances} == {InterpolatedKroneckerLinearOperator}
        else:
            assert not covariances


@pytest.mark.parametrize("sizes", [[9], [12, 7], [6, 6, 6, 6]])
def test_other_dimensions(sizes):
    model = make(dimensions=len(sizes), sizes=sizes)
    with settings("conjugate gradients", True):
        expected = step(model, contextlib.nullcontext())
        assert_close(step(model, accelerate()), expected, BOUNDS[torch.float64])


@pytest.mark.parametrize("solver", ["cholesky", "conjugate gradients"])
@pytest.mark.parametrize("size", [512, 600])
def test_long_axes(covariances, solver, size):
    """Toeplitz matrices of 512 rows and more are multiplied by transforms."""
    model = make(dimensions=1, sizes=[size])
    model.kernel.base_kernel.lengthscale = 0.5
    with settings(solver, True):
        expected = step(model, contextlib.nullcontext())
        assert_close(step(model, accelerate()), expected, BOUNDS[torch.float64])
    assert {type(one) for one in covariances} == {InterpolatedKroneckerLinearOperator}


def test_a_preconditioner(covariances):
    """Its pivots are entries that are equal but for rounding: another estimate of the same loss."""
    model = make()
    with settings("cholesky", True):
        exact = step(model, contextlib.nullcontext())
    with settings("preconditioned", True), gpytorch.settings.num_trace_samples(400):
        found = step(model, accelerate())
    assert covariances
    assert_close(found, exact, 0.05)


def test_two_steps_of_an_optimizer():
    """The second step has another kernel, the same points and the windows of the first one."""
    models = [make(), make()]
    losses = []
    for model, context in zip(models, (contextlib.nullcontext(), accelerate()), strict=True):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        target = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        model.train()
        with context:
            for _ in range(3):
                optimizer.zero_grad()
                loss = -target(model(*model.train_inputs), model.train_targets)
                loss.backward()
                optimizer.step()
        losses.append(loss.item())
    assert abs(losses[0] - losses[1]) < 1e-9 * abs(losses[0])
    assert len(kernel_interpolation._kept[models[1].kernel]) == 1


def test_other_points_of_the_same_memory_and_version():
    """As a network's results in each step may have; values decide which windows they have."""
    kernel = make().kernel
    grid, points = bk.RegularGrid(-1.0, 1.0, (5, 6, 7)), torch.zeros(4, 3, dtype=torch.float64)
    first = kernel_interpolation._Unformed(kernel, points, grid).interpolation()
    version = points._version
    assert kernel_interpolation._Unformed(kernel, points.clone(), grid).interpolation() is first
    points.data.fill_(0.5)
    assert points._version == version
    second = kernel_interpolation._Unformed(kernel, points, grid).interpolation()
    assert second is not first
    assert (second.points == 0.5).all()
    assert (first.points == 0).all()


def test_windows_go_with_the_kernel():
    gc.collect()
    before = len(kernel_interpolation._kept)
    model = make()
    step(model, accelerate())
    assert len(kernel_interpolation._kept) == before + 1
    del model
    gc.collect()
    assert len(kernel_interpolation._kept) == before


@pytest.mark.parametrize("fast", [True, False])
def test_predictions(covariances, fast):
    others = torch.rand(11, 3, dtype=torch.float64) * 1.6 - 0.8
    found = []
    for context in (contextlib.nullcontext(), accelerate()):
        model = make()
        model.eval()
        with context, torch.no_grad(), gpytorch.settings.fast_pred_var(fast):
            prediction = model(others)
            found.append((prediction.mean, prediction.variance))
    assert any(type(one) is InterpolatedKroneckerLinearOperator for one in covariances)
    for one, expected in zip(found[1], found[0], strict=True):
        assert torch.allclose(one, expected, rtol=1e-6, atol=1e-8)


def cases():
    return {
        "points in the outermost interval": {"bounds": [(-1.0, 1.0)] * 3},
        "sizes that differ": {"sizes": [7, 8, 9]},
        "an axis that falls": {"sizes": [4, 4, 4]},
        "a short axis": {"sizes": [8, 8, 3], "bounds": [(-9.0, 9.0)] * 3},
    }


@pytest.mark.parametrize("case", list(cases()))
def test_left_to_gpytorch(covariances, case):
    torch.manual_seed(0)
    model = make(**cases()[case])
    try:
        expected = step(model, contextlib.nullcontext())
    except Exception as error:
        with pytest.raises(type(error)):
            step(model, accelerate())
        return
    assert_close(step(model, accelerate()), expected, BOUNDS[torch.float64])
    assert {type(one) for one in covariances} == {InterpolatedLinearOperator}


@pytest.mark.parametrize("solver", ["cholesky", "conjugate gradients"])
@pytest.mark.parametrize("dtype", list(BOUNDS), ids=str)
def test_points_behind_a_network(covariances, dtype, solver):
    """They have gradients, and are others in each step."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    model = make(dtype, sizes=[9, 9], transform=network)
    with settings(solver, True):
        expected = step(model, contextlib.nullcontext())
        found = step(model, accelerate())
        assert_close(found, expected, BOUNDS[dtype])
        with torch.no_grad():
            network[0].bias += 0.3
        assert_close(
            step(model, accelerate()), step(model, contextlib.nullcontext()), BOUNDS[dtype]
        )
    assert {type(one) for one in covariances} == {InterpolatedKroneckerLinearOperator}
    assert all(one.left_points is not None for one in covariances)


def test_batches_of_points_are_left_to_gpytorch(covariances):
    kernel = make().kernel
    x = torch.rand(2, 5, 3, dtype=torch.float64)
    expected = kernel(x).to_dense()
    with accelerate():
        assert torch.allclose(kernel(x).to_dense(), expected, rtol=1e-12)
    assert {type(one) for one in covariances} == {InterpolatedLinearOperator}


def test_all_is_restored():
    from gpytorch.kernels import GridInterpolationKernel, grid_interpolation_kernel

    def methods():
        return [GridInterpolationKernel._compute_grid, GridInterpolationKernel.forward]

    before = methods()
    ours = [kernel_interpolation.compute_grid, kernel_interpolation.forward]
    with accelerate(), accelerate(interpolation=False):
        assert methods() == ours
    with accelerate(interpolation=False):
        assert methods() == before
    assert methods() == before
    assert grid_interpolation_kernel.InterpolatedLinearOperator is InterpolatedLinearOperator


def test_a_subclass_that_uses_the_windows(covariances):
    class Halved(gpytorch.kernels.GridInterpolationKernel):
        def _compute_grid(self, inputs, last_dim_is_batch=False):
            indices, values = super()._compute_grid(inputs, last_dim_is_batch)
            return indices, values * 0.5

    kernel = Halved(gpytorch.kernels.RBFKernel(), 8, num_dims=2, grid_bounds=[(-2.0, 2.0)] * 2)
    x = torch.rand(5, 2)
    expected = kernel(x).to_dense()
    with accelerate():
        assert torch.allclose(kernel(x).to_dense(), expected, rtol=1e-6)
    assert {type(one) for one in covariances} == {InterpolatedLinearOperator}


@pytest.mark.parametrize("begins", ["inside", "outside"])
def test_a_context_that_ends_or_begins_within_a_call(begins):
    """As one of another thread may."""
    kernel = make(dimensions=2, bounds=[(-2.0, 2.0)] * 2).kernel
    x, y = torch.rand(5, 2).double(), torch.rand(4, 2).double()
    expected = kernel(x, y).to_dense()
    before = kernel._inducing_forward
    with contextlib.ExitStack() as stack:

        def changed(**options):
            if begins == "inside":
                stack.close()
            else:
                stack.enter_context(accelerate())
            return before(**options)

        kernel._inducing_forward = changed
        if begins == "inside":
            stack.enter_context(accelerate())
        lazy = kernel(x, y)
        assert torch.allclose(lazy.to_dense(), expected, rtol=1e-9)


def test_second_derivatives_of_a_prediction():
    point = torch.tensor([[0.3, -0.2]], dtype=torch.float64)
    found = []
    for context in (contextlib.nullcontext(), accelerate()):
        model = make(dimensions=2, bounds=[(-2.0, 2.0)] * 2)
        model.eval()
        with context:
            hessian = torch.autograd.functional.hessian(lambda z, m=model: m(z).mean.sum(), point)
        found.append(hessian.reshape(2, 2))
    assert float(found[0].abs().max()) > 0.1
    assert torch.allclose(found[1], found[0], rtol=1e-5, atol=1e-7)
