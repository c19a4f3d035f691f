"""The search for the fastest kernels of a shape, limited by time and number of candidates.

A choice is a set of values for a kernel's parameters (knobs); "the rule" is the choice that is used
without tuning. No device is needed here: compiler and measurement are arguments.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import CancelledError, Future
from typing import Generic, Protocol, TypeVar

from batchkron.backends.cuda.kernel import LaunchShape
from batchkron.backends.cuda.runtime.cubin import resources
from batchkron.backends.cuda.runtime.hardware import MAX_BLOCK_THREADS, REGISTER_FILE, DeviceLimits
from batchkron.backends.cuda.runtime.kernel_cache import CompiledKernel
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.tuning.tuning import Outcome, Tuning

_REGISTER_UNIT = 8  # the hardware allocates a thread's registers in multiples of 8
# Speedup over the rule from which a choice is preferred; less is noise. Chosen by hand.
_MIN_GAIN = 1.01
_MAX_REASONS = 20  # number of failures whose text is kept; chosen by hand
_MAX_COMPILED_KERNELS = 256  # kernels whose code a search keeps in memory; chosen by hand
# Number of times the rule and the best choice are measured in turn at the end; chosen by hand.
_CONFIRMATIONS = 3

Choice = TypeVar("Choice", bound=Hashable)


class RejectedError(RuntimeError):
    """A candidate cannot be compiled or launched, or gives a wrong result; the text says which."""


# A kernel to compile, and the resources that it needs.
Launched = tuple[Program, LaunchShape]


class Space(Protocol[Choice]):
    """The choices for one shape; ``rule`` is the one that is used without tuning."""

    rule: Choice

    def kernels(self, choice: Choice) -> tuple[Launched, ...] | None:
        """Return the kernels of a choice, None if it cannot run."""

    def steps(self) -> Iterable[Callable[[Choice], Iterable[Choice]]]:
        """Return functions that map the best choice so far to the next candidates."""


class Compiler(Protocol):
    """A compiler that works in the background while the search measures."""

    @property
    def processes(self) -> int:
        """Number of kernels that are compiled at the same time."""

    def submit(self, program: Program) -> Future[CompiledKernel]:
        """Begin to compile a kernel."""


# Maps a choice, its compiled kernels and the best time so far to the choice's time, both in µs. A
# choice that is clearly slower need not be measured precisely.
Measure = Callable[[Choice, dict[Program, CompiledKernel], float], float]


class Search(Generic[Choice]):
    """One search: it finds the fastest choice of a space and counts the candidates."""

    def __init__(
        self,
        space: Space[Choice],
        compiler: Compiler,
        measure: Measure[Choice],
        limits: DeviceLimits,
        tuning: Tuning,
        shape: str,
    ) -> None:
        self._space, self._compiler, self._measure = space, compiler, measure
        self._limits, self._tuning, self._shape = limits, tuning, shape
        self._began = time.monotonic()
        self._choices: set[Choice] = set()  # the candidates so far
        self._seen: set[tuple[Launched, ...]] = set()  # their kernels; several may have the same
        self._compiling: dict[Program, Future[CompiledKernel]] = {}
        self._ahead: deque[tuple[Choice, tuple[Launched, ...]]] = deque()
        # bytes of a thread's stack in the rule's kernels; a way without kernels sets no limit
        self._stack: float = 0
        self._counts = {"tried": 0, "pruned": 0, "failed": 0}
        self._reasons: list[str] = []
        self._rule_time = self._time = float("inf")
        self.best = space.rule

    def run(self) -> Outcome:
        """Try candidates up to a limit; RejectedError if the rule's own kernels do not work."""
        rule = self._space.rule
        kernels = self._space.kernels(rule)
        if kernels is None:
            raise RejectedError("the rule's kernels do not fit the device")
        compiled = self._compiled(kernels, None)
        self._stack = max((_stack(code) for code in compiled.values()), default=math.inf)
        self._seen.add(kernels)
        self._choices.add(rule)
        self._rule_time = self._time = self._measure(rule, compiled, float("inf"))
        is_complete = all(self._improve(step(self.best)) for step in self._space.steps())
        if self.best != rule:
            self._confirm(compiled)
        if self._rule_time < _MIN_GAIN * self._time:
            self.best, self._time = rule, self._rule_time
        return Outcome(
            self._shape,
            self._rule_time,
            self._time,
            self._counts["tried"],
            self._counts["pruned"],
            self._counts["failed"],
            seconds=time.monotonic() - self._began,
            reasons=tuple(self._reasons),
            is_complete=is_complete,
        )

    def best_kernels(self) -> dict[Program, CompiledKernel]:
        """Return the compiled kernels of the best choice."""
        return self._compiled(self._space.kernels(self.best) or (), None)

    def _confirm(self, by_rule: dict[Program, CompiledKernel]) -> None:
        """Measure the rule and the best choice in turn: the smallest of noisy times is biased."""
        compiled = self.best_kernels()
        rule_times, times = [], []
        for _ in range(_CONFIRMATIONS):
            rule_times.append(self._measure(self._space.rule, by_rule, float("inf")))
            times.append(self._measure(self.best, compiled, float("inf")))
        self._rule_time, self._time = min(rule_times), min(times)

    def _left(self) -> float:
        return self._tuning.seconds - (time.monotonic() - self._began)

    def _improve(self, choices: Iterable[Choice]) -> bool:
        """Measure choices, compiling later ones meanwhile; return False at a limit."""
        for choice in choices:
            if choice in self._choices:
                continue
            self._choices.add(choice)
            taken = sum(self._counts.values()) + len(self._ahead)
            if self._left() <= 0 or taken >= self._tuning.candidates:
                self._drain(0)
                return False
            self._begin(choice)
            self._drain(2 * self._compiler.processes)
        self._drain(0)
        return self._left() > 0

    def _begin(self, choice: Choice) -> None:
        """Begin to compile a choice if it can run and its kernels were not tried before."""
        kernels = self._space.kernels(choice)
        if kernels and kernels in self._seen:
            return
        if kernels is None or not all(_fits(launch, self._limits) for _, launch in kernels):
            self._count("pruned")
            return
        self._seen.add(kernels)
        for program, _ in kernels:
            self._submit(program)
        self._ahead.append((choice, kernels))

    def _submit(self, program: Program) -> Future[CompiledKernel]:
        if program not in self._compiling:
            self._compiling[program] = self._compiler.submit(program)
        return self._compiling[program]

    def _compiled(
        self, kernels: tuple[Launched, ...], seconds: float | None
    ) -> dict[Program, CompiledKernel]:
        """Return compiled kernels; wait up to ``seconds`` for each."""
        futures = {program: self._submit(program) for program, _ in kernels}
        return {program: future.result(seconds) for program, future in futures.items()}

    def _drain(self, leave: int) -> None:
        """Measure queued candidates until ``leave`` are left, or the time limit is reached."""
        while len(self._ahead) > leave and self._left() > 0:
            self._measure_candidate(*self._ahead.popleft())
        if self._left() <= 0:
            self._ahead.clear()
        if len(self._compiling) > _MAX_COMPILED_KERNELS:
            self._forget()

    def _forget(self) -> None:
        """Drop the code of kernels that are no longer needed."""
        needed = [kernels for _, kernels in self._ahead]
        needed += [self._space.kernels(one) or () for one in (self._space.rule, self.best)]
        programs = {program for kernels in needed for program, _ in kernels}
        self._compiling = {p: code for p, code in self._compiling.items() if p in programs}

    def _measure_candidate(self, choice: Choice, kernels: tuple[Launched, ...]) -> None:
        """Wait for a choice's kernels; measure them unless they spill more than the rule's."""
        try:
            compiled = self._compiled(kernels, max(0.0, self._left()))
            if not all(self._can_run(launch, compiled[one].code) for one, launch in kernels):
                self._count("pruned")
                return
            measured = self._measure(choice, compiled, self._time)
        except (TimeoutError, CancelledError):
            return  # the time limit of the search is reached
        except RejectedError as error:
            self._count("failed")
            if len(self._reasons) < _MAX_REASONS:
                self._reasons.append(f"{choice}: {error}")
            return
        if measured < self._time:
            self.best, self._time = choice, measured
        self._count("tried")

    def _can_run(self, launch: LaunchShape, code: bytes) -> bool:
        """Whether registers fit in a multiprocessor, and the stack is no larger than the rule's."""
        found = resources(code)
        if found is None:
            return True
        registers, stack = found
        held = -(-registers // _REGISTER_UNIT) * _REGISTER_UNIT * launch.threads * launch.resident
        return held <= REGISTER_FILE and stack <= self._stack

    def _count(self, what: str) -> None:
        self._counts[what] += 1
        if self._tuning.progress is not None:
            gain = self._rule_time / self._time
            self._tuning.progress(self._shape, sum(self._counts.values()), gain)


def _fits(launch: LaunchShape, limits: DeviceLimits) -> bool:
    """Whether shared memory and threads suffice; registers are known after compiling only."""
    return 0 < launch.threads <= MAX_BLOCK_THREADS and launch.shared_bytes <= limits.shared_bytes


def _stack(kernel: CompiledKernel) -> int:
    found = resources(kernel.code)
    return 0 if found is None else found[1]
