"""Runs the passes of steps: on a device as one CUDA graph a step, whose numbers are in a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module, is_plain
from batchkron.attributes import attribute
from batchkron.backends import backend_for
from batchkron.functions.vector_sum import linear_combination

from ..products import Products, Vector, ranks_of_problem
from ..protocols import SplitRightSide, TimeProblem, known_beside_rhs
from .passes import STATE, Combine, Evaluate, Norm, StepPasses, Term
from .step_numbers import Numbers, Part, StepTimes, TimeFactor

__all__ = ["MAX_STEPS", "StepRunner", "StepTimes"]

MAX_STEPS = 64
"""Most steps that are taken without looking at what they found."""
# Of several steps so many first ones get their numbers by a copy of their own: the host computes
# those of the others while the device works. Chosen by hand.
_FIRST_STEPS = 8
# Elements of a vector from which a step is no graph, which has workspace of its own. Kernels take
# longer than their launches there; chosen by hand. On ranks, where the host takes 0.3 ms for the
# exchange of a product, steps of all sizes are graphs.
_MAX_RECORDED = 1 << 21
# Steps over different vectors that are kept, with these vectors; of large ones few, so that states
# that somebody has given up do not take memory. Chosen by hand.
_MAX_LOWERED, _MAX_LARGE = 16, 4


_SQUARE = StepPasses((Combine(1, (Term(STATE, 1.0, 0.0),), Norm.END, is_read=False),), 2)


class _Clock:
    """The times of the step under way, for its work, which does not know the runner."""

    times = StepTimes(0.0, 0.0, 0.0)


_Slope: TypeAlias = tuple[float, TimeFactor | None]
"""What a vector of f(t + node dt, …) lacks: the node, and a factor f_0 of that time, or None."""


class _Lowered:
    """The passes of a step over certain vectors.

    ``in_table``: whether a table does the sums, and finds norms.
    ``work``: what does the passes, one after the other.
    ``numbers``: those of the step.
    ``slopes``: the vectors that are values of f, by their numbers.
    ``product_places``: which of the work are products.
    ``program``: what does the work of so many steps in one call.
    """

    def __init__(self, passes: StepPasses, vectors: list[Vector], in_table: bool) -> None:
        self.passes, self.vectors, self.in_table = passes, vectors, in_table
        self.work: list[Callable[[], object]] = []
        self.numbers = Numbers()
        self.slopes: dict[int, _Slope] = {}
        self.product_places: list[int] = []
        self.program: Callable[[int], None] | None = None

    def add_product(self, work: Callable[[], object]) -> None:
        """Add a product to the work."""
        self.product_places.append(len(self.work))
        self.work.append(work)


class StepRunner:
    """Takes steps u' = f(t, u), given as passes, for one problem.

    f = Σ_g f_g(t) P_g(u) + Σ_h f_h(t) s_h is evaluated without the s_h, which the sums after it
    take as further summands. So a value of f in memory lacks them, see `sum_of` and `whole_slope`.

    ``problem``: with ``rhs``, and perhaps with ``split_rhs()``.
    ``like`` (ndarray, shape (N,)): a vector of the steps.
    ``products``: counts the products, or evaluations of f. Its hook is called around those of one
      step of each `run` where a call of the core does all others.
    ``results``: how many squares of norms a step finds at most: the places of `Norm`, from the
      first on.

    On a device a step is a CUDA graph after a few ones, if f can be captured. Its numbers (weights
    times dt and functions of time) are in a table on the device, so that the same graph serves all
    steps; the host computes and copies those of some steps ahead.

    Ranks that share the vectors do the same work in the same order. What they find are norms of
    their own parts.
    """

    def __init__(
        self, problem: TimeProblem, like: Vector, products: Products, results: int = 2
    ) -> None:
        self._problem, self._like, self._products = problem, like, products
        self._results = results
        split = known_beside_rhs(problem, "split_rhs")
        self._split: SplitRightSide | None = None if split is None else split()
        self._bind = attribute(self._split, "bind")
        module = array_module(like)
        self._backend, self._is_on_device = backend_for(module), module is not np
        self._is_large = like.size > _MAX_RECORDED and ranks_of_problem(problem) is None
        self._table: Any = None
        self._width = 0
        # what the rows of the table have, where that does not depend on time
        self._filled: list[tuple[Numbers, float] | None] = []
        self._numbers: dict[tuple[StepPasses, bool], Numbers] = {}
        self._lowered: dict[tuple[Any, ...], _Lowered] = {}
        self._scratch: Vector | None = None
        self._clock = _Clock()
        self._last: _Lowered | None = None
        self._taken = 0
        self._recorder: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy without what was made for the vectors of this one."""
        return StepRunner, (self._problem, self._like, self._products, self._results)

    @property
    def is_faster_ahead(self) -> bool:
        """Whether several steps take less time if none of them is looked at."""
        return self._is_on_device or self._bind is not None

    def run(
        self, steps: Sequence[tuple[StepPasses, Sequence[Vector], StepTimes]], measures: bool
    ) -> None:
        """Take steps one after the other, at most `MAX_STEPS`; do not wait for a device.

        ``steps`` (sequence of (StepPasses, vectors, StepTimes)): each step's passes, the vectors
          (N,) in the order of their numbers, and the times.
        ``measures``: whether the norms that passes speak of are found, see `squares`.
        """
        if self._is_on_device and self._is_captured():
            return self._run_captured(steps)
        self._taken = len(steps)
        with nullcontext() if self._split is None else self._split.turn():
            if len(steps) == 1:
                self._run_one(*steps[0], measures)
                return
            works = self._lower_all(steps, measures)
            for first, last in ((0, _FIRST_STEPS), (_FIRST_STEPS, len(steps))):
                some, times = works[first:last], [own for _, _, own in steps[first:last]]
                if some:
                    if some[0].in_table:
                        self._write(first, some, times)
                    self._do(some, times, hooked=first == 0)
            self._last = works[-1]

    def _run_one(
        self, passes: StepPasses, vectors: Sequence[Vector], times: StepTimes, measures: bool
    ) -> None:
        """Take one step: the work of `run` without that for several."""
        width = self._width
        self._last = work = self._lower(passes, vectors, measures)
        if width != self._width:  # then the table is another one
            self._last = work = self._lower(passes, vectors, measures)
        if work.in_table:
            numbers = work.numbers
            known = None if numbers.depends_on_time else (numbers, times.dt)
            missing = known is None or self._filled[0] != known
            self._filled[0] = known
            self._table.begin(numbers.of([times]) if missing else None)
        self._repeat(work, [times], hooked=self._products.hook is not None)

    def _is_captured(self) -> bool:
        """Whether the user captures the current stream, whose numbers must be in the kernels."""
        stream = array_module(self._like).cuda.get_current_stream()
        return bool(stream.is_capturing())

    def _run_captured(
        self, steps: Sequence[tuple[StepPasses, Sequence[Vector], StepTimes]]
    ) -> None:
        """Take steps without tables and graphs of our own, and without norms."""
        with nullcontext() if self._split is None else self._split.turn():
            for passes, vectors, times in steps:
                self._clock.times = times
                work = self._new_lowered(passes, list(vectors), measures=False, in_table=False)
                self._do_singly(work)
                self._last = work

    def squares(self) -> NDArray[np.float64] | None:
        """Return (‖u_next‖², ‖error‖², …) of the steps since `run` began, shape (steps, results).

        Norms that no pass finds are any numbers. The result is valid until the next `run`. It is
        None if vectors are not contiguous, or of a dtype without kernels.
        """
        assert self._last is not None
        if not self._last.in_table:
            return None
        found: NDArray[np.float64] = self._table.read(self._taken)
        return found

    def square(self, vector: Vector) -> float | None:
        """Return ‖v‖² as a pass that writes v finds it; it takes the place of the last step."""
        self.run([(_SQUARE, [vector, vector], StepTimes(0.0, 0.0, 0.0))], True)
        found = self.squares()
        return None if found is None else float(found[0, Norm.END])

    def sum_of(self, terms: Sequence[Term], out: Vector, base: Vector | None = None) -> None:
        """Write base + Σ terms of the last step to ``out``, which is none of its vectors."""
        assert self._last is not None
        last = self._last
        vectors, parts = self._summands(terms, last.vectors, last.slopes)
        if base is not None:
            vectors, parts = [base, *vectors], [[Part(1.0, 0.0)], *parts]
        numbers = Numbers()
        numbers.add(parts)
        linear_combination(numbers.of([self._clock.times])[0].tolist(), vectors, out)

    def whole_slope(self, number: int) -> Vector:
        """Return the value of f with a number, of the last step; the next call overwrites it."""
        assert self._last is not None
        _, factor = self._last.slopes[number]
        split = self._split
        if factor is None and (split is None or not split.sources):
            return self._last.vectors[number]
        out = self._scratch_vector()
        self.sum_of((Term(number, 1.0, 0.0),), out)
        return out

    def _do(self, works: Sequence[_Lowered], steps: Sequence[StepTimes], *, hooked: bool) -> None:
        """Do the work of steps whose numbers are in the table, of the first one with the hook."""
        hooked = hooked and self._products.hook is not None
        for work, group in groupby(range(len(works)), works.__getitem__):
            self._repeat(work, [steps[k] for k in group], hooked=hooked)
            hooked = False

    def _repeat(self, work: _Lowered, steps: Sequence[StepTimes], *, hooked: bool) -> None:
        """Do the same work for each of some steps, of the first one with the hook."""
        count = len(steps)
        self._products.count += count * len(work.product_places)
        self._clock.times = steps[-1]
        if work.program is not None:
            if hooked:
                self._do_singly(work)
            if count > hooked:
                work.program(count - hooked)
            return
        if self._recorder is not None and work.in_table:
            self._recorder.run_several(work, partial(self._do_singly, work), count)
            return
        for times in steps:
            self._clock.times = times
            self._do_singly(work)

    def _do_singly(self, work: _Lowered) -> None:
        """Do the work of one step, each part by a call of its own."""
        if self._products.hook is None:
            for part in work.work:
                part()
            return
        for place, part in enumerate(work.work):
            if place in work.product_places:
                self._products.do(part)
            else:
                part()

    def _write(self, first: int, works: Sequence[_Lowered], steps: Sequence[StepTimes]) -> None:
        """Put the numbers of steps into the table, unless it has them already."""
        kinds = [(work.numbers, times.dt) for work, times in zip(works, steps, strict=True)]
        if any(kind != kinds[0] for kind in kinds):
            for _, group in groupby(range(len(kinds)), kinds.__getitem__):
                own = list(group)
                some = slice(own[0], own[-1] + 1)
                self._write(first + own[0], works[some], steps[some])
            return
        numbers = kinds[0][0]
        rows = slice(first, first + len(works))
        known = [None if numbers.depends_on_time else kinds[0]] * len(works)
        missing = known[0] is None or self._filled[rows] != known
        found = numbers.of(steps) if missing else None
        self._filled[rows] = known
        if first == 0:
            self._table.begin(found)
        elif found is not None:
            self._table.write(first, found)

    # From passes to what is called.

    def _lower_all(
        self, steps: Sequence[tuple[StepPasses, Sequence[Vector], StepTimes]], measures: bool
    ) -> list[_Lowered]:
        width = self._width
        works = [self._lower(passes, vectors, measures) for passes, vectors, _ in steps]
        return works if width == self._width else self._lower_all(steps, measures)

    def _lower(self, passes: StepPasses, vectors: Sequence[Vector], measures: bool) -> _Lowered:
        state = vectors[STATE]
        is_writeable = self._is_on_device or state.flags.writeable  # which the user may change
        key = id(passes), measures, is_writeable, *map(id, vectors)
        known = self._lowered.get(key)
        if known is None:
            if len(self._lowered) >= (_MAX_LARGE if self._is_large else _MAX_LOWERED):
                self._forget()
            known = self._new_lowered(passes, list(vectors), measures)
            self._lowered[key] = known
        return known

    def _forget(self) -> None:
        self._lowered.clear()
        split = self._split
        if split is not None and split.is_repeatable and not self._is_large:
            self._recorder = self._backend.repetition.recorder()

    def _new_lowered(
        self, passes: StepPasses, vectors: list[Vector], measures: bool, in_table: bool = True
    ) -> _Lowered:
        in_table = in_table and self._fit(passes, vectors)
        found = _Lowered(passes, vectors, in_table)
        for known in passes.known:
            found.slopes[known.slope] = self._slope(known.node)
        sums = _Sums(found)
        for one in passes.passes:
            if isinstance(one, Evaluate):
                self._lower_evaluation(one, vectors, sums)
                found.slopes[one.slope] = self._slope(one.node)
            else:
                self._lower_sum(one, vectors, measures, sums)
        if in_table and len(found.numbers) > self._width:
            self._widen(len(found.numbers))
        sums.make(self._table, self._clock)
        if in_table:
            found.program = self._table.program(found.work)
            found.numbers = self._numbers.setdefault((passes, measures), found.numbers)
        return found

    def _fit(self, passes: StepPasses, vectors: Sequence[Vector]) -> bool:
        """Whether vectors are such as a table takes, which checks nothing."""
        like = self._like
        sources = () if self._split is None else [source for _, source in self._split.sources]
        written = [vectors[one.target] for one in passes.passes if isinstance(one, Combine)]
        return (
            like.dtype.char in "fdFD"
            and all(_is_like(vector, like) for vector in [*vectors, *sources])
            and (self._is_on_device or all(vector.flags.writeable for vector in written))
        )

    def _widen(self, width: int) -> None:
        """Make a larger table; what was lowered for the former one is forgotten."""
        self._width = 2 * width
        self._table = self._backend.step_table(MAX_STEPS, self._width, self._results)
        self._filled = [None] * MAX_STEPS
        self._forget()

    def _slope(self, node: float) -> _Slope:
        products = () if self._split is None else self._split.products
        return node, products[0][0] if len(products) == 1 else None

    def _lower_evaluation(self, one: Evaluate, vectors: list[Vector], sums: _Sums) -> None:
        """Add f without its sources, and without its factor if it is one product."""
        node, (state, slope) = one.node, (vectors[one.state], vectors[one.slope])
        work: Callable[[], object]
        if self._split is None:
            work = partial(_evaluate, self._clock, self._problem.rhs, node, state, slope)
            sums.found.add_product(work)
            return
        before: list[Part] = []  # the factor of what is in the slope, while it is not in it
        for g, (function, product) in enumerate(self._split.products):
            target = slope if g == 0 else self._scratch_vector()
            if self._bind is not None and sums.found.in_table:
                work = self._bind(state, target)
            else:
                work = partial(_evaluate, self._clock, product, node, state, target)
            sums.found.add_product(work)
            part = Part(1.0, 0.0, function, node)
            if g > 0:
                sums.add([slope, target], [before or [Part(1.0, 0.0)], [part]], slope)
            before = [part] if g == 0 else []

    def _lower_sum(self, one: Combine, vectors: list[Vector], measures: bool, sums: _Sums) -> None:
        norm = one.norm if measures and sums.found.in_table else Norm.NONE
        out = None if norm != Norm.NONE and not one.is_read else vectors[one.target]
        summands, parts = self._summands(one.terms, vectors, sums.found.slopes)
        most = self._table_limit if sums.found.in_table else len(summands)
        while len(summands) > most:
            room = self._scratch_vector() if out is None else out
            sums.add(summands[:most], parts[:most], room)
            summands, parts = [room, *summands[most:]], [[Part(1.0, 0.0)], *parts[most:]]
        sums.add(summands, parts, out, norm)

    @property
    def _table_limit(self) -> int:
        """Most vectors of one sum."""
        if self._table is None:
            self._widen(1)
        return int(self._table.max_vectors)

    def _summands(
        self, terms: Sequence[Term], vectors: Sequence[Vector], slopes: dict[int, _Slope]
    ) -> tuple[list[Vector], list[list[Part]]]:
        """Return the vectors and numbers of a sum, with the sources of the values of f in it."""
        found = [vectors[term.vector] for term in terms]
        numbers, sources = [], () if self._split is None else self._split.sources
        of_sources: list[list[Part]] = [[] for _ in sources]
        for number, constant, per_dt in terms:
            slope = slopes.get(number)
            if slope is None:
                numbers.append([Part(constant, per_dt)])
                continue
            node, factor = slope
            numbers.append([Part(constant, per_dt, factor, node)])
            for own, (function, _) in zip(of_sources, sources, strict=True):
                if attribute(function, "is_constant", False):
                    value = float(function(0.0))
                    own.append(Part(value * constant, value * per_dt))
                else:
                    own.append(Part(constant, per_dt, function, node))
        for own, (_, source) in zip(of_sources, sources, strict=True):
            if own:
                found.append(source)
                numbers.append(own)
        return found, numbers

    def _scratch_vector(self) -> Vector:
        if self._scratch is None:
            self._scratch = array_module(self._like).empty_like(self._like)
        return self._scratch


