"""Exponential integrators: exact for constant sources, without a limit of dt by stiffness of A."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.attributes import attribute, has_attribute
from batchkron.operators import KroneckerSum
from batchkron.operators.kronecker_sum.phi_functions import PhiFunctions

from ..krylov.phi_functions import KrylovPhi
from ..krylov.systems.result import KrylovResult
from ..products import Products, Ranks, as_product, ranks_of_problem
from ..protocols import TimeProblem, operator_of
from .embedded import EmbeddedStepper

_OPTIONS = ("name", "rtol", "dimension")
_ENGINES = ("auto", "krylov", "kronecker")
# Relative tolerance of the Krylov method by dtype character; chosen by hand.
_DEFAULT_RTOL = {"f": 1e-5, "F": 1e-5, "d": 1e-9, "D": 1e-9}
_MAX_CACHED_PROPAGATORS = 4  # largest number of cached propagators, one per dt; chosen by hand


class PhiEngine:
    """Computes dt φ_1(dt A) v_1 + dt² φ_2(dt A) v_2 + …, in Krylov spaces or from A's factors.

    ``like`` (ndarray, shape (N,)): a vector of the run.
    ``solver``: "krylov" uses `KrylovPhi`; "kronecker" the factors of A, which must be a Kronecker
      sum on a whole tensor product; "auto" (the default) the factors if A is such a sum. A mapping
      may also contain ``rtol`` (1e-9, or 1e-5 in single precision) and ``dimension`` (30) of
      `KrylovPhi`.
    ``products``: counts the products with A of Krylov spaces.
    ``ranks``: the ranks that share vectors, of which ``like`` is this one's block.
    ``keeps``: whether propagators are cached, for steps that are repeated with the same dt.

    Raises `ValueError` if the name or an option is unknown. `TypeError` if the solver has another
    type.
    """

    def __init__(
        self, like: NDArray[Any], solver: Any, products: Products, ranks: Ranks | None = None
    ) -> None:
        named = solver is None or isinstance(solver, str)
        options = {"name": solver or "auto"} if named else solver
        if not isinstance(options, Mapping):
            raise TypeError(
                f"solver is a {type(solver).__name__}; expected a name or a mapping of options."
            )
        unknown = [key for key in options if key not in _OPTIONS]
        name = options.get("name", "auto")
        if unknown or name not in _ENGINES:
            raise ValueError(
                f"solver is {dict(options)!r}; expected name, one of {', '.join(_ENGINES)}, and at "
                "most rtol and dimension, because an exponential method solves no system."
            )
        self._name = name
        rtol = float(options.get("rtol", _DEFAULT_RTOL[like.dtype.char]))
        self._krylov = KrylovPhi(like, rtol, int(options.get("dimension", 30)), ranks)
        self._like, self._products = like, products
        self._propagators: dict[float, PhiFunctions] = {}
        self.keeps = True
        self._of: Any = None
        self._factors: list[NDArray[Any]] | None = None
        self._product: Any = None

    def solve(
        self, operator: Any, vectors: list[NDArray[Any] | None], dt: float, out: NDArray[Any]
    ) -> KrylovResult | None:
        """Write Σ_k dt^k φ_k(dt A) v_k into ``out``; return the Krylov method's result, if any."""
        if operator is not self._of or self._factors_changed(operator):
            self._take(operator)
        if self._factors is None:
            before = self._krylov.applications
            result = self._krylov.solve(self._product, vectors, dt, out)
            self._products.count += self._krylov.applications - before
            return result
        propagator = self._propagators.get(dt)
        if propagator is None:
            device = attribute(operator, "device", "cpu")
            propagator = PhiFunctions(KroneckerSum(self._factors).to(device), dt)
            if self.keeps:
                if len(self._propagators) == _MAX_CACHED_PROPAGATORS:
                    self._propagators.pop(next(iter(self._propagators)))
                self._propagators[dt] = propagator
        np.copyto(out, propagator.apply(vectors), casting="same_kind")
        return None

    def _factors_changed(self, operator: Any) -> bool:
        """Whether an operator was updated in place since its propagators were computed."""
        if self._factors is None:
            return False
        now = _sum_factors(operator)
        return now is None or not all(map(np.array_equal, now, self._factors))

    def _take(self, operator: Any) -> None:
        """Prepare for an operator that is new, or has new values."""
        self._of, self._factors = operator, None
        self._propagators.clear()
        if self._name != "krylov":
            self._factors = _sum_factors(operator)
        if self._name == "kronecker" and self._factors is None:
            raise ValueError(
                "solver is 'kronecker', but the operator is no Kronecker sum on a whole tensor "
                "product; take 'krylov'."
            )
        self._product = self._products.hooked(as_product(operator, "problem.operator", self._like))


def _sum_factors(operator: Any) -> list[NDArray[Any]] | None:
    """Return the factors if an operator is a Kronecker sum, else None."""
    if not has_attribute(operator, "kronecker_terms"):
        return None
    try:
        terms = operator.kronecker_terms()
    except (TypeError, ValueError):
        return None
    return terms.sum_factors() if terms.cells is None and terms.is_sum else None


