"""Ten thousand small systems at once, each with a matrix of its own, on a CPU or a GPU.

python examples/small_systems.py            # a hundred systems
python examples/small_systems.py 10000 cuda
"""

import sys
import time

import numpy as np

import batchkron as bk
from batchkron.operators import on_device
from batchkron.solvers import Cg

systems = int(sys.argv[1]) if len(sys.argv) > 1 else 100
device = sys.argv[2] if len(sys.argv) > 2 else "cpu"

# -Δ + c on a grid of 8 × 8 × 8, with another c in every direction and system
second = 2.0 * np.eye(8) - np.eye(8, k=1) - np.eye(8, k=-1)
shifts = np.random.default_rng(0).uniform(0.1, 2.0, (3, systems, 1, 1))
operator = bk.KroneckerSum([second + shift * np.eye(8) for shift in shifts]).to(device)

b = on_device(np.random.default_rng(1).standard_normal((systems, 512)), device)
solver = Cg(512, like=b, batched="leading")
solver.solve(operator, b, rtol=1e-8)  # kernels are compiled here, and memory is allocated
began = time.perf_counter()
result = solver.solve(operator, b, rtol=1e-8)
print(
    f"{systems} systems of 512 unknowns: {result.status}, {result.iterations.min()} to "
    f"{result.iterations.max()} iterations, largest residual {result.residual_norm.max():.1e}, "
    f"{1e3 * (time.perf_counter() - began):.1f} ms"
)
