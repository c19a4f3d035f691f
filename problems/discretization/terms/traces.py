"""Decide from which side of an edge the chains div @ grad take their traces (values of f)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from batchkron.callers import users_level

from ...statement.axis import Axis
from ...statement.boundary import Periodic
from ...statement.coefficients import BY_DEGREE, Flux, Function
from ...statement.terms import Term, TermFactor
from ..basis.projection import node_values
from ..matrices.dg_matrices import OPPOSITE_TRACES, Trace
from ..space import DGSpace

__all__ = ["Traces", "chain_fluxes", "chain_traces", "coefficient_sign", "given_flux", "is_mixed"]

Traces: TypeAlias = Mapping[Axis, Trace]
"""The trace that div takes in all chains along an axis; grad takes the opposite one."""


def chain_traces(terms: Sequence[Term], space: DGSpace) -> dict[Axis, Trace]:
    """Return the trace that div takes along each axis that has mixed second derivatives.

    If all chains along axis i use the same discrete gradient G_i, and -G_iᵀ as div, the sum of
    div_i K_ij G_j is -Gᵀ K G, which has no positive eigenvalue if K is positive definite. It is
    "right" if no flux is given for a factor along the axis. Raises ValueError if the given fluxes
    lead to different traces, or to a trace whose side changes with the sign of the coefficient.
    """
    for k, term in enumerate(terms):
        _check_partner(k, term, space)
    chains = [chain for term in terms for chain in _chains(term)]
    mixed = {factor.axis for chain in chains for factor in chain if chain[0].axis != chain[1].axis}
    found: dict[Axis, dict[Trace, str]] = {axis: {} for axis in mixed}
    for chain in chains:
        for factor in chain:
            if factor.axis in mixed and given_flux(factor) is not None:
                trace = _side(factor, space)
                words = f"{factor.kind}(..., flux={factor.flux!r})"
                trace = trace if factor.kind == "div" else OPPOSITE_TRACES[trace]
                found[factor.axis].setdefault(trace, words)
    for axis, traces in found.items():
        if len(traces) > 1:
            raise ValueError(
                f"axis {axis.name!r} has a mixed derivative div @ grad, so all its chains must "
                f"take their traces from the same side; {' and '.join(traces.values())} do not. "
                "Leave flux= out of the chains along this axis"
            )
    return {axis: next(iter(traces), "right") for axis, traces in found.items()}


def _check_partner(k: int, term: Term, space: DGSpace) -> None:
    """Warn of a mixed derivative grad @ grad or div @ div, which may have growing modes.

    Such a product is not of the form -Gᵀ K G (see `chain_traces`). ``k`` is the term's number.
    """
    derivatives = [factor for factor in term.factors if factor.kind != "mass"]
    axes = list(dict.fromkeys(factor.axis for factor in derivatives))
    kind = derivatives[0].kind if derivatives else "mass"
    same = all(factor.kind == kind for factor in derivatives) and kind in ("div", "grad")
    walled = any(not isinstance(space.boundary[axis][0], Periodic) for axis in axes)
    if len(derivatives) == len(axes) == 2 and same and walled:
        first, second = (axis.name for axis in axes)
        warnings.warn(
            f"terms[{k}] is a mixed derivative {kind}({first}) @ {kind}({second}), which may grow "
            f"at ends that are not periodic, even where the matrix of diffusion is positive "
            f"definite; write div({first}) @ grad({second})",
            UserWarning,
            stacklevel=users_level(),
        )


def _chains(term: Term) -> list[tuple[TermFactor, TermFactor]]:
    """Return the pairs (div, grad) of a term, each along one axis or of a mixed derivative."""
    derivatives = [factor for factor in term.factors if factor.kind in ("div", "grad")]
    if is_mixed(term.factors):
        div, grad = sorted(derivatives, key=lambda factor: factor.kind)
        return [(div, grad)]
    found = []
    for axis in dict.fromkeys(factor.axis for factor in derivatives):
        along = [factor for factor in derivatives if factor.axis == axis]
        if [factor.kind for factor in along] == ["div", "grad"]:
            found.append((along[0], along[1]))
    return found


def is_mixed(factors: Sequence[TermFactor]) -> bool:
    """Return whether the derivatives are one div and one grad, along different axes."""
    derivatives = [factor for factor in factors if factor.kind != "mass"]
    kinds = {factor.kind for factor in derivatives}
    axes = {factor.axis for factor in derivatives}
    return len(derivatives) == len(axes) == 2 and kinds == {"div", "grad"}


def _side(factor: TermFactor, space: DGSpace) -> Trace:
    """Return the side of the flux given for a factor, which depends on its coefficient's sign."""
    if factor.flux == "central":
        return "central"
    sign = coefficient_sign(factor.coefficient, factor.axis, space)
    if sign == 0.0:
        raise ValueError(
            f"{factor.kind} along {factor.axis.name!r} has flux={factor.flux!r} and a coefficient "
            "that changes sign, in an axis with a mixed derivative div @ grad, where all traces "
            "must be from the same side; leave flux= out"
        )
    return "right" if (factor.flux == "upwind") == (sign > 0.0) else "left"


def chain_fluxes(
    derivatives: Sequence[TermFactor], axis: Axis, space: DGSpace, traces: Traces
) -> dict[int, Trace]:
    """Return the flux of each div and grad along one axis, by the factor's ``id``.

    The two take their traces from opposite sides. If no flux is given for them, the sides do not
    depend on the coefficients' signs, so that the sum of two chains is the chain with the sum of
    their coefficients.
    """
    own = {factor.kind: factor for factor in derivatives}
    if axis in traces or all(given_flux(factor) is None for factor in derivatives):
        by_degree = any(factor.flux == BY_DEGREE for factor in derivatives)
        usual: Trace = "central" if by_degree and space.degree(axis) % 2 == 0 else "right"
        side = traces.get(axis, usual)
        sides = {"div": side, "grad": OPPOSITE_TRACES[side]}
        return {id(factor): sides[factor.kind] for factor in derivatives}
    div, grad = own["div"], own["grad"]
    same_sign = (
        coefficient_sign(div.coefficient, axis, space)
        * coefficient_sign(grad.coefficient, axis, space)
        >= 0
    )
    inner = given_flux(grad) or _opposite_flux(given_flux(div), same_sign)
    outer = given_flux(div) or _opposite_flux(given_flux(grad), same_sign)
    if inner != _opposite_flux(outer, same_sign):
        raise ValueError(
            f"the chain div @ grad along {axis.name!r} has flux {outer!r} in div and "
            f"{inner!r} in grad, which take traces from the same side; leave grad's out, or "
            f"give {_opposite_flux(outer, same_sign)!r}"
        )
    return {id(div): outer, id(grad): inner}


def given_flux(factor: TermFactor) -> Flux | None:
    """Return the flux that was given for a factor; None if there are rules for it."""
    return None if factor.flux == BY_DEGREE else factor.flux


def _opposite_flux(flux: Trace | None, same_sign: bool) -> Trace:
    """Return the flux of a chain's other factor that takes its trace from the opposite side.

    ``same_sign`` says whether the coefficients of the two factors have the same sign.
    """
    assert flux is not None
    return OPPOSITE_TRACES[flux] if same_sign else flux


def coefficient_sign(coefficient: Function, axis: Axis, space: DGSpace) -> float:
    """Return 1 if a coefficient is nowhere negative, -1 if it is nowhere positive, else 0."""
    values = node_values(coefficient, axis, space.level(axis), space.degree(axis))
    if np.all(values >= 0.0):
        return 1.0
    return -1.0 if np.all(values <= 0.0) else 0.0
