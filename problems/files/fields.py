"""The fields of a problem's terms in its file: formulas as JSON, functions as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import ProblemFileError
from batchkron.storage import Document, strict_json
from batchkron.storage.document import Value
from batchkron.storage.file_errors import refusing
from batchkron.storage.schema import array_of, check_range, texts_of

from ..discretization.fields.derivatives import FieldDerivative
from ..discretization.fields.modes import FieldMode
from ..discretization.matrices.dg_matrices import volume_nodes
from ..discretization.parts import OperatorTerm
from ..statement.axis import Axis
from ..statement.field_axes import check_field
from ..statement.fields import (
    Arithmetic,
    EndMoment,
    FieldExpression,
    Moment,
    Poisson,
    Power,
    Resolved,
    Samples,
    Uniform,
    nodes_of,
)
from .field_derivatives import decode_derivatives, encode_derivatives

__all__ = ["FormulaReader", "decode_fields", "encode_fields", "formula_of"]

_MAX_NODES = 4096  # expressions of one formula; more would take long to evaluate
_OPERATIONS = ("+", "-", "*", "/")


def encode_fields(terms: Sequence[OperatorTerm], axes: Sequence[Axis]) -> dict[str, Value]:
    """Return the datasets of the fields of some terms; none if no term has a field."""
    fields: list[FieldExpression] = []
    rows: list[tuple[int, int, int, int]] = []
    modes: list[FieldMode] = []
    volumes: dict[str, Value] = {}
    for t, term in enumerate(terms):
        for k, mode in enumerate(term.modes):
            if isinstance(mode, FieldMode):
                if mode.field not in fields:
                    fields.append(mode.field)
                rows.append((t, k, fields.index(mode.field), mode.part))
                modes.append(mode)
                if mode.volume is not None:
                    volumes[f"fields/volume_{k}"] = mode.volume
    if not rows:
        return {}
    samples: list[NDArray[np.float64]] = [np.zeros(0)]
    formulas = tuple(strict_json.dumps(formula_of(field, samples)) for field in fields)
    return {
        "fields/formula": formulas,
        "fields/modes": np.array(rows, dtype=np.int64),
        "fields/samples": np.concatenate(samples),
        **volumes,
        **encode_derivatives(modes),
    }


def formula_of(field: FieldExpression, samples: list[NDArray[np.float64]]) -> list[dict[str, Any]]:
    """Return the expressions of a field as JSON, operands by their number; append its samples."""
    nodes = list(nodes_of(field))
    if len(nodes) > _MAX_NODES:
        raise ValueError(f"a field has {len(nodes)} parts; a file holds at most {_MAX_NODES}")
    numbers = {id(node): number for number, node in enumerate(nodes)}
    found: list[dict[str, Any]] = []
    for node in nodes:
        operands = [numbers[id(operand)] for operand in node.operands]
        if isinstance(node, Moment):
            powers = [[axis.name, power] for axis, power in node.powers]
            end = {"end": node.end.name} if isinstance(node, EndMoment) else {}
            found.append({"kind": "moment", "powers": powers, **end})
        elif isinstance(node, Uniform):
            found.append({"kind": "number", "value": node.value})
        elif isinstance(node, Samples):
            first = sum(part.size for part in samples)
            found.append({"kind": "samples", "name": node.name, "first": first})
            samples.append(node.values.ravel())
        elif isinstance(node, Power):
            found.append({"kind": "power", "of": operands, "exponent": node.exponent})
        elif isinstance(node, Resolved):
            names = [axis.name for axis in node.velocities]
            found.append({"kind": "resolved", "of": operands, "velocities": names})
        elif isinstance(node, Poisson):
            ends = None if node.potential is None else list(node.potential)
            found.append(
                {"kind": "poisson", "axis": node.axis.name, "of": operands, "potential": ends}
            )
        else:
            assert isinstance(node, Arithmetic)
            found.append({"kind": node.operation, "of": operands})
    return found


def decode_fields(
    document: Document,
    terms: tuple[OperatorTerm, ...],
    axes: tuple[Axis, ...],
    levels: tuple[int, ...],
    degrees: tuple[int, ...],
) -> tuple[OperatorTerm, ...]:
    """Return the terms with the fields that the document has for them."""
    if "fields/modes" not in document.datasets:
        decode_derivatives(document, [])
        return terms
    table = array_of(document, "fields/modes")
    formulas = texts_of(document, "fields/formula")
    bounds = ((0, len(terms)), (0, len(axes)), (0, len(formulas)), (-1, 2))
    for column, (first, stop) in enumerate(bounds):
        check_range("fields/modes", table[:, column], first, stop)
    rows = table.tolist()
    owners = {number: k for _, k, number, _ in rows}
    if len({(t, k) for t, k, _, _ in rows}) < len(rows) or len(owners) < len(formulas):
        raise ProblemFileError(
            "dataset 'fields/modes' names a mode twice, or not every formula; expected each mode "
            "once, and no formula without a mode"
        )
    fields = []
    for number, text in enumerate(formulas):
        k = owners[number]
        with refusing(f"dataset 'fields/formula'[{number}]"):
            reader = FormulaReader(axes, axes[k], levels[k], degrees[k], document)
            fields.append(reader.read(strict_json.loads(text)))
    derivatives = decode_derivatives(document, rows)
    made: dict[tuple[Any, ...], FieldMode] = {}
    changed = [list(term.modes) for term in terms]
    for row, (t, k, number, part) in enumerate(rows):
        if changed[t][k] is not None:
            raise ProblemFileError(
                f"dataset 'fields/modes' gives terms[{t}] a field along axis {k}, where it has an "
                "operator; expected the identity"
            )
        with refusing(f"dataset 'fields/formula'[{number}]"):
            if check_field(fields[number], axes, axes[k]) != axes[k]:
                raise ValueError(f"it is not a function of {axes[k].name!r}")
        own = derivatives.get(row)
        key = (number, k, part, own)
        if key not in made:
            volume = _volume(document, k, levels[k], degrees[k])
            arguments = axes[k], levels[k], degrees[k], fields[number], part, volume
            made[key] = FieldMode(*arguments) if own is None else FieldDerivative(*arguments, *own)
        changed[t][k] = made[key]
    return tuple(
        replace(term, modes=tuple(modes)) for term, modes in zip(terms, changed, strict=True)
    )


def _volume(document: Document, k: int, level: int, degree: int) -> NDArray[np.float64] | None:
    path = f"fields/volume_{k}"
    if path not in document.datasets:
        return None
    values = array_of(document, path)
    expected = (1 << level, volume_nodes(degree))
    if values.shape != expected:
        raise ProblemFileError(f"dataset '{path}' has shape {values.shape}; expected {expected}")
    return values


class FormulaReader:
    """Reads the formula of one field; raises ValueError, TypeError or KeyError if it is bad."""

    def __init__(
        self,
        axes: Sequence[Axis],
        axis: Axis,
        level: int,
        degree: int,
        document: Document,
        path: str = "fields/samples",
    ) -> None:
        self._axes = {own.name: own for own in axes}
        self._axis = axis
        self._shape = (1 << level, volume_nodes(degree))
        self._path, self._samples = path, array_of(document, path)

    def read(self, formula: Any) -> FieldExpression:
        """Return the last expression of the list."""
        if not isinstance(formula, list) or not 0 < len(formula) <= _MAX_NODES:
            raise ValueError(f"it is no list of 1 to {_MAX_NODES} expressions")
        made: list[FieldExpression] = []
        for number, entry in enumerate(formula):
            if not isinstance(entry, dict):
                raise TypeError(f"expression {number} is no object")
            operands = entry.get("of", [])
            if not isinstance(operands, list) or not all(
                type(i) is int and 0 <= i < number for i in operands
            ):
                raise ValueError(f"expression {number} has operands {operands!r}; expected earlier")
            try:
                made.append(self._expression(entry, [made[i] for i in operands]))
            except KeyError as error:
                raise ValueError(f"expression {number}: {error} is missing or unknown") from error
        return made[-1]

    def _expression(self, entry: Mapping[str, Any], given: list[FieldExpression]) -> Any:
        kind, count = entry.get("kind"), len(given)
        if kind in _OPERATIONS and count == 2:
            return Arithmetic(kind, *given)
        if kind == "power" and count == 1:
            return given[0] ** entry["exponent"]
        if kind == "resolved" and count == 1:
            return Resolved(given[0], tuple(self._axes[name] for name in entry["velocities"]))
        if kind == "number" and count == 0:
            return Uniform(_number(entry["value"]))
        if kind == "moment" and count == 0:
            powers = {self._axes[name]: power for name, power in entry["powers"]}
            return EndMoment(self._axes[entry["end"]], powers) if "end" in entry else Moment(powers)
        if kind == "samples" and count == 0:
            return self._sampled(entry)
        if kind == "poisson" and count in (1, 2):
            ends = entry["potential"]
            potential = None if ends is None else (_number(ends[0]), _number(ends[1]))
            axis = self._axes[entry["axis"]]
            if count == 1:
                return Poisson(axis, given[0], potential=potential)
            return Poisson(axis, given[0], given[1], potential=potential)
        raise ValueError(f"{kind!r} with {count} operands is no expression")

    def _sampled(self, entry: Mapping[str, Any]) -> Samples:
        first, name = entry["first"], entry["name"]
        size = self._shape[0] * self._shape[1]
        if type(first) is not int or not 0 <= first <= self._samples.size - size:
            raise ValueError(f"samples begin at {first!r}; expected them in '{self._path}'")
        if not isinstance(name, str):
            raise TypeError("the name of samples is no text")
        values = self._samples[first : first + size].reshape(self._shape)
        values.setflags(write=False)
        return Samples(values, name)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    return float(value)