class _Sums:
    """The sums of a step, which are made when it is known which one is the last."""

    def __init__(self, found: _Lowered) -> None:
        self.found = found
        self._places: list[tuple[int, int, list[Vector], Vector | None, int]] = []

    def add(
        self,
        vectors: list[Vector],
        numbers: Sequence[Sequence[Part]],
        out: Vector | None,
        norm: int = Norm.NONE,
    ) -> None:
        """Add the pass out = Σ numbers[k] vectors[k]."""
        first = self.found.numbers.add(numbers)
        self._places.append((len(self.found.work), first, vectors, out, norm))
        self.found.work.append(lambda: None)

    def make(self, table: Any, clock: _Clock) -> None:
        """Put the sums into the work."""
        for number, (place, first, vectors, out, norm) in enumerate(self._places):
            ends = number == len(self._places) - 1
            if self.found.in_table:
                real = [_real(vector) for vector in vectors]
                target = None if out is None else _real(out)
                self.found.work[place] = table.sum_pass(first, real, target, norm, ends=ends)
            elif out is not None:  # only a table finds a norm alone
                work = partial(_sum_checked, clock, self.found.numbers, first, vectors, out)
                self.found.work[place] = work


def _evaluate(clock: _Clock, function: Any, node: float, state: Vector, slope: Vector) -> None:
    """Write f, or a part of it, at a node of the step under way."""
    function(clock.times.at(node), state, slope)


def _sum_checked(
    clock: _Clock, numbers: Numbers, first: int, vectors: list[Vector], out: Vector
) -> None:
    """Do a sum of vectors that a table does not take, or refuse those that do not fit."""
    own = numbers.of([clock.times])[0, first : first + len(vectors)]
    linear_combination(own.tolist(), vectors, out)


def _is_like(vector: Vector, like: Vector) -> bool:
    """Whether a vector is of the kind, dtype and shape of another one, and contiguous."""
    same = type(vector) is type(like) and vector.dtype == like.dtype and vector.shape == like.shape
    return same and is_plain(vector)


def _real(vector: Vector) -> Vector:
    """Return the real and imaginary parts of a contiguous vector, one after the other."""
    flat = vector.reshape(-1)
    return flat.view(flat.real.dtype)
