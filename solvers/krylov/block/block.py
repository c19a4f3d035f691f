"""What block methods share: many right-hand sides whose residuals span one space."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from batchkron.arrays import array_module, as_array, to_host
from batchkron.attributes import attribute

from ...products import Vector, norms_of, ranks_of, working_dtype
from ..iteration.verified_iterates import VerifiedIterates
from ..systems.foreign_arrays import refuse_foreign
from ..systems.layouts import as_systems
from ..systems.limits import check_tolerances
from ..systems.result import KrylovResult, Status, raise_if_failed, worst_of
from ..systems.system import LinearSystem

Norms = NDArray[np.float64]


def orthonormalised(
    rows: Vector, weights: NDArray[Any] | None = None
) -> tuple[Vector, NDArray[Any]]:
    """Return orthonormal rows Q (r, N), and R (r, k) on the host, with rows = Rᵀ Q.

    Norms of rows, (k, N), are 1 at most, or were before most of them cancelled. Directions that are
    rounding are left out. ``weights``, (k, K), are how much of each row the K residuals have, in
    units of their tolerances: directions that these do not need are left out, too.
    """
    module, eps = array_module(rows), float(np.finfo(rows.dtype).eps)
    if module is np:  # NumPy's needs up to four more blocks of memory
        columns, triangle = qr(rows.T, mode="economic", check_finite=False)
    else:
        columns, triangle = module.linalg.qr(rows.T)
    small = to_host(triangle, "R")
    if not np.isfinite(small).all():
        return rows, np.full((len(rows), len(rows)), np.nan, rows.dtype)
    left, values, right = np.linalg.svd(small, full_matrices=False)
    kept = values > 10 * eps * len(rows)
    if weights is not None:
        shares = np.abs(values[:, None] * (right @ weights)).max(axis=1, initial=0.0)
        kept &= shares > 0.01 / max(1, len(rows))
    if kept.all():
        return module.ascontiguousarray(columns.T), small
    turned = module.asarray(left[:, kept].T.astype(rows.dtype)) @ columns.T
    return turned, (values[kept, None] * right[kept]).astype(rows.dtype)


class BlockSolve:
    """The columns of A X = B: which go on, how the others ended, what it cost.

    The parameters are those of `block_cg`; ``tolerances`` are rtol and atol.
    """

    def __init__(self, A: Any, b: Any, x0: Any, M: Any, tolerances: tuple[float, float]) -> None:
        check_tolerances(*tolerances)
        self._tolerances = tolerances
        for name, operator in (("A", A), ("M", M)):
            if getattr(operator, "ndim", 2) > 2 or attribute(operator, "batch_shape", ()):
                raise ValueError(
                    f"{name} is a batch of operators; expected one for all columns, whose spaces "
                    "are shared. Use the method without a block for many systems."
                )
        if ranks_of(A) is not None:
            raise TypeError(
                "A is distributed, and methods that share a space have no sums over ranks; use the "
                "method without a block, with batched='columns'."
            )
        module = array_module(b)
        given = as_array(b, "b", module)
        refuse_foreign(A, "A", b=given)
        dtype = working_dtype(A, given)
        rows = module.ascontiguousarray(as_systems(given, "b", "columns", dtype, module))
        self.module, self.dtype = module, dtype
        self.system, self.b = LinearSystem(A, rows, M, "columns"), rows
        self.x = module.empty_like(rows)
        norm_b = norms_of(rows)
        self.tolerance = np.maximum(tolerances[0] * norm_b, tolerances[1])

        def guess(out: Vector) -> bool:
            guessed = self.system.initial_guess(x0, out)
            out[module.asarray(norm_b == 0)] = 0
            return guessed

        guessed = guess(self.x)
        count = len(rows)
        self.statuses = np.full(count, None, object)
        self.iterations = np.zeros(count, np.int64)
        self.restarts = np.zeros(count, np.int64)
        self.active = np.arange(count)
        # b alone would pass for the residual of zero where A has NaN or infinity
        ended = bool((norm_b <= self.tolerance).any())
        self._residuals = self._true_residuals() if guessed or ended else rows.copy()
        self.norms = norms_of(self._residuals)
        self._history = [self.norms.copy()]
        self._verified = VerifiedIterates(self.norms.copy(), guess)
        self.image = 0.0  # the longest product with A of a unit vector
        self._end(~np.isfinite(self.norms) | ~np.isfinite(norm_b), Status.NOT_FINITE)
        self._end(self.norms <= self.tolerance, Status.CONVERGED)

    def scaled_residuals(self) -> tuple[Vector, NDArray[Any], Norms]:
        """Return orthonormal rows Q, R with residuals = Rᵀ Q, and the unit of what is negligible.

        The unit is the tolerance, or rounding where that is more.
        """
        norms, rows = self.norms[self.active], self._residuals
        unit = np.maximum(self.tolerance[self.active], 1e-3 * np.finfo(self.dtype).eps * norms)
        scaled = rows / self.module.asarray(norms.astype(rows.real.dtype))[:, None]
        q, share = orthonormalised(scaled, np.diag(norms / unit))
        return q, share.astype(np.result_type(share, np.float64)) * norms, unit

    def apply(self, rows: Vector) -> Vector:
        """Return A times each row."""
        out: Vector = self.module.empty(rows.shape, self.dtype)
        self.system.apply(rows, out)
        return out

    def precondition(self, rows: Vector) -> Vector:
        """Return M times each row, the rows themselves without M."""
        if not self.system.preconditioned:
            return rows
        out: Vector = self.module.empty(rows.shape, self.dtype)
        self.system.precondition(rows, out)
        return out

    def combine(self, coefficients: NDArray[Any], rows: Vector) -> Vector:
        """Return coefficients (r, k) times rows (k, N), the coefficients from the host."""
        return self.module.asarray(coefficients.astype(self.dtype)) @ rows  # type: ignore[no-any-return]

    def product(self, left: Vector, right: Vector) -> NDArray[Any]:
        """Return the inner products left_i* right_j, on the host."""
        return np.asarray(to_host(left.conj() @ right.T, "products"))

    def add(self, update: Vector) -> None:
        """Add to x in the columns that go on."""
        self.x[self.module.asarray(self.active)] += update

    def record(self, norms: Norms) -> None:
        """End an iteration with estimates of the residuals' norms of the columns that go on.

        NaN for columns that have met their tolerance before in this cycle.
        """
        row = np.full(len(self.tolerance), np.nan)
        row[self.active] = norms
        self._history.append(row)
        self.iterations[self.active[~np.isnan(norms)]] += 1

    def decide(self, failure: Status | None, spent: bool, shrunk: float) -> None:
        """Compute the true residuals, and say which columns end and how.

        ``failure`` is why the recursion could not go on, ``spent`` whether no more iterations are
        allowed. A residual that is not below the fraction ``shrunk`` of the last true one has
        stagnated.
        """
        before, places = self.norms[self.active], self.active
        self._residuals = self._true_residuals()
        norms = norms_of(self._residuals)
        self.norms[places] = norms
        whole = np.zeros(len(self.tolerance), bool)

        def end(which: NDArray[np.bool_], status: Status) -> None:
            whole[:] = False
            whole[places[which]] = True
            self._end(whole, status)

        end(norms <= self.tolerance[places], Status.CONVERGED)
        end(~np.isfinite(norms), Status.NOT_FINITE)
        every, stuck = np.ones(len(places), bool), ~(norms < shrunk * before)
        if failure in (Status.INDEFINITE, Status.NOT_FINITE):
            end(every, failure)
        if failure is Status.BREAKDOWN:
            end(stuck, failure)
        if spent:
            end(every, Status.MAX_ITERATIONS)
        end(stuck, Status.STAGNATED)
        self.restarts[self.active] += 1
        if len(self.active):
            self._verified.compare(self.x, self.norms)

    def result(self, raise_on_failure: bool) -> KrylovResult:
        """Return the solution and what there is to say about it."""
        self._verified.restore(self.x, self.norms)
        result = KrylovResult(
            x=self.x.T,
            status=worst_of(self.statuses),
            residual_norm=self.norms,
            residual_norms=self._packed(),
            iterations=self.iterations,
            restarts=self.restarts,
            applications=self.system.applications,
            preconditioner_applications=self.system.preconditioner_applications,
            statuses=self.statuses,
        )
        if raise_on_failure:
            raise_if_failed(result, *self._tolerances)
        return result

    def _packed(self) -> Norms:
        """Return the estimates, each column's own first, NaN after its last.

        The last one of a column that did not converge is that of its x.
        """
        together = np.array(self._history)
        order = np.argsort(np.isnan(together[1:]), axis=0, kind="stable")
        together[1:] = np.take_along_axis(together[1:], order, 0)
        failed = np.flatnonzero(self.statuses != Status.CONVERGED)
        together[self.iterations[failed], failed] = self.norms[failed]
        return together[: int(self.iterations.max(initial=0)) + 1]

    def _true_residuals(self) -> Vector:
        """Return b - A x of the columns that go on."""
        places = self.module.asarray(self.active)
        return self.b[places] - self.apply(self.x[places])  # type: ignore[no-any-return]

    def _end(self, which: NDArray[np.bool_], status: Status) -> None:
        """End columns that go on, of all those that a mask says."""
        which = which & np.array([s is None for s in self.statuses], bool)
        self.statuses[which] = status
        stays = np.array([self.statuses[k] is None for k in self.active], bool)
        if not stays.all():
            self._residuals = self._residuals[self.module.asarray(stays)]
            self.active = self.active[stays]
