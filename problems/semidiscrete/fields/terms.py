"""The terms of a problem whose coefficients are fields, as one operator that follows the state."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module, to_host
from batchkron.backends import backend, backend_on, building_on
from batchkron.backends.protocol import FieldPlan
from batchkron.operators import SparseGridOperator, on_device
from batchkron.operators.sparse_grid.linked_blocks import LinkedBlocks

from ...discretization.fields.derivatives import DerivativeBlocks, FieldDerivative
from ...discretization.fields.local_blocks import BlockVector
from ...discretization.fields.modes import FieldMode
from ...discretization.fields.part_blocks import PartBlocks
from ...discretization.matrices.mode_operator import ModeOperator
from ...discretization.parts import OperatorTerm
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis
from ...statement.fields import FieldExpression
from ...statement.time import TimeFunction, constant
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


class _AxisParts:
    """The parts of all fields along one axis, of which the operator's blocks are made.

    ``modes`` are all multiplications, or all derivatives along the fields' own axis.
    """

    def __init__(self, problem: ProblemValue, axis: Axis, modes: Sequence[FieldMode]) -> None:
        fields = list(dict.fromkeys(mode.field for mode in modes))
        place, device = problem.axes.index(axis), problem.device
        self.modes = tuple(modes)
        self.evaluate = FieldEvaluation(
            fields, axis, problem.axes, problem.grid, problem.degree, problem.masses, device
        )
        self.blocks: PartBlocks | DerivativeBlocks
        derivatives = [mode for mode in modes if isinstance(mode, FieldDerivative)]
        if derivatives:
            self.blocks = DerivativeBlocks(derivatives, fields, problem.masses[place], device)
        else:
            self.blocks = PartBlocks(modes, fields, problem.masses[place], device)
        self._plan = self._planned()

    @property
    def size(self) -> int:
        return self.blocks.local.size

    def _planned(self) -> FieldPlan | None:
        """Return a plan for all of it in one call, where the backend has one."""
        found = self.evaluate.plan_arrays()
        if found is None:
            return None
        arrays, rows = found
        own = self.blocks.plan_arrays(rows)
        if own is None:
            return None
        plan: FieldPlan | None = backend().fast_path("field_plan")(**arrays, **own)
        return plan

    def write(self, t: float, u: Values, into: BlockVector) -> None:
        """Write the blocks for a state."""
        plan = self._plan
        if plan is None or not self._is_written(plan, u, into):
            self.blocks(self.evaluate(t, u), into)  # it says what is not defined, and where

    @staticmethod
    def _is_written(plan: FieldPlan, u: Values, into: BlockVector) -> bool:
        """Write the blocks by the plan, or return False if it does not take the state."""
        plain = u.flags.c_contiguous and u.flags.aligned
        return plain and plan.write(u, into.heap, into.ancestors)

    def on_grid(self, grid: SparseGrid) -> _AxisParts:
        """Return the parts for states on another grid of the same finest levels."""
        moved = copy.copy(self)
        moved.evaluate = self.evaluate.on_grid(grid)
        moved._plan = moved._planned()
        return moved


class FieldTerms:
    """Σ_t c_t(t) A_t1 ⊗ … ⊗ A_td for terms of which some have fields.

    The operator's plan is made once. Each product first computes the fields of its state, writes
    the entries of their blocks along the fields' axes to one vector, and has the operator copy them
    from there. Nothing is planned, and on a device nothing is copied to the host.

    ``problem``: the problem.
    ``terms``: terms of the problem, with fields or without.

    Storage: the operator, the matrices of its sweeps with fields twice, and a vector of the blocks'
    entries. A product with a state first replaces the operator's values, so that threads take
    turns, and on a device all products have to be on one stream.

    A coefficient that depends on time multiplies the blocks of one 1-D operator of its term, which
    no other term shares; a term without one, as a reaction, gets an identity. Where a sweep adds
    two 1-D operators of which one changes, all values of the operator are replaced by way of the
    host.
    """

    def __init__(self, problem: ProblemValue, terms: Sequence[OperatorTerm]) -> None:
        self._lock = threading.Lock()
        self._terms, times = _with_own_modes(terms, problem.grid.levels, problem.sizes)
        by_axis: dict[tuple[Axis, type], list[FieldMode]] = {}
        for term in self._terms:
            for mode in field_modes(term):
                own = by_axis.setdefault((mode.axis, type(mode)), [])
                if all(mode is not known for known in own):
                    own.append(mode)
        self._axes = [_AxisParts(problem, axis, modes) for (axis, _), modes in by_axis.items()]
        stand_ins: dict[int, ModeOperator] = {}
        places: dict[int, NDArray[np.int64]] = {}
        start = 0
        for parts in self._axes:
            local = parts.blocks.local
            for part, mode in enumerate(parts.modes):
                own_places = local.places(part)
                ones = np.ones(own_places.shape)
                stand_ins[id(mode)] = ModeOperator(
                    mode.cells, mode.n, local.rows, local.columns, ones
                )
                places[id(mode)] = own_places + start
            start += parts.size
        self._timed_parts = [
            (axis, part, factor)
            for axis, parts in enumerate(self._axes)
            for part, mode in enumerate(parts.modes)
            for timed, factor in times
            if timed is mode
        ]
        self._timed_blocks = []
        for timed, factor in times:
            if isinstance(timed, ModeOperator):
                shape, size = timed.blocks.shape, timed.blocks.size
                places[id(timed)] = np.arange(start, start + size).reshape(shape)
                on_place = on_device(timed.blocks.ravel(), problem.device)
                self._timed_blocks.append((on_place, factor))
                start += size
        self._modes: list[Any] = []  # in the order of the operator's blocks
        listed: list[list[Any]] = []
        for term in self._terms:
            for entry in term.modes:
                if entry is not None and all(entry is not known for known in self._modes):
                    self._modes.append(entry)
            listed.append([stand_ins.get(id(entry), entry) for entry in term.modes])
        numbers = np.array([term.time(problem.t0) for term in self._terms])
        with building_on(backend_on(problem.device)):
            self._operator = SparseGridOperator(
                problem.grid, listed, problem.sizes, coefficients=numbers
            )
        self._places = {
            number: places[id(mode)]
            for number, mode in enumerate(self._modes)
            if id(mode) in places
        }
        self._is_constant = all(term.time.is_constant for term in self._terms)
        self._device = problem.device
        self._link_vectors()

    def on_grid(self, grid: SparseGrid) -> FieldTerms:
        """Return the terms on another grid of the same finest levels, built faster than anew."""
        moved = copy.copy(self)
        moved._lock = threading.Lock()
        moved._axes = [parts.on_grid(grid) for parts in self._axes]
        with self._lock:
            moved._operator = self._operator.on_grid(grid)
        moved._link_vectors()
        return moved

    def _link_vectors(self) -> None:
        """Make the vector of the blocks' entries, from which the operator copies them."""
        count = sum(parts.size for parts in self._axes)
        count += sum(blocks.size for blocks, _ in self._timed_blocks)
        self._was_followed = False
        self._linked = self._link(count)
        module = array_module(on_device(np.zeros(0), self._device))
        memory = module.zeros(count) if self._linked is None else self._linked.values
        self._values, self._vectors, start = memory, [], 0
        for parts in self._axes:
            view = memory[start : start + parts.size]
            self._vectors.append(parts.blocks.local.vector(view))
            start += parts.size

    def _link(self, count: int) -> LinkedBlocks | None:
        """Return the link of the operator to the vector of entries, if that is possible."""
        if not self._is_constant:
            return None
        try:
            return self._operator.link(self._places, count)
        except ValueError:
            return None

    @property
    def is_repeatable(self) -> bool:
        """Whether a product launches the same kernels at all times, with no copy to the host."""
        is_steady = not (self._timed_parts or self._timed_blocks)
        return is_steady and self._linked is not None and self._linked.is_repeatable

    @property
    def operator(self) -> SparseGridOperator:
        """The terms' operator, with the blocks of the last state."""
        if self._linked is not None and self._was_followed:
            self._linked.note_replay()  # graphs change blocks without a call from Python
        return self._operator

    def note_replay(self) -> None:
        """Say that a graph may have followed a state."""
        if self._linked is not None:
            self._linked.note_replay()

    def take_replays(self) -> None:
        """Give the operator's transpose and other relatives the blocks that graphs have written."""
        if self._linked is not None and self._was_followed:
            self._linked.update()

    def accumulate(self, t: float, u: Values, out: Values) -> None:
        """Add the terms' A(t, u) u to ``out``."""
        shape = (self._operator.num_inputs, -1)
        with self._lock:
            self.follow(t, u)
            self._operator.accumulate(u.reshape(shape), out.reshape(shape))

    def follow(self, t: float, u: Values) -> None:
        """Put the blocks for a state into the operator.

        Raises NotPhysicalError if a field is not defined for the state.
        """
        for parts, vector in zip(self._axes, self._vectors, strict=True):
            parts.write(t, u, vector)
        for axis, part, factor in self._timed_parts:
            self._axes[axis].blocks.local.scale(part, float(factor(t)), self._vectors[axis])
        end = self._values.size
        for fixed, factor in reversed(self._timed_blocks):  # behind the fields' blocks
            self._values[end - fixed.size : end] = fixed * float(factor(t))
            end -= fixed.size
        self._was_followed = True
        if self._linked is not None:
            self._linked.update()
            return
        values = to_host(self._values, "values")
        blocks = [
            values[self._places[number]] if number in self._places else mode.blocks
            for number, mode in enumerate(self._modes)
        ]
        numbers = None if self._is_constant else [term.time(t) for term in self._terms]
        self._operator.update(blocks, numbers)


