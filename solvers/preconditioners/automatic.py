"""The preconditioner "auto": which one it is for an operator, and why."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from batchkron.attributes import attribute
from batchkron.callers import users_level
from batchkron.operators import BatchedKron, KroneckerTerms
from batchkron.operators.kronecker_terms import terms_of

from .base import round_scale
from .bases import ModeBases
from .block_jacobi import block_jacobi, blocks_of
from .combination import CombinationPreconditioner
from .factorised import TooLargeError
from .fibre_inverse import FibreInverse
from .small_terms import without_small
from .subgrids import subgrids
from .trials import fastest

__all__ = ["COMBINATIONS", "PreconditionerWarning", "automatic"]

# Names of combination preconditioners, with the options of `CombinationPreconditioner`.
COMBINATIONS: dict[str, dict[str, Any]] = {
    "symmetric-combination": {"composition": "symmetric"},
    "multiplicative-combination": {"composition": "multiplicative"},
    "combination": {},
    "factorised-combination": {"local": "factorised"},
    "kronecker-sum": {"local": "sum"},
    "kronecker-product": {"local": "product"},
    "unmixed-sum": {"local": "unmixed"},
    "scaled-sum": {"local": "scaled"},
}
_WARNED: WeakValueDictionary[int, Any] = WeakValueDictionary()  # operators warned of, by id
_MAX_ROWS = 1024  # of the factors of blocks that are inverted where terms are not known; by hand
_TRIED: WeakKeyDictionary[Any, dict[Any, dict[str, float]]] = WeakKeyDictionary()
_MAX_PRODUCTS = 25  # with A, of all trials for one operator and scale
_SMALL = 1e-3  # size, relative to the largest term, of terms that may be left out of M


class PreconditionerWarning(UserWarning):
    """The preconditioner "auto" is not built from Kronecker terms, but block Jacobi or none."""


def automatic(operator: Any, scale: Any, dtype: Any, factorised_at: Any = None) -> Any:
    """Return the preconditioner "auto" of I - scale · A, or of A; see `make`."""
    if attribute(operator, "batch_shape"):
        return _without_terms(operator, scale, dtype, "it has several systems")
    try:
        terms = terms_of(operator)
    except TypeError as fault:
        return _without_terms(operator, scale, dtype, str(fault))
    is_whole = attribute(operator, "communicator") is None
    if is_whole and not isinstance(operator, KroneckerTerms):
        fibres = FibreInverse.if_suitable(operator, terms, scale, dtype=dtype)
        if fibres is not None:
            return fibres
    if not CombinationPreconditioner.fits(terms):
        if terms.cells is not None:
            return block_jacobi(operator, scale, dtype=dtype)
        return _without_terms(operator, scale, dtype, "its 1-D matrices are too large")
    # With more than two modes, the residuals between the two parts cost more than they save; for
    # KroneckerTerms there are no products with the operator.
    in_parts = len(terms.sizes) == 2 and not isinstance(operator, KroneckerTerms)
    usual = COMBINATIONS["symmetric-combination" if in_parts else "combination"]
    bases, reason = _exact_bases(terms, scale, str(attribute(operator, "device", "cpu")))
    if bases is not None:
        M = CombinationPreconditioner(operator, scale, **usual, dtype=dtype, bases=bases)
        M.remarks = (f"chosen because {reason}",)
        return M
    factorised = COMBINATIONS["factorised-combination"]
    try:
        M = CombinationPreconditioner(
            operator, scale, **factorised, dtype=dtype, factorised_at=factorised_at
        )
    except TooLargeError as fault:
        return _fastest(operator, terms, scale, dtype, usual, str(fault))
    M.remarks = (f"chosen because {reason}",)
    return M


def _fastest(
    operator: Any, terms: KroneckerTerms, scale: Any, dtype: Any, usual: dict[str, Any], reason: str
) -> Any:
    """Return the best of a few preconditioners in a trial, known ones without another trial."""
    if isinstance(operator, KroneckerTerms) or attribute(operator, "communicator") is not None:
        return CombinationPreconditioner(operator, scale, **usual, dtype=dtype)
    makers: dict[str, Callable[[], Any]] = {
        name: partial(CombinationPreconditioner, operator, scale, **COMBINATIONS[name], dtype=dtype)
        for name in ("unmixed-sum", "scaled-sum", "combination")
    }
    if terms.cells is not None:
        makers["block-jacobi"] = partial(block_jacobi, operator, scale, dtype=dtype)
    known = _TRIED.setdefault(operator, {})
    key = (round_scale(scale), np.dtype(terms.dtype if dtype is None else dtype))
    if key not in known:
        known[key] = fastest(makers, operator, scale, _MAX_PRODUCTS)[1]
    rates = known[key]
    M = makers[min(rates, key=rates.__getitem__)]()
    shown = ", ".join(f"{name} {rate:.3f}" for name, rate in rates.items())
    text = f"chosen by residuals' reduction per product: {shown}; {reason}"
    if isinstance(M, CombinationPreconditioner):
        M.remarks = (text,)
    else:
        M._known.remark = text
    return M


def _exact_bases(terms: KroneckerTerms, scale: Any, device: str) -> tuple[ModeBases | None, str]:
    """Return bases in which the full grids are solved exactly, or None, and the reason."""
    grids = sorted(subgrids(terms), key=lambda grid: sum(grid.levels))  # the cheap ones first
    if not all(grid.complete for grid in grids):
        return None, "the grid has only parts of its full grids"
    large = without_small(terms, _SMALL, scale)
    candidates = [terms] if len(large.terms) == len(terms.terms) else [terms, large]
    for own in candidates:
        bases = ModeBases(own)
        if all(bases.are_exact(grid.levels, device) for grid in grids):
            left_out = len(terms.terms) - len(own.terms)
            without = f" without {left_out} small terms" if left_out else ""
            return bases, f"eigenvectors solve on all full grids{without}"
    return None, "the 1-D matrices of several modes do not commute"


def _without_terms(operator: Any, scale: Any, dtype: Any, reason: str) -> Any:
    """Return block Jacobi, or None for an operator without diagonal blocks; warn of that."""
    made, name = None, "none"
    try:
        blocks = blocks_of(operator)
    except (TypeError, ValueError):
        blocks = None
    if blocks is not None and max(blocks.sizes) <= _MAX_ROWS:
        device = str(attribute(operator, "device", "cpu"))
        made, name = block_jacobi(blocks, scale, dtype=dtype, device=device), "block-jacobi"
    text = f"the preconditioner 'auto' is {name!r} here: {reason}"
    if isinstance(made, BatchedKron):
        made._known.remark = text
    if _is_first(operator):
        warnings.warn(text, PreconditionerWarning, stacklevel=users_level())
    return made


def _is_first(operator: Any) -> bool:
    """Whether no warning of this operator has been given, as far as that is known."""
    if getattr(attribute(operator, "communicator"), "rank", 0):
        return False  # rank 0 says it for all
    try:
        if _WARNED.get(id(operator)) is operator:
            return False
        _WARNED[id(operator)] = operator
    except TypeError:  # some arrays have no weak references
        pass
    return True
