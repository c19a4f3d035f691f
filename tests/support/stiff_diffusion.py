"""A problem in time that is stiff enough for implicit methods to have something to do."""

import numpy as np

SIZE = 60


class Diffusion:
    """u' = D u + a source that changes in time: stiff enough that GMRES works and restarts."""

    def __init__(self, dtype=np.float64, seed=3, **attributes):
        rng = np.random.default_rng(seed)
        second = np.diag(np.full(SIZE - 1, 1.0), 1) + np.diag(np.full(SIZE - 1, 1.0), -1)
        self.operator = (40.0 * (second - 2.0 * np.eye(SIZE))).astype(dtype)
        self.source = rng.standard_normal(SIZE).astype(dtype)
        self.initial = rng.standard_normal(SIZE).astype(dtype)
        self.__dict__.update(attributes)

    def rhs(self, t, u, out):
        np.dot(self.operator, u, out=out)
        out += float(np.cos(7.0 * t)) * self.source
