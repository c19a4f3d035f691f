"""Preconditioners by name, as `evolve` and the command line take them."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from batchkron.attributes import attribute, has_attribute
from batchkron.log import logger
from batchkron.plugins import loaded_plugin, with_plugins

from .automatic import COMBINATIONS, PreconditionerWarning, automatic
from .base import round_scale
from .block_jacobi import block_jacobi
from .combination import CombinationPreconditioner
from .fibre_inverse import FibreInverse

__all__ = ["NamedPreconditioner", "PreconditionerWarning", "make", "names"]

_NAMES = ("auto", *COMBINATIONS, "fibre-inverse", "block-jacobi", "none")
_GROUP = "batchkron.preconditioners"
_log = logger("preconditioner")


def names() -> tuple[str, ...]:
    """Return the names of the preconditioners.

    Those that other distributions bring by entry points of the group "batchkron.preconditioners"
    come last: functions ``(A, scale, dtype)`` that return M ≈ (I - scale A)⁻¹, or A⁻¹ for the scale
    None.

    Examples
    --------
    >>> from batchkron.solvers import preconditioners
    >>> preconditioners.names()[:3]
    ('auto', 'symmetric-combination', 'multiplicative-combination')
    >>> preconditioners.names()[3:7]
    ('combination', 'factorised-combination', 'kronecker-sum', 'kronecker-product')
    >>> preconditioners.names()[7:]
    ('unmixed-sum', 'scaled-sum', 'fibre-inverse', 'block-jacobi', 'none')
    """
    return with_plugins(_NAMES, _GROUP, _checked)


def _checked(name: str, value: Any) -> Any:
    """Return the function that an entry point is; raise TypeError if it is none."""
    if not callable(value):
        raise TypeError(f"expected a function (A, scale, dtype), got {value!r}")
    return value


def make(name: str, operator: Any, scale: Any = None, *, dtype: Any = None) -> Any:
    """Return a preconditioner of I - scale · A, or of A.

    Parameters
    ----------
    name : str
        One of `names`. "auto" is

        - "fibre-inverse" on the cells of a grid where that is the inverse, or near it
          (`FibreInverse.if_suitable`);
        - "symmetric-combination" in two dimensions and "combination" in other ones where the full
          grids are solved exactly through eigenvectors, if need be without terms that are smaller
          than a thousandth of the largest;
        - "factorised-combination" otherwise, also on grids that have only parts of their full
          grids, if the factors are small enough;
        - else the best of several others in a trial: 4 Arnoldi steps for each, at most 25 products;
        - "block-jacobi" on the cells of a grid, and "none" without cells, if the 1-D matrices are
          too large;
        - "block-jacobi" for an operator without Kronecker terms, such as a batch list in which none
          are found, or "none" if the operator has no diagonal blocks either; then a warning says
          so, once for each operator.

        ``describe()`` of the preconditioner says which, and why.
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
    return _made(name, operator, scale, dtype)


def _made(name: str, operator: Any, scale: Any, dtype: Any, factorised_at: Any = None) -> Any:
    """Return `make`; factors are computed for another scale near it if that is given."""
    _check(name)
    if name == "none":
        return None
    if name == "auto":
        found = automatic(operator, scale, dtype, factorised_at)
        kind, given = type(found).__name__, type(operator).__name__
        _log.info("auto is %s for a %s", "none" if found is None else kind, given)
        return found
    if name == "fibre-inverse":
        return FibreInverse(operator, scale, dtype=dtype)
    if name == "block-jacobi":
        return block_jacobi(operator, scale, dtype=dtype)
    if name not in COMBINATIONS:
        return loaded_plugin(_GROUP, name, _checked)(operator, scale, dtype)
    options: dict[str, Any] = COMBINATIONS[name]
    return CombinationPreconditioner(
        operator, scale, **options, dtype=dtype, factorised_at=factorised_at
    )


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
        self._at: Any = None

    def __call__(self, operator: Any, scale: Any) -> Any:
        """Return M for the operator A and the number c."""
        at = round_scale(scale)
        if operator is self._operator and has_attribute(self._made, "shifted"):
            if at != self._at and attribute(self._made, "keeps_factors", False):
                self._move(at)
            self._move(scale)
        else:
            self._operator = operator
            self._made = _made(self.name, operator, scale, self._dtype, at)
            if self._deal is not None and self._made is not None:
                self._made = self._deal(attribute(self._made, "product", self._made), operator)
        self._at = at
        return self._made

    def _move(self, scale: Any) -> None:
        if self._in_place and has_attribute(self._made, "rescale"):
            self._made.rescale(scale)
        else:
            self._made = self._made.shifted(scale)


def _check(name: Any) -> None:
    if name in _NAMES:
        return
    if isinstance(name, str) and loaded_plugin(_GROUP, name, _checked) is not None:
        return
    known = names()
    close = get_close_matches(str(name).lower().replace("_", "-"), known, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(match) for match in close)}?" if close else ""
    raise ValueError(f"preconditioner is {name!r}; expected one of {', '.join(known)}.{hint}")