class ExponentialStepper(EmbeddedStepper):
    """Base class of exponential methods.

    Parameters
    ----------
    problem : TimeProblem
        With ``operator`` or ``operator_at(t)``, the stiff linear part of f.
    dt : float
        The step.
    t0 : float
        Not used, since there is no preconditioner to build.
    solver : str, mapping or None
        See `PhiEngine`.
    preconditioner : None
        Must be None.
    """

    implicit = True
    works_on_ranks = True
    real_limit = np.inf
    imaginary_limit = np.inf

    def __init__(
        self,
        problem: TimeProblem,
        dt: float,
        *,
        t0: float = 0.0,
        solver: Any = None,
        preconditioner: Any = None,
    ) -> None:
        super().__init__(problem, dt)
        if preconditioner is not None:
            raise ValueError(
                f"method {self.name!r} solves no system and takes no preconditioner; leave it out."
            )
        self._slope = self._vector()
        ranks = ranks_of_problem(problem)
        self._engine = PhiEngine(self._slope, solver, self.products, ranks)
        self._taken = 0.0, 0.0  # time t and step dt of the last attempt
        operator_of(problem, t0)

    def attempt(
        self, u: NDArray[Any], t: float, t_next: float, dt: float, out: NDArray[Any]
    ) -> KrylovResult | None:
        """Compute the state at t_next into ``out``, and set `error`; return a failed solve."""
        self._taken = t, dt
        return self._advance(u, t, t_next, dt, out)

    @abstractmethod
    def _advance(
        self, u: NDArray[Any], t: float, t_next: float, dt: float, out: NDArray[Any]
    ) -> KrylovResult | None:
        """Do the method's part of `attempt`."""

    def interpolate(self, u: NDArray[Any], theta: float, out: NDArray[Any]) -> bool:
        """Write the state at t + θ dt, by a shorter step: no polynomial would be as accurate."""
        t, dt = self._taken
        before = self.estimates, self.last_solve
        self.estimates = self._engine.keeps = False
        try:
            return self._advance(u, t, t + theta * dt, theta * dt, out) is None
        finally:
            self.estimates, self.last_solve = before
            self._engine.keeps = True

    def _phi(
        self, operator: Any, vectors: list[NDArray[Any] | None], dt: float, out: NDArray[Any]
    ) -> KrylovResult | None:
        """Write a combination of φ-functions into ``out``; return the result if it failed."""
        result = self._engine.solve(operator, vectors, dt, out)
        self.last_solve = result or self.last_solve
        return result if result is not None and not result.converged else None


class ExponentialEuler(ExponentialStepper):
    """u_next = u + dt φ_1(dt A(t)) f(t, u); order 1, exact for f = A u + s with constant A and s.

    Parameters
    ----------
    problem, dt, t0, solver, preconditioner
        As for `ExponentialStepper`.

    Notes
    -----
    Storage: 3 vectors besides u and those of `KrylovPhi`. Source: M. Hochbruck, A. Ostermann,
    Exponential integrators, Acta Numerica 19 (2010), eq. (2.9).
    """

    name = "exponential-euler"
    order = 1
    stages = 1

    def _advance(
        self, u: NDArray[Any], t: float, t_next: float, dt: float, out: NDArray[Any]
    ) -> KrylovResult | None:
        self._evaluate(t, u, self._slope)
        failed = self._phi(operator_of(self.problem, t), [None, self._slope], dt, out)
        np.add(out, u, out=out)
        return failed


class ExponentialTrapezoidal(ExponentialStepper):
    """u_next = u + dt φ_1(dt A) f(t, u) + dt φ_2(dt A) (g(t_next) - g(t)), A = A(t + dt/2).

    g(τ) = f(τ, u) - A u; order 2, exact for f = A u + s_0 + t s_1 with constant A.

    Parameters
    ----------
    problem, dt, t0, solver, preconditioner
        As for `ExponentialStepper`.

    Notes
    -----
    The error estimate is the change of the result if g is interpolated by a parabola through g(t),
    g(t + dt/2) and g(t_next): dt (4 φ_3(dt A) - 2 φ_2(dt A)) (g(t) - 2 g(t + dt/2) + g(t_next)). It
    has order 2 and is 0 if g is linear in time. It needs a Krylov space of its own, which runs with
    equal steps save. Stiff sources and boundary data do not reduce the order.

    Storage: 6 vectors besides u and those of `KrylovPhi`. Source: the exponential quadrature rule
    with nodes 0 and 1 of M. Hochbruck, A. Ostermann, Exponential integrators, Acta Numerica 19
    (2010), section 2.2.
    """

    name = "exponential-trapezoidal"
    order = 2
    stages = 2
    error_order = 2

    def __init__(self, problem: TimeProblem, dt: float, **options: Any) -> None:
        super().__init__(problem, dt, **options)
        self._change, self._bend, self.error = self._vector(), self._vector(), self._vector()

    def _advance(
        self, u: NDArray[Any], t: float, t_next: float, dt: float, out: NDArray[Any]
    ) -> KrylovResult | None:
        slope, change, bend = self._slope, self._change, self._bend
        self._evaluate(t, u, slope)
        self._evaluate(t_next, u, change)
        operator = operator_of(self.problem, t + 0.5 * dt)
        if self.estimates:
            assert self.error is not None
            self._evaluate(t + 0.5 * dt, u, bend)
            np.multiply(bend, -2.0, out=bend)
            np.add(bend, slope, out=bend)
            np.add(bend, change, out=bend)
            np.multiply(bend, 4.0 / dt**2, out=bend)
            np.multiply(bend, -0.5 * dt, out=out)
            failed = self._phi(operator, [None, None, out, bend], dt, self.error)
            if failed is not None:
                return failed
        np.subtract(change, slope, out=change)
        np.multiply(change, 1.0 / dt, out=change)
        failed = self._phi(operator, [None, slope, change], dt, out)
        np.add(out, u, out=out)
        return failed
