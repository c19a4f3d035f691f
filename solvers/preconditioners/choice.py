"""Preconditioners by name, as `evolve` and the command line take them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any
from weakref import WeakSet

from batchkron.operators import BatchedKron, KroneckerTerms
from batchkron.operators.kronecker_terms import terms_of

from .block_jacobi import block_jacobi, blocks_of
from .combination import CombinationPreconditioner
from .fibre_inverse import FibreInverse

__all__ = ["NamedPreconditioner", "PreconditionerWarning", "make", "names"]

# Names of combination preconditioners, with the options of `CombinationPreconditioner`.
_COMBINATIONS: dict[str, dict[str, Any]] = {
    "symmetric-combination": {"composition": "symmetric"},
    "multiplicative-combination": {"composition": "multiplicative"},
    "combination": {},
    "kronecker-sum": {"local": "sum"},
    "kronecker-product": {"local": "product"},
}
_NAMES = ("auto", *_COMBINATIONS, "fibre-inverse", "block-jacobi", "none")
_WARNED: WeakSet[Any] = WeakSet()  # operators of which a warning has been given
_MAX_ROWS = 1024  # of the factors of blocks that are inverted where terms are not known; by hand


class PreconditionerWarning(UserWarning):
    """The preconditioner "auto" is not built from Kronecker terms, but block Jacobi or none."""


def names() -> tuple[str, ...]:
    """Return the names of the preconditioners.

    Examples
    --------
    >>> from batchkron.solvers import preconditioners
    >>> preconditioners.names()[:3]
    ('auto', 'symmetric-combination', 'multiplicative-combination')
    >>> preconditioners.names()[3:]
    ('combination', 'kronecker-sum', 'kronecker-product', 'fibre-inverse', 'block-jacobi', 'none')
    """
    return _NAMES


def make(name: str, operator: Any, scale: Any = None, *, dtype: Any = None) -> Any:
    """Return a preconditioner of I - scale · A, or of A.

    Parameters
    ----------
    name : str
        One of `names`. "auto" is "fibre-inverse" on the cells of a grid where that is the inverse,
        or near it (`FibreInverse.if_suitable`). Otherwise it is "symmetric-combination" in two
        dimensions and "combination" in other dimensions, if the 1-D matrices are small enough to be
        factorised. If they are not, it is "block-jacobi" on the cells of a grid, and "none" without
        cells. For an operator without Kronecker terms, such as a batch list in which none are
        found, it is "block-jacobi", or "none" if the operator has no diagonal blocks either; then
        a warning says so, once for each operator.
    operator : Operator or KroneckerTerms
        The operator A.
    scale : scalar, optional
        The number in I - scale · A; None stands for A itself.
    dtype : dtype, optional
        Dtype of the vectors.

    Returns
    -------
    object with ``shape``, ``dtype`` and ``matvec(x, out=None)``, or None
        The argument ``M`` for any solver; None for "none".

    Raises
    ------
    ValueError
        If the name is unknown, or the preconditioner does not fit the operator.
    TypeError
        If the operator has no Kronecker terms, or no diagonal blocks for "block-jacobi".

    Warns
    -----
    PreconditionerWarning
        If "auto" is not built from Kronecker terms.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> from batchkron.solvers import preconditioners
    >>> M = preconditioners.make("auto", bk.KroneckerSum([np.diag([1.0, 2.0])] * 2))
    >>> print(M.matvec(np.ones(4)).round(3))
    [0.5   0.333 0.333 0.25 ]
    """
    _check(name)
    if name == "none":
        return None
    if name == "auto":
        return _automatic(operator, scale, dtype)
    if name == "fibre-inverse":
        return FibreInverse(operator, scale, dtype=dtype)
    if name == "block-jacobi":
        return block_jacobi(operator, scale, dtype=dtype)
    return CombinationPreconditioner(operator, scale, **_COMBINATIONS[name], dtype=dtype)


class NamedPreconditioner:
    """A function (A, c) -> M ≈ (I - c A)⁻¹ that reuses whatever does not depend on c.

    Parameters
    ----------
    name : str
        One of `names`.
    dtype : dtype, optional
        Dtype of the vectors.
    deal : callable, optional
        ``deal(M, A)`` returns a whole preconditioner on the blocks of a distributed operator A,
        which knows the Kronecker terms of the whole one.
    in_place : bool
        Whether M for another c may be the same object, changed: then what a device has recorded
        of products with it is repeated for the new c.

    Raises
    ------
    ValueError
        If the name is unknown.
    """

    def __init__(
        self,
        name: str,
        dtype: Any = None,
        deal: Callable[[Any, Any], Any] | None = None,
        *,
        in_place: bool = False,
    ) -> None:
        _check(name)
        self.name, self._dtype, self._deal, self._in_place = name, dtype, deal, in_place
        self._operator: Any = None
        self._made: Any = None

    def __call__(self, operator: Any, scale: Any) -> Any:
        """Return M for the operator A and the number c."""
        if operator is self._operator and hasattr(self._made, "shifted"):
            if self._in_place and hasattr(self._made, "rescale"):
                self._made.rescale(scale)
            else:
                self._made = self._made.shifted(scale)
            return self._made
        self._operator = operator
        self._made = make(self.name, operator, scale, dtype=self._dtype)
        if self._deal is not None and self._made is not None:
            self._made = self._deal(getattr(self._made, "product", self._made), operator)
        return self._made


def _check(name: Any) -> None:
    if name in _NAMES:
        return
    close = get_close_matches(str(name).lower().replace("_", "-"), _NAMES, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(match) for match in close)}?" if close else ""
    raise ValueError(f"preconditioner is {name!r}; expected one of {', '.join(_NAMES)}.{hint}")


def _automatic(operator: Any, scale: Any, dtype: Any) -> Any:
    if isinstance(operator, KroneckerTerms):  # "symmetric" would need products with the operator
        return CombinationPreconditioner(operator, scale, dtype=dtype)
    if getattr(operator, "batch_shape", None):
        return _without_terms(operator, scale, dtype, "it has several systems")
    try:
        terms = terms_of(operator)
    except TypeError as fault:
        return _without_terms(operator, scale, dtype, str(fault))
    if getattr(operator, "communicator", None) is None:
        fibres = FibreInverse.if_suitable(operator, terms, scale, dtype=dtype)
        if fibres is not None:
            return fibres
    if not CombinationPreconditioner.fits(terms):
        if terms.cells is not None:
            return block_jacobi(operator, scale, dtype=dtype)
        return _without_terms(operator, scale, dtype, "its 1-D matrices are too large")
    # With more than two modes, the residuals between the two parts cost more than they save.
    name = "symmetric-combination" if len(terms.sizes) == 2 else "combination"
    return CombinationPreconditioner(operator, scale, **_COMBINATIONS[name], dtype=dtype)


def _without_terms(operator: Any, scale: Any, dtype: Any, reason: str) -> Any:
    """Return block Jacobi, or None for an operator without diagonal blocks; warn of that."""
    made, name = None, "none"
    try:
        blocks = blocks_of(operator)
    except (TypeError, ValueError):
        blocks = None
    if blocks is not None and max(blocks.sizes) <= _MAX_ROWS:
        device = str(getattr(operator, "device", "cpu"))
        made, name = block_jacobi(blocks, scale, dtype=dtype, device=device), "block-jacobi"
    text = f"the preconditioner 'auto' is {name!r} here: {reason}"
    if isinstance(made, BatchedKron):
        made._known.remark = text
    if _is_first(operator):
        warnings.warn(text, PreconditionerWarning, stacklevel=4)
    return made


def _is_first(operator: Any) -> bool:
    """Whether no warning of this operator has been given, as far as that is known."""
    if getattr(getattr(operator, "communicator", None), "rank", 0):
        return False  # rank 0 says it for all
    try:
        if operator in _WARNED:
            return False
        _WARNED.add(operator)
    except TypeError:  # some arrays and matrices have no hash
        pass
    return True
