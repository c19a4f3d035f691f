"""A batch list of another program: its file, written with h5py alone, checked and run.

u' = -(T ⊗ I + I ⊗ T) u on a row of blocks, whose neighbours exchange a little. A C++ or Fortran
code would write the same datasets with the HDF5 library.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

n, blocks = 4, 8
T = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
pool = np.stack([np.eye(n), -T])  # matrix 0 and matrix 1, of both modes
products = [((1, 0), b, b) for b in range(blocks)] + [((0, 1), b, b) for b in range(blocks)]
products += [((0, 0), b, b + 1) for b in range(blocks - 1)]  # neighbours, with a weight below
weights = np.where(np.arange(len(products)) < 2 * blocks, 1.0, 0.1)

datasets = {
    "list/pool_0": pool,
    "list/pool_1": pool,
    "list/factor_ids": np.array([ids for ids, _, _ in products], "<i8"),
    "list/inputs": np.array([source for _, source, _ in products], "<i8"),
    "list/outputs": np.array([target for _, _, target in products], "<i8"),
    "list/weights": weights,
    "initial": np.random.default_rng(0).standard_normal(blocks * n * n),
}
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "list.h5")
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        file.attrs["format"] = np.bytes_("batchkron-problem")  # a text of fixed length
        file.attrs["format_version"] = np.int64(3)
        for name, value in datasets.items():
            file.create_dataset(name, data=value, chunks=value.shape, fletcher32=True)

    run = ["--until", "1", "--stepper", "backward-euler", "--dt", "0.05", "--quiet"]
    for words in (["check", path], ["run", path, *run, "--checkpoint", Path(folder, "c.h5")]):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "batchkron.cli", *map(str, words)],
            capture_output=True,
            text=True,
        )
        print(done.stdout.replace(folder, "").strip() or f"exit status {done.returncode}")
    with h5py.File(path.with_suffix(".result.h5")) as result:
        u = result["u"][:].reshape(blocks, n, n)
        print(f"{result.attrs['status'].decode()}: norms {np.linalg.norm(u, axis=(1, 2)).round(3)}")
