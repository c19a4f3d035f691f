"""Formulas as text: a small grammar that is read without running any of it as Python."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from batchkron.spec.formula import FormulaSpec

__all__ = ["Formula", "FormulaText"]

_MAX_LENGTH = 2000  # characters; Python's parser needs a bounded stack for so many
_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
}
_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
    ast.USub: np.negative,
    ast.UAdd: np.positive,
}
_SYMBOLS: Mapping[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
}
_GRAMMAR = "numbers, + - * / **, parentheses, exp, sqrt, sin, cos"


@dataclass(frozen=True)
class Formula:
    """A function of some variables, given by a text such as "exp(-x**2) * sin(y - t)".

    ``text``: numbers, names of variables, ``+ - * / **``, parentheses and the functions exp, sqrt,
      sin and cos.
    ``variables``: the names that may occur.
    ``names``: the variables that occur.

    Raises `TypeError` if the text is no string. `ValueError` if it has something else, which the
    error names.

    Examples
    --------
    >>> Formula("2 * x + y", ("x", "y"))({"x": 1.0, "y": 0.5})
    np.float64(2.5)
    """

    text: str
    variables: tuple[str, ...] = field(repr=False)
    names: frozenset[str] = field(init=False, repr=False, compare=False)
    _tree: ast.expr = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"a formula is a text, got {type(self.text).__name__}")
        if len(self.text) > _MAX_LENGTH:
            raise ValueError(
                f"the formula has {len(self.text)} characters; expected at most {_MAX_LENGTH}"
            )
        try:
            tree = ast.parse(self.text.strip(), mode="eval").body
            names = frozenset(_names(tree, self.variables, self.text))
        except (SyntaxError, OverflowError, RecursionError, MemoryError) as error:
            names_text = f"the names {', '.join(self.variables)}" if self.variables else "names"
            raise ValueError(
                f"{self.text!r} is no formula ({error}); it may have {_GRAMMAR} and {names_text}"
            ) from None
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "_tree", tree)

    def having(self, name: str, other: Formula) -> Formula:
        """Return the formula with another one in the place of a variable."""
        tree = _Replaced(name, other._tree).visit(ast.parse(self.text.strip(), mode="eval"))
        rest = [own for own in self.variables if own != name]
        return Formula(ast.unparse(tree), tuple(dict.fromkeys((*rest, *other.variables))))

    def compiled(
        self, arrays: Sequence[str], scalars: Sequence[str]
    ) -> tuple[FormulaSpec, list[float]]:
        """Return the formula of some arrays and scalars for backends, and its own numbers.

        The variables that occur are among them. Numbers are the scalars, then those of the text.
        """
        numbers: list[float] = []
        places = {name: ("variable", k) for k, name in enumerate(arrays)}
        places |= {name: ("number", k) for k, name in enumerate(scalars)}
        code = tuple(_code(self._tree, places, numbers, len(scalars)))
        return FormulaSpec(code, len(arrays), len(scalars) + len(numbers)), numbers

    def __reduce__(self) -> tuple[Any, ...]:
        return Formula, (self.text, self.variables)

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Return the value for numbers or arrays, which NumPy or the arrays' library computes."""
        with np.errstate(all="ignore"):  # the caller checks the values
            return _value(self._tree, values)

    def derivative(self, name: str, values: Mapping[str, Any]) -> Any:
        """Return the derivative with respect to a variable, for numbers or arrays."""
        with np.errstate(all="ignore"):
            _, slope = _with_slope(self._tree, values, name)
            return 0.0 * values[name] if slope is None else slope


class _Replaced(ast.NodeTransformer):
    def __init__(self, name: str, tree: ast.expr) -> None:
        self._name, self._tree = name, tree

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._tree if node.id == self._name else node


@dataclass(frozen=True)
class FormulaText:
    """The text of a formula whose variables are not known yet, as a function of named arguments.

    Raises ValueError if it is no formula of any variables.
    """

    text: str

    def __post_init__(self) -> None:
        try:
            tree = ast.parse(self.text.strip(), mode="eval")
        except (SyntaxError, RecursionError, MemoryError):
            names = set()  # the formula says what is wrong
        else:
            names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        Formula(self.text, tuple(sorted(names - set(_FUNCTIONS))))

    def __call__(self, **values: Any) -> Any:
        """Return the value for the values of all variables."""
        return Formula(self.text, tuple(values))(values)


