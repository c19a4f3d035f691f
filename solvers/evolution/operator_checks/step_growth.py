"""How much the steps of a method amplify: Arnoldi's method with the step of u' = A(t) u itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from batchkron.arrays import array_module
from batchkron.attributes import attribute

from ...products import Product, Ranks, Vector, as_product, dot_over, norm_over
from ...protocols import has_operator, implicit_operator_of, operator_of
from ...spectrum import Arnoldi
from ...steppers.stepper import Stepper
from ..start.integration import Integration
from .linearity import homogeneous_product
from .stability import is_stable

__all__ = ["HomogeneousProblem", "MakeStepper", "StepGrowth", "excess_growth", "growth_of_step"]

MakeStepper: TypeAlias = Callable[[Integration], Callable[[float], Stepper]]

# Methods may exaggerate the rate of growth of components that grow in the solution, too, up to this
# factor: that is an error, but no instability. Chosen by hand.
_RATE_FACTOR = 2.0
# Rounding errors of the log of a step's growth, with those of linear solves, by dtype character.
_ROUNDING = {"f": 1e-4, "F": 1e-4, "d": 1e-8, "D": 1e-8}


class HomogeneousProblem:
    """u' = A(t) u, a linear problem without its sources, with the same implicit part A_I(t).

    ``problem``: with f(t, u) = A(t) u + s(t).
    ``initial`` (ndarray, shape (N,)): a vector of the run.
    """

    def __init__(self, problem: Any, initial: Vector) -> None:
        self._problem = problem
        self.initial, self.t0 = initial, attribute(problem, "t0", 0.0)
        self.communicator = attribute(problem, "communicator")
        deal = attribute(problem, "distribute_preconditioner")
        if deal is not None:
            self.distribute_preconditioner = deal

    def product(self, t: float) -> Product:
        """Return ``product(x, out)``, which writes A(t) x into ``out``."""
        return homogeneous_product(self._problem, t, self.initial)

    def implicit_product(self, t: float) -> Product:
        """Return ``product(x, out)``, which writes A_I(t) x into ``out``."""
        name = "problem.implicit_operator"
        return as_product(self.implicit_operator_at(t), name, self.initial)

    def operators(self, t: float) -> tuple[Any, Any]:
        """Return A(t), None if the problem does not know it, and A_I(t)."""
        whole = self.operator_at(t) if has_operator(self._problem) else None
        return whole, self.implicit_operator_at(t)

    def rhs(self, t: float, u: Vector, out: Vector) -> None:
        """Write A(t) u into ``out``."""
        self.product(t)(u, out)

    def operator_at(self, t: float) -> Any:
        """Return A(t)."""
        return operator_of(self._problem, t)

    def implicit_operator_at(self, t: float) -> Any:
        """Return A_I(t)."""
        return implicit_operator_of(self._problem, t)

    def implicit_source(self, t: float, out: Vector) -> None:
        """Write 0 into ``out``."""
        out[...] = 0.0


@dataclass(frozen=True, eq=False)
class StepGrowth:
    """The component that a step amplifies most.

    ``factor``: the factor by which a step multiplies it.
    ``excess``: the log of that, minus the log of what the solution may do, see `excess_growth`.
    ``rate``: re (v, A v) / (v, v) of the component v, the solution's rate.
    ``vector`` (ndarray, shape (N,)): the component; of a complex one of a real problem its larger
      part. Its norm is 1.
    """

    factor: float
    excess: float
    rate: float
    vector: Vector

    def is_stable(self, dt: float, length: float) -> bool:
        """Return whether it stays small in a run of a length with steps of dt, see `is_stable`."""
        return is_stable(self.excess, dt, length, _ROUNDING[self.vector.dtype.char])


def excess_growth(factor: Any, grown: Any) -> Any:
    """Return log |factor| - 2 max(0, log of the solution's growth), elementwise.

    ``factor``: what a step multiplies components by.
    ``grown``: the log of what the solution multiplies them by, dt Re λ.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(np.abs(factor))
    return np.where(np.isnan(logs), np.inf, logs) - _RATE_FACTOR * np.maximum(0.0, grown)


def growth_of_step(
    integration: Integration,
    make_stepper: MakeStepper,
    t: float,
    dt: float,
    start: Vector,
    *,
    powers: int,
    steps: int,
) -> StepGrowth | None:
    """Return the component that a step of u' = A(t) u amplifies most.

    ``integration``: the run, of a linear problem.
    ``make_stepper``: ``make_stepper(integration)`` returns a function of dt that returns a stepper.
    ``t``, ``dt``: the beginning of the step and its length.
    ``start`` (ndarray, shape (N,)): a random vector of norm 1.
    ``powers``, ``steps``: first this many steps are taken from ``start``, which damp what is stiff;
      then this many of Arnoldi's method.

    Result: None if a linear solve failed.

    Cost: powers + steps steps of the run's method, and two products with A.
    """
    problem = HomogeneousProblem(integration.problem, integration.u)
    stepper = make_stepper(replace(integration, problem=problem))(dt)
    ranks, failed = integration.ranks, []

    def step(x: Vector, out: Vector) -> None:
        np.copyto(out, x)
        if stepper.step(out, t, t + dt) is not None:
            failed.append(True)

    with np.errstate(all="ignore"):
        first, other = start.copy(), np.empty_like(start)
        for _ in range(powers):
            step(first, other)
            size = norm_over(ranks, other)
            if failed:
                return None
            if size == 0.0 or not math.isfinite(size):
                factor = 0.0 if size == 0.0 else math.inf
                return StepGrowth(factor, math.log(factor or 1e-300), 0.0, start)
            np.multiply(other, 1.0 / size, out=first)
        process = Arnoldi(step, first, ranks, steps)
        while process.step():
            pass
        if failed:
            return None
        if not process.is_finite:
            return StepGrowth(math.inf, math.inf, 0.0, first)
        return _largest(process, problem.product(t), dt, ranks)


def _largest(process: Arnoldi, product: Product, dt: float, ranks: Ranks | None) -> StepGrowth:
    """Return the component of the largest Ritz value, whose rate is found by two products."""
    values, vectors = np.linalg.eig(process.hessenberg)
    largest = int(np.argmax(np.abs(values)))
    weights = vectors[:, largest] / np.linalg.norm(vectors[:, largest])
    basis = process.basis
    parts = [weights] if basis.dtype.kind == "c" else [weights.real, weights.imag]
    found = [array_module(basis).asarray(part.astype(basis.dtype)) @ basis for part in parts]
    rate = 0.0
    for v in found:
        image = np.full_like(v, np.nan)
        product(v, image)
        rate += dot_over(ranks, v, image).real
    factor = float(np.abs(values[largest]))
    sizes = [norm_over(ranks, v) for v in found]
    vector = found[int(np.argmax(sizes))] / max(sizes)
    return StepGrowth(factor, float(excess_growth(factor, dt * rate)), rate, vector)
