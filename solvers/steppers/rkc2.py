"""The Runge-Kutta-Chebyshev method of order 2, for diffusion without linear solves."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.attributes import attribute

from ..krylov.systems.result import KrylovResult
from ..products import Product, Vector, as_product, norm_over, ranks_of_problem
from ..protocols import TimeProblem, operator_of
from ..spectrum import arnoldi, random_start
from .embedded import EmbeddedStepper
from .implicit_equation import is_linear_by_operator
from .passes import END, ERROR, SLOPES, STATE, Combine, Evaluate, Norm, StepPasses, Term
from .step_runner import StepRunner, StepTimes

__all__ = ["Rkc2"]

_Numbers: TypeAlias = NDArray[np.float64]

_DAMPING = 2.0 / 13.0  # ε: |R| ≤ 1 - ε/3 inside the stability interval
_INTERVAL = 2.0 / 3.0 * (1.0 - 2.0 / 15.0 * _DAMPING)  # its length / (s² - 1)
# Ritz values are within a few per cent of the outermost eigenvalues: |λ| may be larger by this.
_MARGIN = 1.05
_MAX_STAGES = 2000  # rounding errors grow with s²
_WIDER = (1.0, 1.25, 1.6, 2.0)  # of the fewest stages: more of them make the strip wider
_TRIED = 16.0  # dt |λ| with which the strip is looked at before a run
_GROWTH = 1e-3  # |R| - max(1, |exp(dt λ)|) that is allowed, as Ritz values are estimates
_MAX_AGE = 25  # steps after which the eigenvalues of a Jacobian are estimated again
_BEFORE, _LAST, _NEXT = 4, 5, 6  # numbers of the slope and two stages in the recursion
_END_SLOPE = 7


class Rkc2(EmbeddedStepper):
    """Y_j = (1 - μ_j - ν_j) u + μ_j Y_(j-1) + ν_j Y_(j-2) + dt μ̃_j f(Y_(j-1)) + dt γ̃_j f(u).

    u_next = Y_s, of order 2, is stable for real dt λ down to -0.65 (s² - 1), in a strip around that
    interval; s is chosen by the eigenvalues for each step.

    Parameters
    ----------
    problem : TimeProblem
        With ``rhs``; with ``operator`` or ``operator_at(t)`` for a linear f its eigenvalues are
        estimated by products with it, otherwise by differences of f.
    dt : float
        The step of `step`; `attempt` takes its own.

    Raises
    ------
    ValueError
        In the first step, if the eigenvalues are too far from the negative real axis.

    Notes
    -----
    Storage: 7 vectors besides u, and 21 while eigenvalues are estimated, which takes 20 products:
    once for an operator that is constant, else every 25 steps and after rejected ones. A step
    evaluates f s times. Source: B. P. Sommeijer, L. F. Shampine, J. G. Verwer, RKC: an explicit
    solver for parabolic PDEs, J. Comput. Appl. Math. 88 (1997).
    """

    name = "rkc2"
    order = 2
    stages = 2
    error_order = 2
    works_on_ranks = True
    real_limit = np.inf
    imaginary_limit = 0.0

    def __init__(self, problem: TimeProblem, dt: float) -> None:
        super().__init__(problem, dt)
        self._vectors = [self._vector() for _ in range(_END_SLOPE - ERROR)]
        self._runner = StepRunner(problem, self._vectors[0], self.products)
        self._values: NDArray[np.complex128] | None = None  # estimates of eigenvalues
        self._is_linear = is_linear_by_operator(problem)
        self._ranks = ranks_of_problem(problem)
        self._operator: Any = None  # of the estimate
        self._age = 0  # steps since the estimate
        self._known: float | None = None  # the time at which f(t, u) is known
        self._end, self._is_outside = math.nan, False
        self._kept: tuple[list[NDArray[Any]], list[float]] = [], []

    def step(self, u: NDArray[Any], t: float, t_next: float) -> KrylovResult | None:
        """Advance ``u`` in place from t to t_next; return None."""
        self.restart()  # u may differ from the end of the last step
        return super().step(u, t, t_next)

    def restart(self) -> None:
        """Forget f at the end of the last step, and the eigenvalues if they may differ."""
        self._known = None
        if not self._is_linear:
            self._values = None

    def attempt(
        self, u: NDArray[Any], t: float, t_next: float, dt: float, out: NDArray[Any]
    ) -> None:
        """Compute the state at t_next into ``out`` (N,), and set `error`."""
        is_again = self._known == t and self._end > t
        if self._is_linear and operator_of(self.problem, t) is self._operator:
            self._age = 0
        if self._values is None or self._age >= _MAX_AGE or (is_again and self._age > 0):
            self._values, self._age = self._eigenvalues(t, u), 0
        s = self._stages_for(dt)
        self._is_outside = s is None  # then a shorter step is not
        if s is None:
            out[...] = np.nan
            return
        if self.estimates and not self.measures and self.error is None:
            self.error = self._vector()
        error = out if self.error is None else self.error  # of the former, nothing is written
        passes = _passes(s, self._known == t, self.estimates)
        vectors = [u, out, error, *self._vectors]
        self._runner.run([(passes, vectors, StepTimes(t, t_next, dt))], self.measures)
        self._known, self._end = t, t_next

    def squares(self) -> NDArray[np.float64] | None:
        """Return (‖u_next‖², ‖error‖²) of the last step, if `measures` and it was stable."""
        return self._runner.squares() if self.measures and not self._is_outside else None

    def square(self, u: NDArray[Any]) -> float | None:
        """Return ‖u‖² as `squares` gives it, if `measures`."""
        return self._runner.square(u) if self.measures else None

    def accept(self) -> None:
        """Accept the last attempt; its last slope is the first one of the next step."""
        own = self._vectors
        own[0], own[-1] = own[-1], own[0]
        self._known = self._end
        self._age += 1
        if self._changes:
            assert self._values is not None
            parts = [*self._values.real.tolist(), *self._values.imag.tolist()]
            self._kept = [own[0]], [float(self._age), *parts]

    @property
    def _changes(self) -> bool:
        """Whether later steps depend on where the eigenvalues were estimated."""
        return not self._is_linear or attribute(self.problem, "operator_at") is not None

    def end_slope(self) -> NDArray[Any] | None:
        """Return f at the end of the step; the next call overwrites it."""
        return self._runner.whole_slope(_END_SLOPE)

    # Eigenvalues and stages.

    def _eigenvalues(self, t: float, u: NDArray[Any]) -> NDArray[np.complex128]:
        """Return estimates of the Jacobian's eigenvalues; ValueError if they leave the strip."""
        found = arnoldi(self._jacobian(t, u), random_start(u, self._ranks), ranks=self._ranks)
        if found is None:
            return np.array([np.nan + 0j])
        values = found.values
        self._refuse_outside(values)
        return values

    def _jacobian(self, t: float, u: NDArray[Any]) -> Product:
        """Return ``product(x, out)``, which writes J x into ``out``."""
        if self._is_linear:
            self._operator = operator_of(self.problem, t)
            multiply = as_product(self._operator, "problem.operator", u)

            def product(x: Vector, out: Vector) -> None:
                self.products.count += 1
                self.products.do(multiply, x, out)

            return product
        base, moved = self._vector(), self._vector()
        self._evaluate(t, u, base)
        size = max(norm_over(self._ranks, u), norm_over(self._ranks, base) * self.dt, 1e-30)
        length = math.sqrt(float(np.finfo(u.dtype).eps)) * size

        def difference(x: Vector, out: Vector) -> None:
            move = length / norm_over(self._ranks, x)
            np.multiply(x, move, out=moved)
            np.add(moved, u, out=moved)
            self._evaluate(t, moved, out)
            np.subtract(out, base, out=out)
            np.multiply(out, 1.0 / move, out=out)

        return difference

    def _refuse_outside(self, values: NDArray[np.complex128]) -> None:
        """Raise ValueError if steps that are worth their stages are not stable."""
        radius = float(np.abs(values).max())
        if radius == 0.0 or not np.isfinite(radius):
            return
        dt = _TRIED / radius
        if _stages(values, dt) is None:
            worst = values[np.abs(values.imag).argmax()]
            raise ValueError(
                f"method 'rkc2' is stable near the negative real axis only, and the operator, or "
                f"the Jacobian of f, has about the eigenvalues {worst.real:.3g} ± "
                f"{abs(worst.imag):.3g}i with |λ| up to {radius:.3g}. Take 'dormand-prince' or "
                "'dop853' for transport, or 'bdf' or 'esdirk3'."
            )

    def _stages_for(self, dt: float) -> int | None:
        """Return how many stages make a step stable, None if none do."""
        assert self._values is not None
        if not np.isfinite(self._values).all():
            return None
        return _stages(self._values, dt)

    # What a checkpoint needs.

    def memory(self) -> tuple[list[NDArray[Any]], list[float]]:
        """Return f(t, u), and what is known of eigenvalues that change."""
        return self._kept

    def remember(self, t: float, vectors: list[NDArray[Any]], numbers: list[float]) -> None:
        """Continue from time t with what `memory` has returned."""
        real, imaginary = np.split(np.array(numbers[1:]), 2)
        self._values, self._age = real + 1j * imaginary, int(numbers[0])
        np.copyto(self._vectors[0], vectors[0])
        self._known, self._kept = t, (vectors, numbers)