def _names(node: ast.expr, variables: Collection[str], text: str) -> set[str]:
    """Return the variables of a formula; refuse what is not in the grammar."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        float(node.value)  # type: ignore[arg-type]  # raises OverflowError for 10**400 written out
        return set()
    if isinstance(node, ast.Name):
        if node.id in variables:
            return {node.id}
        known = f"{', '.join(variables)}, or " if variables else "a number or "
        raise ValueError(
            f"{text!r} names {node.id!r}; expected {known}one of the functions "
            f"{', '.join(_FUNCTIONS)}"
        )
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _names(node.operand, variables, text)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _names(node.left, variables, text) | _names(node.right, variables, text)
    if (
        isinstance(node, ast.Call)
        and getattr(node.func, "id", None) in _FUNCTIONS
        and len(node.args) == 1
        and not node.keywords
    ):
        return _names(node.args[0], variables, text)
    part = ast.get_source_segment(text.strip(), node) or type(node).__name__
    raise ValueError(f"{text!r} has {part!r}; a formula may have {_GRAMMAR}, and names")


def _code(
    node: ast.expr, places: Mapping[str, tuple[str, int]], numbers: list[float], first: int
) -> Iterator[tuple[str, int]]:
    """Yield the operands and operations of a `FormulaSpec`, and append numbers of the text."""
    if isinstance(node, ast.Constant):
        numbers.append(float(node.value))  # type: ignore[arg-type]
        yield "number", first + len(numbers) - 1
        return
    if isinstance(node, ast.Name):
        yield places[node.id]
        return
    if isinstance(node, ast.BinOp):
        yield from _code(node.left, places, numbers, first)
        right = node.right
        if isinstance(node.op, ast.Pow) and isinstance(right, ast.Constant) and right.value == 2:
            yield "square", 0
            return
        yield from _code(right, places, numbers, first)
        yield _SYMBOLS[type(node.op)], 0
        return
    is_call = isinstance(node, ast.Call)
    yield from _code(node.args[0] if is_call else node.operand, places, numbers, first)  # type: ignore[attr-defined]
    if is_call:
        yield node.func.id, 0  # type: ignore[attr-defined]
    elif isinstance(node.op, ast.USub):  # type: ignore[attr-defined]
        yield "negative", 0


def _with_slope(node: ast.expr, values: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """Return a value and its derivative with respect to a variable, None if that is zero."""
    if isinstance(node, ast.Name):
        return values[node.id], np.float64(1.0) if node.id == name else None
    if isinstance(node, ast.UnaryOp):
        operator, (value, slope) = (
            _OPERATORS[type(node.op)],
            _with_slope(node.operand, values, name),
        )
        return operator(value), None if slope is None else operator(slope)
    if isinstance(node, ast.BinOp):
        left, right = (_with_slope(own, values, name) for own in (node.left, node.right))
        value = _OPERATORS[type(node.op)](left[0], right[0])
        parts = _PARTIAL[type(node.op)](left[0], right[0], value)
        slopes = [
            part() * own for part, (_, own) in zip(parts, (left, right), strict=True)
            if own is not None
        ]  # fmt: skip
        return value, sum(slopes[1:], slopes[0]) if slopes else None
    if isinstance(node, ast.Call):
        (argument, slope), function = _with_slope(node.args[0], values, name), _called_name(node)
        value = _FUNCTIONS[function](argument)
        return value, None if slope is None else _SLOPES[function](argument, value) * slope
    return _value(node, values), None


# The derivatives of a function with respect to its argument x, where its value is y; and of an
# operation with respect to its left and its right operand, where its value is z.
_SLOPES: Mapping[str, Callable[[Any, Any], Any]] = {
    "exp": lambda x, y: y,
    "sqrt": lambda x, y: 0.5 / y,
    "sin": lambda x, y: np.cos(x),
    "cos": lambda x, y: -np.sin(x),
}
_PARTIAL: Mapping[type[ast.AST], Callable[[Any, Any, Any], tuple[Callable[[], Any], ...]]] = {
    ast.Add: lambda x, y, z: (lambda: 1.0, lambda: 1.0),
    ast.Sub: lambda x, y, z: (lambda: 1.0, lambda: -1.0),
    ast.Mult: lambda x, y, z: (lambda: y, lambda: x),
    ast.Div: lambda x, y, z: (lambda: 1.0 / y, lambda: -z / y),
    ast.Pow: lambda x, y, z: (lambda: y * x ** (y - 1.0), lambda: z * np.log(x)),
}


def _called_name(node: ast.Call) -> str:
    assert isinstance(node.func, ast.Name)
    return node.func.id


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return np.float64(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.UnaryOp):
        return _OPERATORS[type(node.op)](_value(node.operand, values))
    if isinstance(node, ast.BinOp):
        both = _value(node.left, values), _value(node.right, values)
        return _OPERATORS[type(node.op)](*both)
    assert isinstance(node, ast.Call)
    return _FUNCTIONS[_called_name(node)](_value(node.args[0], values))
