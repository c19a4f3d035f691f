"""batchkron.linear_operator on a device: products, solves, and training steps of GPyTorch."""

import contextlib
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
    # of GPyTorch and linear_operator: iterations that do not converge, newer versions of torch
    pytest.mark.filterwarnings("ignore:CG terminated"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def gpytorch():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("gpytorch")


@pytest.fixture(scope="module")
def ours(gpytorch):
    import batchkron.linear_operator

    return batchkron.linear_operator


def definite(rng, n, dtype):
    root = torch.tensor(rng.standard_normal((n, n)), device="cuda")
    return (root @ root.mT / n + 0.5 * torch.eye(n, device="cuda")).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_products_and_solves(ours, rng, dtype):
    factors = [definite(rng, n, dtype) for n in (16, 24, 8)]
    K = ours.KroneckerProductLinearOperator(*factors)
    x = torch.tensor(rng.standard_normal((16 * 24 * 8, 5)), device="cuda", dtype=dtype)
    wide = [factor.double() for factor in factors]
    dense = torch.kron(torch.kron(wide[0], wide[1]), wide[2])
    eps = torch.finfo(dtype).eps
    expected = dense @ x.double()
    bound = 500 * eps * float(expected.abs().max())
    assert float(((K @ x).double() - expected).abs().max()) <= bound
    A = K.add_diagonal(torch.tensor(0.5, device="cuda", dtype=dtype))
    eye = torch.eye(len(dense), device="cuda", dtype=torch.float64)
    expected = torch.linalg.solve(dense + 0.5 * eye, x.double())
    bound = 5000 * eps * float(expected.abs().max())
    assert float((A.solve(x).double() - expected).abs().max()) <= bound


@pytest.mark.parametrize("interpolation", [True, False])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-4), (torch.float64, 1e-9)])
def test_a_training_step(gpytorch, ours, dtype, bound, interpolation):
    class Regression(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.RBFKernel(ard_num_dims=3)
            self.kernel = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.GridInterpolationKernel(kernel, grid_size=10, num_dims=3)
            )

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    torch.manual_seed(0)
    x = torch.rand(80, 3, dtype=torch.float64).to("cuda", dtype)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Regression(x, torch.sin(5 * x).sum(-1), likelihood).to("cuda", dtype)
    likelihood.noise = 2.0
    model.train()
    target = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    found = []
    for context in (contextlib.nullcontext(), ours.accelerate(interpolation=interpolation)):
        model.zero_grad()
        with (
            context,
            gpytorch.settings.max_cholesky_size(0),
            gpytorch.settings.cg_tolerance(0),
            gpytorch.settings.max_cg_iterations(8),
            gpytorch.settings.max_lanczos_quadrature_iterations(8),
        ):
            torch.manual_seed(1)
            loss = -target(model(x), model.train_targets)
            loss.backward()
        found.append([loss.detach(), *(one.grad.clone() for one in model.parameters())])
    largest = max(float(one.abs().max()) for one in found[0][1:])
    assert abs(float(found[0][0] - found[1][0])) <= bound * abs(float(found[0][0]))
    for one, other in zip(found[1][1:], found[0][1:], strict=True):
        assert float((one - other).abs().max()) <= bound * largest


@pytest.mark.parametrize("solver", ["cholesky", "iterations"])
@pytest.mark.parametrize("size", [5, 12])  # fewer points than a window has cells, and more
def test_predictions(gpytorch, ours, monkeypatch, size, solver):
    def stored(*arguments):
        raise AssertionError("windows are formed")

    monkeypatch.setattr(ours.InterpolatedKroneckerLinearOperator, "_stored", stored)
    dimensions = 2 if size == 12 else 4

    class Regression(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.GridInterpolationKernel(
                gpytorch.kernels.RBFKernel(), grid_size=size + 2, num_dims=dimensions
            )

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    torch.manual_seed(0)
    x = torch.rand(80, dimensions, dtype=torch.float64).to("cuda")
    others = torch.rand(9, dimensions, dtype=torch.float64).to("cuda") * 0.8 + 0.1
    found = []
    for context in (contextlib.nullcontext(), ours.accelerate()):
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = Regression(x, torch.sin(5 * x).sum(-1), likelihood).to("cuda", torch.float64)
        model.eval()
        torch.manual_seed(1)
        with (
            torch.no_grad(),
            context,
            gpytorch.settings.fast_pred_var(),
            gpytorch.settings.max_cholesky_size(800 if solver == "cholesky" else 0),
            gpytorch.settings.eval_cg_tolerance(1e-12),
            gpytorch.settings.max_cg_iterations(200),
        ):
            prediction = model(others)
            found.append((prediction.mean, prediction.variance))
    for one, expected in zip(found[1], found[0], strict=True):
        assert one.is_cuda
        assert float((one - expected).abs().max()) <= 1e-4 * float(expected.abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_long_toeplitz_factors(ours, rng, dtype):
    import linear_operator.operators as theirs

    columns = [torch.tensor(np.exp(-np.arange(n) / 9), device="cuda") for n in (600, 5)]
    exact = [theirs.ToeplitzLinearOperator(column).to_dense() for column in columns]
    x = torch.tensor(rng.standard_normal((3000, 4)), device="cuda")
    expected = torch.kron(*exact) @ x
    factors = [theirs.ToeplitzLinearOperator(column.to(dtype)) for column in columns]
    with ours.accelerate():
        found = theirs.KroneckerProductLinearOperator(*factors) @ x.to(dtype)
    bound = 500 * torch.finfo(dtype).eps * float(expected.abs().max())
    assert float((found.double() - expected).abs().max()) <= bound
