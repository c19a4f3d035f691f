"""Thousands of small Kronecker products at once, from a pool, summed into the blocks they share.

y[outputs[b]] += weights[b] (A_b1 ⊗ A_b2 ⊗ A_b3) x[inputs[b]], checked against the dense products.
"""

import numpy as np

import batchkron as bk

rng = np.random.default_rng(0)
products, blocks, n, modes = 5000, 200, 4, 3
pool = rng.standard_normal((30, n, n))  # thirty matrices, for all modes
ids = rng.integers(30, size=(products, modes))
inputs, outputs = rng.integers(blocks, size=(2, products))
op = bk.BatchedKron(
    pool, ids, inputs, outputs,
    weights=rng.standard_normal(products), num_inputs=blocks, num_outputs=blocks,
)  # fmt: skip
print(op.describe())

x = rng.standard_normal((blocks, n**modes))
y = op.apply(x)  # a new array
op.accumulate(x, y)  # adds; apply(x, out=y) overwrites; neither allocates anything
print(f"twice the product: {np.allclose(y.ravel(), 2 * (op @ x.ravel()))}")

report = op.validate(samples=50)  # some blocks, against dense Kronecker products
print(f"{report.samples} blocks compared, error {report.max_error_over_bound:.2f} of its bound")
