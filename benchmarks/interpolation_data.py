"""Points in a grid, sparse matrices of their interpolation, and vectors: what is measured."""

import math
from functools import cached_property

import numpy as np
import scipy.sparse

import batchkron as bk
from benchmarks.core.checks import Data, random_array


class SparseMatrices:
    """W of some points, and its transpose, in CSR, made once for each dtype."""

    def __init__(self, points, grid):
        self.points, self.grid = points, grid
        self._known = {}

    def matrix(self, dtype=np.float64, *, turned=False):
        key = np.dtype(dtype).name, turned
        if key not in self._known:
            if turned:
                self._known[key] = self.matrix(dtype).T.tocsr()
            elif key[0] == "float64":
                self._known[key] = self._made()
            else:
                self._known[key] = self.matrix().astype(dtype)
        return self._known[key]

    def _made(self):
        count, modes = self.points.shape
        windows = bk.Interpolation(self.points, self.grid, np.float64).windows
        order = np.argsort(windows.places)
        columns, entries = np.zeros((count, 1), np.int32), np.ones((count, 1))
        for k, size in enumerate(self.grid.sizes):
            cells = (windows.corners[order, k, None] + np.arange(4)).astype(np.int32)
            columns = (columns[:, :, None] * np.int32(size) + cells[:, None]).reshape(count, -1)
            weights = windows.weights[order, k]
            entries = (entries[:, :, None] * weights[:, None]).reshape(count, -1)
        starts = np.arange(count + 1, dtype=np.int32) * np.int32(4**modes)
        shape = count, math.prod(self.grid.sizes)
        return scipy.sparse.csr_array((entries.ravel(), columns.ravel(), starts), shape)


class InterpolatedData(Data):
    """Points, factors, and a batch of vectors (batch, points)."""

    def __init__(self, matrices, batch, dtype, kind, rng):
        super().__init__(np.dtype(dtype), 1, rng)
        self.matrices, self.grid, self.points = matrices, matrices.grid, matrices.points
        self.kind, self.sizes, self.batch = kind, self.grid.sizes, batch
        self.count = len(self.points)
        self.factors = [
            np.exp(-8 * (x[:, None] - x) ** 2).astype(dtype) for x in self.grid.axes
        ]  # an exponential of the squared distance, as usual in Gaussian processes
        self.operator = bk.Interpolation(self.points, self.grid, dtype)
        self.inputs = [random_array(rng, (batch, self.count), self.dtype)]
        self.outputs = [np.empty((batch, self.count), self.dtype)]

    @property
    def sparse(self):
        return self.matrices.matrix(self.dtype)

    @property
    def turned(self):
        return self.matrices.matrix(self.dtype, turned=True)

    @cached_property
    def reference(self):
        """Some vectors of the result in double precision, and bounds of the errors."""
        few = np.linspace(0, self.batch - 1, min(self.batch, 2)).astype(int)
        x = self.inputs[0][few].astype(np.float64)
        W = self.matrices.matrix()
        found = []
        for w, values in ((W, x), (abs(W), abs(x))):
            on_grid = (w.T @ values.T).T
            if self.kind == "W K":
                blocks = on_grid.reshape(len(few), *self.sizes)
                for k, factor in enumerate(self.factors):
                    blocks = np.moveaxis(
                        np.tensordot(factor.astype(float), blocks, (1, k + 1)), 0, k + 1
                    )
                on_grid = blocks.reshape(len(few), -1)
            found.append((w @ on_grid.T).T)
        terms = self.count + sum(self.sizes) + 4 ** len(self.sizes) + 8 * len(self.sizes)
        return few, found[0], 2 * np.finfo(self.dtype).eps * terms * found[1]

    @property
    def our_bytes(self):
        """What `Interpolation` and its plan keep: points, weights, corners, places."""
        modes = len(self.sizes)
        return self.points.nbytes + self.count * (4 * modes * self.dtype.itemsize + 16)