def _stages(values: NDArray[np.complex128], dt: float) -> int | None:
    """Return the number of stages with which a step is stable for some eigenvalues."""
    z = dt * values
    fewest = math.ceil(math.sqrt(1.0 + _MARGIN * float(np.abs(z).max()) / _INTERVAL))
    limit = np.maximum(1.0, np.exp(np.minimum(z.real, 50.0))) + _GROWTH
    for wider in _WIDER:
        s = max(2, math.ceil(wider * fewest))
        if s > _MAX_STAGES:
            return None
        if (np.abs(growth(s, z)) <= limit).all():
            return s
    return None


def growth(s: int, z: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Return R_s(z), the factor of a step for u' = λ u with z = dt λ."""
    a, b, _, w0, w1 = _coefficients(s)
    x = np.arccos(w0 + w1 * np.asarray(z, complex))
    return a[s] + b[s] * np.cos(s * x)  # type: ignore[no-any-return]


@lru_cache(maxsize=256)
def _coefficients(s: int) -> tuple[_Numbers, _Numbers, _Numbers, float, float]:
    """Return a, b, c, w0 and w1 of the method with s stages.

    Entries 0 and 1 of the arrays are those of the first stages.
    """
    w0 = 1.0 + _DAMPING / s**2
    T, first, second = (np.zeros(s + 1) for _ in range(3))  # T_j(w0) and its derivatives
    T[:2], first[1] = (1.0, w0), 1.0
    for j in range(2, s + 1):
        T[j] = 2.0 * w0 * T[j - 1] - T[j - 2]
        first[j] = 2.0 * T[j - 1] + 2.0 * w0 * first[j - 1] - first[j - 2]
        second[j] = 4.0 * first[j - 1] + 2.0 * w0 * second[j - 1] - second[j - 2]
    w1 = first[s] / second[s]
    b, c = np.zeros(s + 1), np.zeros(s + 1)
    b[2:] = second[2:] / first[2:] ** 2
    b[:2] = b[2]
    c[2:] = w1 * second[2:] / first[2:]
    c[1], c[s] = c[2] / first[2], 1.0
    return 1.0 - b * T, b, c, w0, w1


@lru_cache(maxsize=256)
def _passes(s: int, knows_first: bool, estimates: bool) -> StepPasses:
    """Return the passes of a step with s stages."""
    a, b, c, w0, w1 = _coefficients(s)
    passes: list[Evaluate | Combine] = []
    if not knows_first:
        passes.append(Evaluate(0.0, STATE, SLOPES))
    stage, before = (_LAST, STATE) if s > 1 else (END, STATE)
    first = Term(SLOPES, 0.0, float(b[1] * w1))
    passes.append(Combine(stage, (Term(STATE, 1.0, 0.0), first)))
    for j in range(2, s + 1):
        passes.append(Evaluate(float(c[j - 1]), stage, _BEFORE))
        mu, nu = float(2.0 * b[j] * w0 / b[j - 1]), float(-b[j] / b[j - 2])
        slope = float(2.0 * b[j] * w1 / b[j - 1])
        terms = [Term(stage, mu, 0.0), Term(_BEFORE, 0.0, slope)]
        terms.append(Term(SLOPES, 0.0, float(-a[j - 1] * slope)))
        if before == STATE:
            terms.append(Term(STATE, 1.0 - mu, 0.0))
        else:
            terms += [Term(before, nu, 0.0), Term(STATE, 1.0 - mu - nu, 0.0)]
        target = END if j == s else (_NEXT if before == STATE else before)
        passes.append(Combine(target, tuple(terms), Norm.END if j == s else Norm.NONE))
        stage, before = target, stage
    passes.append(Evaluate(1.0, END, _END_SLOPE))
    if estimates:
        ends = (Term(STATE, 0.8, 0.0), Term(END, -0.8, 0.0))
        slopes = (Term(SLOPES, 0.0, 0.4), Term(_END_SLOPE, 0.0, 0.4))
        passes.append(Combine(ERROR, (*ends, *slopes), Norm.ERROR, is_read=False))
    known = (Evaluate(0.0, STATE, SLOPES),) if knows_first else ()
    return StepPasses(tuple(passes), _END_SLOPE + 1, known)
