"""Manufactured sources s = ∂f/∂t - Σ terms(f) of a known solution f, as separable vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...statement.axis import Axis
from ...statement.coefficients import Function
from ...statement.separable import Separable
from ...statement.terms import Term, TermFactor
from ...statement.time import constant
from ..basis.projection import (
    differentiate,
    project_derivative,
    project_samples,
    remainder_gram,
    sample,
)
from ..matrices.volume_element import VolumeElement
from ..parts import ExactSolution, SeparableVector
from ..space import DGSpace
from .resolve_term import ResolvedFactor

__all__ = ["exact_solution", "project_applied", "project_separable", "sources_from_exact"]

_ROUNDING = 1e-8  # relative difference of the values on both sides of an edge that is no jump


def project_separable(part: Separable, space: DGSpace) -> SeparableVector:
    """Return the 1-D projections of a separable function, the first times its coefficient."""
    factors = [space.project(part.factor(axis), axis) for axis in space.axes]
    factors[0] = part.coefficient * factors[0]
    return SeparableVector(tuple(factors), part.time)


def exact_solution(parts: Sequence[Separable], space: DGSpace) -> ExactSolution:
    """Return the projections of a solution's parts, and the Gram matrices of their errors."""
    grams = []
    for axis, level in zip(space.axes, space.levels, strict=True):
        volume = space.volume[axis].function if axis in space.volume else None
        functions = [part.factor(axis) for part in parts]
        grams.append(remainder_gram(functions, axis, level, space.degree(axis), volume))
    numbers = np.array([part.coefficient for part in parts])
    grams[0] = grams[0] * np.outer(numbers, numbers)
    vectors = tuple(project_separable(part, space) for part in parts)
    return ExactSolution(vectors, np.stack(grams))


def sources_from_exact(
    terms: Sequence[Term],
    parts: Sequence[Separable],
    space: DGSpace,
    *,
    explicit: Sequence[bool] | None = None,
) -> list[SeparableVector]:
    """Return s = ∂f/∂t - Σ terms(f) for a known solution f, a sum of parts.

    For each part there is one source for the derivative in time (unless that is zero) and one per
    term, which IMEX methods treat as the term, by ``explicit``. A div that is applied last is
    projected in weak form, which needs no derivative of f. Other derivatives are computed from a
    polynomial interpolant of high degree on every finest cell.
    """
    found = []
    sides = [False] * len(terms) if explicit is None else explicit
    for part in parts:
        projected = project_separable(part, space)
        slope = part.time.derivative()
        if slope != constant(0.0):
            found.append(SeparableVector(projected.factors, slope))
        for term, side in zip(terms, sides, strict=True):
            number = -term.scale * part.coefficient
            time = term.time * part.time
            if number == 0.0 or time == constant(0.0):
                continue
            if any(factor.kind == "penalty" for factor in term.factors):
                continue  # it damps jumps, which a smooth function does not have
            factors = [
                project_applied(
                    [factor for factor in term.factors if factor.axis == axis],
                    part.factor(axis),
                    axis,
                    space,
                )
                for axis in space.axes
            ]
            factors[0] = number * factors[0]
            found.append(SeparableVector(tuple(factors), time, side))
    return found


def project_applied(
    factors: Sequence[TermFactor] | Sequence[ResolvedFactor],
    function: Function,
    axis: Axis,
    space: DGSpace,
) -> NDArray[np.float64]:
    """Project factor_1 factor_2 … f along one axis, without penalties, the last applied first."""
    level, degree = space.level(axis), space.degree(axis)
    if not factors:
        return space.project(function, axis)
    volume = space.volume.get(axis)
    samples = sample(function, axis, level, degree)
    jumps = _jumps(samples)
    for place in range(len(factors) - 1, -1, -1):
        factor = factors[place]
        if factor.kind == "div" and place == 0 and volume is not None:
            weighted = sample(volume.times(factor.coefficient), axis, level, degree)
            flux = weighted * _finite(samples, axis)
            flux = _one_flux(flux, jumps | _jumps(weighted))
            return volume.divide(project_derivative(flux, axis, degree))
        # a coefficient may be infinite at an end where dV is 0; the projection does not use ends
        values = sample(factor.coefficient, axis, level, degree, finite=volume is None)
        if factor.kind == "grad":
            samples = differentiate(_finite(samples, axis), axis)
        with np.errstate(invalid="ignore"):
            samples = values * samples
        jumps = jumps | _jumps(values)
        if factor.kind == "div" and place == 0:
            return project_derivative(_one_flux(samples, jumps), axis, degree)
        if factor.kind == "div":
            samples = _divergence(_finite(samples, axis), volume, axis)
    if volume is not None:
        return volume.project_samples(samples)
    return project_samples(samples, axis, degree)


def _jumps(samples: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return at which of the edges inside the axis samples of a function jump, (2^level - 1,)."""
    before, behind = samples[:-1, -1], samples[1:, 0]
    size = np.maximum(np.abs(before), np.abs(behind))
    return np.asarray(np.abs(before - behind) > _ROUNDING * size)


def _one_flux(samples: NDArray[np.float64], jumps: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return samples of a flux with the mean of both sides at edges where a factor of it jumps.

    If the flux itself jumps there, its derivative has an impulse. The mean gives half of it to each
    cell, so that the integral of the source is right.
    """
    edges = np.flatnonzero(jumps)
    result = samples.copy()
    result[edges, -1] = result[edges + 1, 0] = (samples[edges, -1] + samples[edges + 1, 0]) / 2
    return result


def _finite(samples: NDArray[np.float64], axis: Axis) -> NDArray[np.float64]:
    """Return samples to be differentiated; refuse them if one, also at an end, is not finite."""
    if not np.all(np.isfinite(samples)):
        raise ValueError(
            f"sources from the exact solution cannot be differentiated along {axis.name!r} after a "
            "coefficient that is infinite at an end; give sources=..."
        )
    return samples


def _divergence(
    samples: NDArray[np.float64], volume: VolumeElement | None, axis: Axis
) -> NDArray[np.float64]:
    """Return samples of (1/dV) ∂(dV f)/∂x, from samples of f."""
    if volume is None:
        return differentiate(samples, axis)
    if np.any(volume.samples <= 0.0):
        raise ValueError(
            f"sources from the exact solution cannot go through a div along {axis.name!r} that is "
            "not applied last, because the volume element vanishes at an end; give sources=..."
        )
    return differentiate(volume.samples * samples, axis) / volume.samples
