"""Training steps of GPyTorch: ``python -m benchmarks.gaussian_processes [--device cuda]``.

Four ways take turns: "GPyTorch" as it is; "product", with Kronecker products by our kernels;
"interpolated", which forms no interpolation matrix, either; "bound", where a Kronecker product
returns its operand: no product can do better, but it learns nothing. benchmarks/README.md has more.
"""

import argparse
import sys
import warnings
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import product
from time import perf_counter
from typing import NamedTuple
from unittest import mock

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of linear_operator 0.6 with torch 2.14
    import gpytorch
    from linear_operator.operators import KroneckerProductLinearOperator

from batchkron.linear_operator import accelerate
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, recorded
from benchmarks.core.timing import medians
from benchmarks.torch_layers import synchronize

TRAINED = 0.64  # share of the points that the paper's program trains with
MAX_ENTRIES = {"cpu": 1 << 27, "cuda": 1 << 31}  # of an interpolation matrix that is formed
TOLERANCE = {"float32": 1e-3, "float64": 1e-6}  # of losses: iterations enlarge rounding errors
HIDDEN = (1000, 500, 50)  # widths of the network before the kernel


class Case(NamedTuple):
    """A data set of Table 5: points, P^N, and the published ratios of SKI, SKIP and LOVE, 1 GPU."""

    points: int
    size: int
    dimensions: int
    published: tuple[float, ...] = ()


CASES = {
    "autompg 8^7": Case(392, 8, 7, (1.1, 1.1, 1.2)),
    "kin40k 8^8": Case(40_000, 8, 8, (1.5, 1.3, 1.2)),
    "airfoil 16^5": Case(1503, 16, 5, (1.1, 1.1, 1.3)),
    "yacht 16^6": Case(308, 16, 6, (1.8, 1.7, 1.9)),
    "servo 32^4": Case(167, 32, 4, (1.1, 1.1, 1.2)),
    "airfoil 32^5": Case(1503, 32, 5, (1.8, 1.8, 1.8)),
    "3droad 64^3": Case(434_874, 64, 3, (1.1, 1.1, 1.2)),
    "servo 64^4": Case(167, 64, 4, (2.1, 2.0, 2.2)),
    "20000: 8^5": Case(31_250, 8, 5),
    "20000: 16^5": Case(31_250, 16, 5),
    "20000: 32^4": Case(31_250, 32, 4),
}
QUICK = {"quick 6^3": Case(150, 6, 3), "quick 8^2": Case(100, 8, 2)}


class Regression(gpytorch.models.ExactGP):
    """KISS-GP with a length for each dimension; for LOVE behind a neural network."""

    def __init__(self, x, y, likelihood, case, model):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        kernel = gpytorch.kernels.RBFKernel(ard_num_dims=case.dimensions)
        grid = gpytorch.kernels.GridInterpolationKernel
        made = grid(kernel, grid_size=case.size, num_dims=case.dimensions)
        self.covar_module = gpytorch.kernels.ScaleKernel(made)
        self.features = network(case.dimensions) if model == "LOVE" else None

    def forward(self, x):
        place = x if self.features is None else self.features(x)
        return gpytorch.distributions.MultivariateNormal(
            self.mean_module(place), self.covar_module(place)
        )


def network(dimensions):
    widths = [dimensions, *HIDDEN, dimensions]
    layers = []
    for k in range(len(widths) - 1):
        layers += [torch.nn.Linear(widths[k], widths[k + 1]), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1], gpytorch.utils.grid.ScaleToBounds(-1.0, 1.0))


@contextmanager
def without_products():
    """Kronecker products return their operands, and their gradients are zeros."""

    def no_gradient(product, left, right):
        return tuple(torch.zeros_like(one) for one in product.representation())

    nothing = dict.fromkeys(("_matmul", "_t_matmul"), lambda product, rhs: rhs)
    with mock.patch.multiple(
        KroneckerProductLinearOperator, **nothing, _bilinear_derivative=no_gradient
    ):
        yield


WAYS = {
    "GPyTorch": nullcontext,
    "product": lambda: accelerate(interpolation=False),
    "interpolated": accelerate,
    "bound": without_products,
}