def _with_own_modes(
    terms: Sequence[OperatorTerm], levels: Sequence[int], sizes: Sequence[int]
) -> tuple[tuple[OperatorTerm, ...], list[tuple[ModeOperator | FieldMode, TimeFunction]]]:
    """Return terms with constant coefficients, and the modes that functions of time multiply.

    These modes are one of each term whose coefficient depends on time, a field if it has one, and
    are copies that no other term has. A term without modes gets an identity, where possible along
    an axis along which no term acts alone: a sweep would add the two.
    """
    found, times = [], []
    alone = {term.acts_along[0] for term in terms if len(term.acts_along) == 1}
    for term in terms:
        if term.time.is_constant:
            found.append(term)
            continue
        places = term.acts_along
        place = next((k for k in places if isinstance(term.modes[k], FieldMode)), None)
        own: ModeOperator | FieldMode
        if places:
            place = places[0] if place is None else place
            mode = term.modes[place]
            assert mode is not None
            own = copy.copy(mode)
        else:
            place = next((k for k in range(len(levels)) if k not in alone), 0)
            alone.add(place)
            own = _identity(levels[place], sizes[place])
        modes = (*term.modes[:place], own, *term.modes[place + 1 :])
        times.append((own, term.time))
        found.append(replace(term, modes=modes, time=constant(1.0)))
    return tuple(found), times


def _identity(level: int, n: int) -> ModeOperator:
    cells = np.arange(1 << level)
    blocks = np.broadcast_to(np.eye(n), (len(cells), n, n)).copy()
    return ModeOperator(len(cells), n, cells, cells, blocks)
