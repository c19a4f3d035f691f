"""A Gaussian process fitted to scattered points, by products with its covariance alone.

python examples/gaussian_process.py          # five hundred points
python examples/gaussian_process.py 20000
"""

import sys

import numpy as np
from scipy.optimize import minimize

import batchkron as bk
from batchkron.solvers import cg, logdet_slq

count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
rng = np.random.default_rng(0)
points, others = rng.random((count, 2)), rng.random((200, 2))


def truth(p):
    return np.sin(6 * p[:, 0]) * np.cos(4 * p[:, 1]) + p[:, 0]


y = truth(points) + 0.1 * rng.standard_normal(count)
probes = rng.choice([-1.0, 1.0], (8, count))  # the same in all steps
grid = bk.RegularGrid(0.0, 1.0, sizes=(32, 32))
squares = [(x - x[0]) ** 2 for x in grid.axes]
K = bk.InterpolatedKronecker(points, grid, squares)  # the windows of the points are kept


def set_kernel(parameters):
    """A Gaussian kernel: Toeplitz factors by their first columns, and the noise."""
    *lengths, signal, noise = np.exp(parameters)
    columns = [np.exp(-s / (2 * h**2)) for s, h in zip(squares, lengths, strict=True)]
    columns[0] *= signal
    K.update(factors=columns, noise=noise)
    return columns, lengths, noise


def objective(parameters):
    """-log p(y) without its constant, ½ yᵀ K⁻¹ y + ½ log det K, and its gradient."""
    columns, lengths, noise = set_kernel(parameters)
    solved = cg(K, np.vstack([y, probes]), rtol=1e-6, batched="leading").x
    value = (y @ solved[0] + logdet_slq(K, probes=probes).logdet) / 2
    left, gradient = np.vstack([solved[0], probes]), []
    for k in range(3):  # the derivatives by both lengths and by the signal
        changed = list(columns)
        if k < 2:
            changed[k] = columns[k] * squares[k] / lengths[k] ** 2
        K.update(factors=changed, noise=0.0)
        gradient.append((left * K.apply(solved)).sum(axis=1))
    gradient = np.array([*gradient, noise * (left * solved).sum(axis=1)])
    return value, (gradient[:, 1:].mean(axis=1) - gradient[:, 0]) / 2


start = np.log([0.5, 0.5, 1.0, 0.1])
fit = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 30})
set_kernel(fit.x)
mean = K.cross(others) @ cg(K, y, rtol=1e-8).x
print("lengths {:.3f}, {:.3f}, signal {:.2f}, noise {:.4f}".format(*np.exp(fit.x)))
print(f"error at 200 other points {np.sqrt(np.mean((mean - truth(others)) ** 2)):.4f} (rms)")
