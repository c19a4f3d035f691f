"""Derivatives along the axis of their own field in a problem's file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from batchkron.errors import ProblemFileError
from batchkron.storage import Document
from batchkron.storage.document import Value
from batchkron.storage.schema import array_of, check_range

from ..discretization.fields.derivatives import DERIVATIVE_ENDS, FieldDerivative
from ..discretization.fields.modes import FieldMode
from ..statement.coefficients import FLUX_SIGNS

__all__ = ["Derivative", "decode_derivatives", "encode_derivatives"]

Derivative: TypeAlias = tuple[Any, Any, Any, float]
"""The kind, flux, ends and scale of a `FieldDerivative`."""

_TABLE, _SCALES = "fields/derivatives", "fields/derivative_scales"
_KINDS = ("div", "grad")
_FLUXES = {int(sign): flux for flux, sign in FLUX_SIGNS.items()}


def encode_derivatives(modes: Sequence[FieldMode]) -> dict[str, Value]:
    """Return the datasets of those modes that are derivatives; none if no mode is one.

    ``modes`` are in the order of the rows of 'fields/modes'.
    """
    rows, scales = [], []
    for number, mode in enumerate(modes):
        if isinstance(mode, FieldDerivative):
            ends = [DERIVATIVE_ENDS.index(end) for end in mode.ends]
            sign = int(FLUX_SIGNS[mode.flux])
            rows.append((number, _KINDS.index(mode.kind), sign, *ends))
            scales.append(mode.scale)
    if not rows:
        return {}
    return {_TABLE: np.array(rows, dtype=np.int64), _SCALES: np.array(scales)}


def decode_derivatives(document: Document, modes: Sequence[Sequence[int]]) -> dict[int, Derivative]:
    """Return the kind, flux, ends and scale of derivatives, by the row in 'fields/modes'.

    ``modes`` are these rows: term, axis, formula, part.
    """
    if _TABLE not in document.datasets:
        return {}
    table, scales = array_of(document, _TABLE), array_of(document, _SCALES)
    ends = len(DERIVATIVE_ENDS)
    bounds = ((0, len(modes)), (0, 2), (-1, 2), (0, ends), (0, ends))
    for column, (first, stop) in enumerate(bounds):
        check_range(_TABLE, table[:, column], first, stop)
    if not np.isfinite(scales).all():
        raise ProblemFileError(f"dataset '{_SCALES}' has values that are not finite")
    found: dict[int, Derivative] = {}
    periodic: dict[int, bool] = {}
    for (row, kind, sign, *sides), scale in zip(table.tolist(), scales.tolist(), strict=True):
        _, axis, _, part = modes[row]
        kinds = [DERIVATIVE_ENDS[side] for side in sides]
        wraps = kinds[0] == "periodic"
        if row in found or part != 0:
            raise ProblemFileError(
                f"dataset '{_TABLE}' names mode {row} twice, or one that is a part of a field; "
                "expected each mode once, with part 0"
            )
        if wraps != (kinds[1] == "periodic") or periodic.setdefault(axis, wraps) != wraps:
            raise ProblemFileError(
                f"dataset '{_TABLE}': axis {axis} is periodic at one end or in one derivative, "
                "and not in the other"
            )
        found[row] = _KINDS[kind], _FLUXES[sign], (kinds[0], kinds[1]), scale
    return found