class Training:
    """A model and its optimizer, one step at a time."""

    def __init__(self, case, model, way, options, dtype):
        torch.manual_seed(0)
        made = {"device": options.device, "dtype": dtype}
        count = max(1, round(TRAINED * case.points))
        x = torch.rand(count, case.dimensions, dtype=torch.float64).mul(2).sub(1).to(**made)
        y = torch.sin(3 * x).sum(-1)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood().to(**made)
        self.model = Regression(x, y, self.likelihood, case, model).to(**made)
        self.target = gpytorch.mlls.ExactMarginalLogLikelihood(self.likelihood, self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.model.train()
        self.x, self.y, self.context, self.device = x, y, WAYS[way], options.device
        self.steps = 0

    def step(self):
        """Return the seconds and the loss of a step, whose probe vectors are the same for all."""
        torch.manual_seed(1 + self.steps)
        self.steps += 1
        synchronize(self.device)
        began = perf_counter()
        with self.context():
            self.optimizer.zero_grad()
            loss = -self.target(self.model(self.x), self.y)
            loss.backward()
            self.optimizer.step()
            synchronize(self.device)
        return perf_counter() - began, loss.item()


def settings():
    """Iterations and probe vectors; with GPyTorch's preconditioner losses would differ."""
    stack = ExitStack()
    for one in (
        gpytorch.settings.cg_tolerance(0),
        gpytorch.settings.max_cg_iterations(10),
        gpytorch.settings.max_lanczos_quadrature_iterations(10),
        gpytorch.settings.num_trace_samples(16),
        gpytorch.settings.use_toeplitz(False),
        gpytorch.settings.max_cholesky_size(0),
        gpytorch.settings.max_preconditioner_size(0),
    ):
        stack.enter_context(one)
    return stack


def measure(name, case, model, dtype, options):
    published = dict(zip(("SKI", "SKIP", "LOVE"), case.published, strict=False))
    trained, losses, remarks = round(TRAINED * case.points), {}, []
    entries = trained * 4**case.dimensions
    trainings, seconds = {}, {}
    for way in WAYS:
        if way != "interpolated" and entries > MAX_ENTRIES[options.device]:
            remarks.append(f"{way}: an interpolation matrix of {entries:.1e} entries")
            continue
        try:
            training = Training(case, model, way, options, getattr(torch, dtype))
            losses[way] = training.step()[1]
        except (RuntimeError, MemoryError) as error:  # out of memory: named and left out
            remarks.append(f"{way}: {type(error).__name__}")
            continue
        trainings[way], seconds[way] = training, []
    ways = list(trainings)
    for turn in range(options.epochs - 1):
        for k in range(len(ways)):
            way = ways[(turn + k) % len(ways)]
            elapsed, losses[way] = trainings[way].step()
            seconds[way].append(elapsed)
    times = {way: 1e3 * time for way, time in medians(seconds).items()}
    row = {"case": name, "model": model, "dtype": dtype, "trained": trained}
    row |= {"published": published, "milliseconds": times, "losses": losses}
    return {**row, "remarks": remarks + comparisons(row)}


def comparisons(row):
    said, times, losses = [], row["milliseconds"], row["losses"]
    for way in ("product", "interpolated", "bound"):
        if "GPyTorch" in times and way in times:
            said.append(f"GPyTorch / {way}: {times['GPyTorch'] / times[way]:.2f}")
    for way in ("product", "interpolated"):
        if "GPyTorch" in losses and way in losses:
            expected = losses["GPyTorch"]
            difference = abs(losses[way] - expected) / max(abs(expected), 1e-3)
            if not difference <= TOLERANCE[row["dtype"]]:
                said.append(f"{way}: the loss differs by {difference:.1e}")
    return said


def add_dtypes_and_epochs(parser, epochs):
    def count(text):
        if int(text) < 2:
            raise argparse.ArgumentTypeError("must be 2 or more: the first step is not timed")
        return int(text)

    parser.add_argument("--dtypes", nargs="+", choices=["float32", "float64"], default=["float32"])
    about = "steps; the first is not timed"
    parser.add_argument("--epochs", type=count, default=epochs, help=about)


def main(arguments=None):
    parser = parser_of(__doc__, "device", "quick", "json")
    add = parser.add_argument
    add("--cases", nargs="+", choices=[*CASES, *QUICK], default=list(CASES))
    add("--models", nargs="+", choices=["SKI", "LOVE"], default=["SKI"])
    add_dtypes_and_epochs(parser, 10)
    options = parser.parse_args(arguments)
    chosen = {**CASES, **QUICK}
    names = list(QUICK) if options.quick else options.cases
    print(f"torch {torch.__version__}, GPyTorch {gpytorch.__version__} on {options.device}")
    print("SKIP: the paper's program runs SKI unchanged, so its column is beside SKI's")
    about = {"machine": machine(options.device), "device": options.device}
    cells = product(names, options.models, options.dtypes)
    measured = (measure(name, chosen[name], *how, options) for name, *how in cells)
    with warnings.catch_warnings(), settings():
        warnings.simplefilter("ignore")  # of GPyTorch: iterations end before they converge
        rows = recorded(measured, options.json, about, "rows")
    if any("differs" in remark for row in rows for remark in row["remarks"]):
        sys.exit("losses differ")


if __name__ == "__main__":
    main()
