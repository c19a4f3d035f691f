"""The terms of a problem whose coefficients are fields, as one operator that follows the state."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.operators import SparseGridOperator, on_device

from ...discretization.fields.local_blocks import LocalBlocks
from ...discretization.fields.modes import FieldMode
from ...discretization.mode_operator import ModeOperator
from ...discretization.parts import OperatorTerm
from ...statement.fields import FieldExpression
from ..value import ProblemValue
from .evaluation import FieldEvaluation

__all__ = ["FieldTerms", "field_modes", "frozen_terms"]

Values = NDArray[np.float64]


def field_modes(term: OperatorTerm) -> list[FieldMode]:
    """Return the modes of a term that are fields."""
    return [mode for mode in term.modes if isinstance(mode, FieldMode)]


class _Fields:
    """All fields of some terms, evaluated together for a state."""

    def __init__(self, problem: ProblemValue, terms: Sequence[OperatorTerm]) -> None:
        by_axis: dict[Any, list[FieldExpression]] = {}
        for term in terms:
            for mode in field_modes(term):
                own = by_axis.setdefault(mode.axis, [])
                if mode.field not in own:
                    own.append(mode.field)
        self._evaluations = [
            FieldEvaluation(
                own, axis, problem.axes, problem.grid, problem.degree, problem.masses,
                problem.device,
            )
            for axis, own in by_axis.items()
        ]  # fmt: skip
        self._fields = [field for own in by_axis.values() for field in own]
        self.points = {
            id(field): evaluation.points
            for evaluation, own in zip(self._evaluations, by_axis.values(), strict=True)
            for field in own
        }

    def values(self, t: float, u: Values) -> dict[int, Values]:
        """Return the values (cells, q) of each field, by the field's id."""
        found = [values for evaluation in self._evaluations for values in evaluation(t, u)]
        return {id(field): values for field, values in zip(self._fields, found, strict=True)}


def frozen_terms(problem: ProblemValue, t: float, u: Values) -> tuple[OperatorTerm, ...]:
    """Return the problem's terms with the fields' values at a state, so that all are constant."""
    own = [term for term in problem.terms if field_modes(term)]
    values = _Fields(problem, own).values(t, u) if own else {}
    module = array_module(u)
    host = {key: v if module is np else module.asnumpy(v) for key, v in values.items()}
    operators: dict[int, ModeOperator] = {}

    def fixed(k: int, mode: Any) -> Any:
        if not isinstance(mode, FieldMode):
            return mode
        if id(mode) not in operators:
            operators[id(mode)] = mode.operator(host[id(mode.field)], problem.masses[k])
        return operators[id(mode)]

    return tuple(
        replace(term, modes=tuple(fixed(k, mode) for k, mode in enumerate(term.modes)))
        for term in problem.terms
    )


class FieldTerms:
    """Σ_t c_t(t) A_t1 ⊗ … ⊗ A_td for the terms of a problem that have fields.

    The operator's plan is made once. Each product first computes the fields of its state, their
    blocks along the fields' axes, and puts these into the operator.

    Parameters
    ----------
    problem : ProblemValue
        The problem.
    terms : sequence of OperatorTerm
        Those of its terms that have a `FieldMode`.

    Notes
    -----
    Storage: the operator, and the blocks of its 1-D operators twice. A product with a state first
    replaces the operator's values, so that threads take turns.
    """

    def __init__(self, problem: ProblemValue, terms: Sequence[OperatorTerm]) -> None:
        self._terms, self._fields = tuple(terms), _Fields(problem, terms)
        self._module = array_module(on_device(np.zeros(0), problem.device))
        self._lock = threading.Lock()
        self._locals: dict[tuple[int, int], LocalBlocks] = {}
        self._volumes: dict[int, tuple[Values | None, Values | None]] = {}
        stand_ins: dict[int, ModeOperator] = {}
        self._modes: list[ModeOperator | FieldMode] = []  # in the order of the operator's blocks
        listed = []
        for term in self._terms:
            modes: list[ModeOperator | None] = []
            for k, mode in enumerate(term.modes):
                if mode is not None and not any(mode is known for known in self._modes):
                    self._modes.append(mode)
                if isinstance(mode, FieldMode):
                    self._prepare(mode, problem.masses[k], problem.device)
                    if id(mode) not in stand_ins:
                        ones = np.ones((mode.cells, self._fields.points[id(mode.field)].count))
                        stand_ins[id(mode)] = mode.operator(ones, problem.masses[k])
                    modes.append(stand_ins[id(mode)])
                else:
                    modes.append(mode)
            listed.append(modes)
        numbers = np.array([term.time(problem.t0) for term in self._terms])
        sweeps = SparseGridOperator(problem.grid, listed, problem.degree + 1, coefficients=numbers)
        operator = sweeps.to(problem.device)
        assert isinstance(operator, SparseGridOperator)
        self.operator = operator
        self._is_constant = all(term.time.is_constant for term in self._terms)

    def _prepare(self, mode: FieldMode, mass: Values | None, device: str) -> None:
        """Put what the blocks of a mode are computed with on the device."""
        key = mode.level, mode.degree
        if key not in self._locals:
            self._locals[key] = LocalBlocks(*key, self._module)
        parts: tuple[Values | None, Values | None] = (None, None)
        if mode.volume is not None and mass is not None:
            parts = on_device(mode.volume, device), on_device(np.linalg.inv(mass), device)
        self._volumes[id(mode)] = parts

    def accumulate(self, t: float, u: Values, out: Values) -> None:
        """Add the terms' A(t, u) u to ``out``.

        Raises
        ------
        NotPhysicalError
            If a field is not defined for the state.
        """
        shape = (self.operator.num_inputs, -1)
        with self._lock:
            self.follow(t, u)
            self.operator.accumulate(u.reshape(shape), out.reshape(shape))

    def follow(self, t: float, u: Values) -> None:
        """Put the blocks for a state into the operator.

        Raises
        ------
        NotPhysicalError
            If a field is not defined for the state.
        """
        values = self._fields.values(t, u)
        blocks = [
            self._blocks(mode, values) if isinstance(mode, FieldMode) else mode.blocks
            for mode in self._modes
        ]
        numbers = None if self._is_constant else [term.time(t) for term in self._terms]
        self.operator.update(blocks, numbers)

    def _blocks(self, mode: FieldMode, values: dict[int, Values]) -> Values:
        own = self._fields.points[id(mode.field)]
        nodal = mode.nodal_blocks(values[id(mode.field)], own, *self._volumes[id(mode)])
        symmetric = mode.volume is None
        return self._locals[mode.level, mode.degree](nodal, symmetric=symmetric)
