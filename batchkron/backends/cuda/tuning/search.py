"""The search for the fastest kernels of a shape, within bounds of time and number.

Nothing here needs a device: what compiles and what measures are arguments.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from batchkron.backends.cuda.runtime.cubin import resources
from batchkron.backends.cuda.runtime.hardware import MAX_BLOCK_THREADS, REGISTER_FILE, DeviceLimits
from batchkron.backends.cuda.runtime.kernel_cache import CompiledKernel
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.tuning.tuning import Outcome, Tuning

_REGISTER_UNIT = 8  # registers of a thread are handed out in eights
_MIN_GAIN = 1.01  # speedup over the rule from which a choice is kept; less is noise
_MAX_REASONS = 20  # failures whose text is kept; chosen by hand
_MAX_COMPILED_KERNELS = 256  # whose machine code a search keeps in memory; chosen by hand
_CONFIRMATIONS = 3  # measurements of the rule and of the best, in turn, at the end; chosen by hand

Choice = TypeVar("Choice", bound=Hashable)


class RejectedError(RuntimeError):
    """A candidate cannot be launched, or gives a wrong result; the text says what was found."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel to compile, and what it needs.

    ``threads`` of a thread block, ``blocks`` of these that a multiprocessor should hold, and the
    percentage of the memory on chip that should be shared memory, -1 for any.
    """

    program: Program
    threads: int
    blocks: int
    shared_bytes: int
    carveout: int = -1

    def fits(self, limits: DeviceLimits) -> bool:
        """Whether a multiprocessor has the memory and the threads, whatever the registers."""
        return 0 < self.threads <= MAX_BLOCK_THREADS and self.shared_bytes <= limits.shared_bytes


class Space(Protocol[Choice]):
    """What there is to choose from."""

    rule: Choice

    def kernels(self, choice: Choice) -> tuple[Kernel, ...] | None:
        """Return what a choice is compiled to, None if it cannot run."""

    def steps(self) -> Iterable[Callable[[Choice], Iterable[Choice]]]:
        """Return functions from the best choice so far to others that may be better."""


class Compiler(Protocol):
    """What compiles kernels beside the search."""

    @property
    def processes(self) -> int:
        """How many kernels are compiled at a time."""

    def submit(self, program: Program) -> Future[CompiledKernel]:
        """Begin to compile a kernel."""


# From a choice, its kernels, and the best time so far, to µs; a choice that will not beat that need
# not be measured well.
Measure = Callable[[Choice, dict[Program, CompiledKernel], float], float]


class Search(Generic[Choice]):
    """One search: the best choice of a space, and counts of what was looked at."""

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
        self._choices: set[Choice] = set()  # that were looked at, and their kernels
        self._seen: set[tuple[Kernel, ...]] = set()
        self._compiling: dict[Program, Future[CompiledKernel]] = {}
        self._ahead: deque[tuple[Choice, tuple[Kernel, ...]]] = deque()
        self._stack = 0  # bytes of a thread in the rule's kernels
        self._counts = {"tried": 0, "pruned": 0, "failed": 0}
        self._reasons: list[str] = []
        self._rule_time = self._time = float("inf")
        self.best = space.rule

    def run(self) -> Outcome:
        """Look at the candidates within the bounds.

        Raises
        ------
        RejectedError
            If the rule's own kernels do not work.
        """
        rule = self._space.rule
        kernels = self._space.kernels(rule)
        if kernels is None:
            raise RejectedError("the rule's kernels do not fit the device")
        compiled = self._compiled(kernels, None)
        self._stack = max(_stack(code) for code in compiled.values())
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
        """Return the code of the best choice."""
        return self._compiled(self._space.kernels(self.best) or (), None)

    def _confirm(self, by_rule: dict[Program, CompiledKernel]) -> None:
        """Measure the rule's kernels and the best again, in turn, for their least times.

        The best of many is partly the luckiest of many.
        """
        compiled = self.best_kernels()
        rule_times, times = [], []
        for _ in range(_CONFIRMATIONS):
            rule_times.append(self._measure(self._space.rule, by_rule, float("inf")))
            times.append(self._measure(self.best, compiled, float("inf")))
        self._rule_time, self._time = min(rule_times), min(times)

    def _left(self) -> float:
        return self._tuning.seconds - (time.monotonic() - self._began)

    def _improve(self, choices: Iterable[Choice]) -> bool:
        """Measure choices, some compiled while those before them are measured.

        Return False if there was no time for all.
        """
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
        """Begin to compile a choice, if it was not looked at before and may run."""
        kernels = self._space.kernels(choice)
        if kernels in self._seen:
            return
        if kernels is None or not all(kernel.fits(self._limits) for kernel in kernels):
            self._count("pruned")
            return
        self._seen.add(kernels)
        for kernel in kernels:
            self._submit(kernel.program)
        self._ahead.append((choice, kernels))

    def _submit(self, program: Program) -> Future[CompiledKernel]:
        if program not in self._compiling:
            self._compiling[program] = self._compiler.submit(program)
        return self._compiling[program]

    def _compiled(
        self, kernels: tuple[Kernel, ...], seconds: float | None
    ) -> dict[Program, CompiledKernel]:
        """Wait for kernels, for so long each."""
        futures = {kernel.program: self._submit(kernel.program) for kernel in kernels}
        return {program: future.result(seconds) for program, future in futures.items()}

    def _drain(self, leave: int) -> None:
        """Measure those at the front of the queue until it is short, or time is over."""
        while len(self._ahead) > leave and self._left() > 0:
            self._measure_candidate(*self._ahead.popleft())
        if self._left() <= 0:
            self._ahead.clear()
        if len(self._compiling) > _MAX_COMPILED_KERNELS:
            self._forget()

    def _forget(self) -> None:
        """Drop the code of kernels that are not needed any more."""
        needed = [kernels for _, kernels in self._ahead]
        needed += [self._space.kernels(one) or () for one in (self._space.rule, self.best)]
        programs = {kernel.program for kernels in needed for kernel in kernels}
        self._compiling = {p: code for p, code in self._compiling.items() if p in programs}

    def _measure_candidate(self, choice: Choice, kernels: tuple[Kernel, ...]) -> None:
        """Wait for a choice's kernels, and measure it unless they spill."""
        try:
            compiled = self._compiled(kernels, max(0.0, self._left()))
            if not all(self._can_run(one, compiled[one.program].code) for one in kernels):
                self._count("pruned")
                return
            measured = self._measure(choice, compiled, self._time)
        except (TimeoutError, CancelledError):
            return  # the search's time is over
        except RejectedError as error:
            self._count("failed")
            if len(self._reasons) < _MAX_REASONS:
                self._reasons.append(f"{choice}: {error}")
            return
        if measured < self._time:
            self.best, self._time = choice, measured
        self._count("tried")

    def _can_run(self, kernel: Kernel, code: bytes) -> bool:
        """Whether the registers fit in a multiprocessor, with no more spilled than by the rule."""
        found = resources(code)
        if found is None:
            return True
        registers = -(-found.registers // _REGISTER_UNIT) * _REGISTER_UNIT * kernel.threads
        return registers * kernel.blocks <= REGISTER_FILE and found.stack <= self._stack

    def _count(self, what: str) -> None:
        self._counts[what] += 1
        if self._tuning.progress is not None:
            gain = self._rule_time / self._time
            self._tuning.progress(self._shape, sum(self._counts.values()), gain)


def _stack(kernel: CompiledKernel) -> int:
    found = resources(kernel.code)
    return 0 if found is None else found.stack
