"""The preconditioner of implicit steps where none is named: "auto" where that pays."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from batchkron.arrays import array_module
from batchkron.attributes import attribute, has_attribute
from batchkron.log import logger
from batchkron.operators.kronecker_terms import terms_of

from ..krylov.gmres import Gmres
from ..preconditioners import FibreInverse, NamedPreconditioner, PreconditionerWarning
from ..products import Vector, as_product, norm_over, ranks_of
from .linear_solver import ShiftedOperator

__all__ = ["DefaultPreconditioner"]

_log = logger("preconditioner")

# c times the estimate of the largest |eigenvalue| of A from which solves have a preconditioner.
# GMRES takes some 50 iterations without one at 20, 110 at 100.
_MIN_STIFFNESS = 20.0
# The same for the combination technique on the CPU, where a product with M takes as long as ten to
# forty with A: at 65 iterations steps of diffusion take as long with it (Xeon, 2026-11).
_MIN_STIFFNESS_OF_COMBINATION = 100.0
_PRODUCTS = 8  # of the estimate; the norms of A^k x then grow by within a fifth of it
# It is taken if GMRES with it solves a trial system that is ten times as stiff, for which it would
# take some 150 iterations without, to this tolerance in so many iterations.
_TRIAL_STIFFNESS, _TRIAL_ITERATIONS = 10.0 * _MIN_STIFFNESS, 20
_TRIAL_RTOL = {"f": 1e-4, "F": 1e-4, "d": 1e-6, "D": 1e-6}


class DefaultPreconditioner:
    """A function (A, c) -> M ≈ (I - c A)⁻¹, or None where a solve does better without.

    M is that of the name "auto". It is None where A has no Kronecker terms and none are found in
    it; where GMRES needs few iterations, because c |λ|, of the eigenvalue λ of A with the largest
    modulus, is less than 20, or than 100 on the CPU if M is no `FibreInverse`; and where M does not
    help, which is tried once on a system with a random right-hand side. The answer depends on A and
    c only, so that a resumed run gets the same.

    ``like`` (ndarray, shape (N,)): a vector of the run.
    ``deal``: as for `NamedPreconditioner`.
    ``adapts``: whether c may become larger than it is at first.
    ``is_optional``: True: a solve that fails with M is done without.

    Examples
    --------
    >>> from batchkron.problems import gallery
    >>> heat = gallery.make("diffusion-2d", level=4)
    >>> chosen = DefaultPreconditioner(heat.initial)
    >>> print(chosen(heat.operator, 1e-6), type(chosen(heat.operator, 1.0)).__name__)
    None CombinationPreconditioner
    """

    is_optional = True

    def __init__(
        self, like: Vector, deal: Callable[[Any, Any], Any] | None = None, adapts: bool = False
    ) -> None:
        self._like, self._adapts = like, adapts
        self._named = NamedPreconditioner("auto", like.dtype, deal, in_place=True)
        self._operator: Any = None
        self._rate = 0.0  # the estimate of the largest |eigenvalue|
        self._least = _MIN_STIFFNESS
        self._helps: bool | None = None  # None until it has been tried

    def __call__(self, operator: Any, scale: float) -> Any:
        """Return M for the operator A and the number c, or None."""
        if operator is not self._operator:
            self._begin(operator)
        if abs(scale) * self._rate < _MIN_STIFFNESS:
            return None
        self._look(operator)
        if abs(scale) * self._rate < self._least:
            return None
        self._try(operator)
        return self._named(operator, scale) if self._helps else None

    def begin_now(self, operator: Any) -> None:
        """Compute all that may be needed for any c from the present values of A, as they change."""
        self._begin(operator)
        self._look(operator)
        if self._adapts:
            self._try(operator)

    def _begin(self, operator: Any) -> None:
        self._operator, self._rate = operator, self._estimate(operator)
        self._least = 0.0
        self._helps = None if self._rate > 0.0 else False

    def _look(self, operator: Any) -> None:
        """Look for the terms of A, unless that is done; it takes longer than the estimate."""
        if self._least or not self._rate:
            return
        self._least = _MIN_STIFFNESS
        try:
            terms = terms_of(operator)
        except TypeError:
            self._rate, self._helps = 0.0, False
            return
        fibres = ranks_of(operator) is None and FibreInverse.may_suit(terms)
        if array_module(self._like) is np and not fibres:
            self._least = _MIN_STIFFNESS_OF_COMBINATION

    def _estimate(self, operator: Any) -> float:
        """Return about the largest |eigenvalue| by powers of A, 0 if A cannot have terms."""
        if not has_attribute(operator, "kronecker_terms") or attribute(operator, "batch_shape"):
            return 0.0
        multiply, ranks = as_product(operator, "problem.operator", self._like), ranks_of(operator)
        x, product = self._random(), np.empty_like(self._like)
        rate = 0.0
        for _ in range(_PRODUCTS):
            size = norm_over(ranks, x)
            if not (np.isfinite(size) and size > 0.0):
                return 0.0
            x /= size
            multiply(x, product)
            rate, (x, product) = norm_over(ranks, product), (product, x)
        return rate if np.isfinite(rate) else 0.0

    def _try(self, operator: Any) -> None:
        """See whether M helps, unless that is known."""
        if self._helps is not None:
            return
        scale = _TRIAL_STIFFNESS / self._rate
        with warnings.catch_warnings():  # of what nobody has asked for
            warnings.simplefilter("ignore", PreconditionerWarning)
            M = self._named(operator, scale)
        if M is None:
            self._helps = False
            return
        shifted = ShiftedOperator(operator, scale, self._like)
        b = self._random()
        size = self._like.size if ranks_of(operator) is None else shifted
        solver = Gmres(size, b.dtype, restart=_TRIAL_ITERATIONS, like=b)
        self._helps = solver.solve(
            shifted, b, M=M, rtol=_TRIAL_RTOL[b.dtype.char], maxiter=1
        ).converged
        text = "is taken, since it helps" if self._helps else "is not taken, since it does not help"
        _log.info("auto %s where c |λ| ≥ %.3g; |λ| = %.3g", text, self._least, self._rate)

    def _random(self) -> Vector:
        """Return a vector of normal numbers, on each rank those of the same generator."""
        generator, like = np.random.default_rng(0), self._like
        values = generator.standard_normal(like.size)
        if like.dtype.kind == "c":
            values = values + 1j * generator.standard_normal(like.size)
        found = np.empty_like(like)
        found[...] = array_module(found).asarray(values.astype(like.dtype)).reshape(like.shape)
        return found
