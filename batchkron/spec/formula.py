"""A formula of some variables, for backends that compile it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FormulaSpec"]


class FormulaSpec(NamedTuple):
    """A function of arrays and numbers, in the order in which it is computed.

    Attributes
    ----------
    code : tuple of (str, int)
        Operands and operations, each after what it acts on: ("variable", k), ("number", k), and
        with 0 in the place of k "+", "-", "*", "/" and "**" of two before, and "square",
        "negative", "exp", "sqrt", "sin" and "cos" of one.
    variables, numbers : int
        How many arrays and numbers there are, at least one array.
    """

    code: tuple[tuple[str, int], ...]
    variables: int
    numbers: int
