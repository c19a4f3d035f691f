"""Who owns what of vectors on ranks, in sums and compositions of distributed operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchkron.operators.base import OperatorBase

__all__ = ["layouts_of_composition", "layouts_of_sum"]


def layouts_of_sum(terms: Sequence[OperatorBase[Any]]) -> tuple[Any, Any]:
    """Return the layouts of x and of Σ A_t x, which may not differ; None if not distributed."""
    of_x, of_y = zip(*[term._layouts() for term in terms], strict=True)
    return _common(of_x, "add"), _common(of_y, "add")


def layouts_of_composition(links: Sequence[OperatorBase[Any]]) -> tuple[Any, Any]:
    """Return the layouts of x and of A_1 … A_m x; operators without one leave vectors in place."""
    of_x = of_y = None
    for link in reversed(links):
        taken, given = link._layouts()
        _common([of_y, taken], "compose")
        of_x = taken if of_x is None else of_x
        of_y = of_y if given is None else given
    return of_x, of_y


def _common(layouts: Sequence[Any], what: str) -> Any:
    """Return the layout of all that have one, or None."""
    known = [one for one in layouts if one is not None]
    if any(not one.agrees_with(known[0]) for one in known[1:]):
        raise ValueError(
            f"distributed operators of different layouts do not {what}: ranks would own different "
            f"elements of a vector; compare layout and output_layout"
        )
    return known[0] if known else None
