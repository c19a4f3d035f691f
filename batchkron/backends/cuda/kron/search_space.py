"""The ways to work on a Kron-Matmul that tuning chooses from: runs of modes, knobs of kernels.

Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from functools import lru_cache, partial
from itertools import permutations, product, zip_longest
from typing import Any

import numpy as np

from batchkron.backends.cuda.kron.choose import KronGroup, kron_group_program, rule_groups
from batchkron.backends.cuda.kron.fibres.choose import (
    FibreGroup,
    FibreKnobs,
    fibre_group,
    fibre_knobs,
)
from batchkron.backends.cuda.kron.fibres.tf32 import PRODUCTS
from batchkron.backends.cuda.kron.panels import PanelKnobs, panel_group, panel_knobs
from batchkron.backends.cuda.kron.registers.passes import cuts
from batchkron.backends.cuda.kron.registers.tile import (
    RegisterKnobs,
    register_group,
    register_knobs,
)
from batchkron.backends.cuda.kron.slices import SliceGroup, SliceKnobs, slice_group, slice_knobs
from batchkron.backends.cuda.runtime.hardware import REGISTER_FILE, DeviceLimits
from batchkron.backends.cuda.steps import GroupShape, group_shapes
from batchkron.backends.cuda.tuning.search import Kernel
from batchkron.spec.kron import Precision

Knobs = FibreKnobs | RegisterKnobs | PanelKnobs | SliceKnobs
_KINDS: dict[str, type[Knobs]] = {
    "fibres": FibreKnobs,
    "registers": RegisterKnobs,
    "panels": PanelKnobs,
    "slices": SliceKnobs,
}
_MIN_FIBRE_FACTOR = 8  # rows or columns of a group's largest factor from which fibres are tried
_MIN_PANEL_FACTOR = 32  # the same for panels
_MAX_PERMUTED = 3  # runs of modes up to which every order of them is tried
_MAX_CUTS = 32  # ways to cut the modes into runs, tried with each kind of kernel; chosen by hand
# Rounds of the search: how many knobs of the best choice so far are changed at a time, and how much
# longer than the best a candidate may take by its estimate.
_NEIGHBOURHOODS = ((1, 1.3), (2, 2.0), (1, 1.3), (2, 2.0), (5, 4.0))
_TRANSFER_MULTIPLIES = 16  # multiply-adds that take as long as reading and writing an element
_MAX_THREAD_BYTES = 512  # of a tile in the registers of one thread
# Elements of a tile that one thread may have in registers: products of small factor sizes.
_THREAD_ELEMENTS = (8, 9, 16, 25, 27, 32, 36, 48, 64, 81, 96, 128)
_THREADS = (64, 128, 256, 512)
_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16)
_WIDTHS = (1, 2, 4, 8, 16, 32, 64)
_MAX_SLICES = 64
_MIN_OTHER_REGISTERS = 16  # of a thread, beside those of the tile's elements


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """The kernel of the modes from ``low`` to before ``high``."""

    low: int
    high: int
    knobs: Knobs


KronChoice = tuple[GroupChoice, ...]


@dataclass(frozen=True, slots=True)
class KronCase:
    """A Kron-Matmul (outer, ΠC, inner) on a device.

    ``constant``: the factors may be constants of the kernels.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    outer: int
    inner: int
    dtype: np.dtype[np.generic]
    constant: bool
    limits: DeviceLimits
    precision: Precision | None = None

    def by_the_rule(self) -> tuple[KronGroup, ...] | None:
        """Return the kernels that the rule chooses, None where it takes the general ones."""
        shape = self.inputs, self.outputs, self.outer, self.inner, self.dtype
        return rule_groups(*shape, self.constant, self.limits, self.precision)

    def parts(self, order: Iterable[tuple[int, int]]) -> list[GroupShape]:
        """Return what the groups of these runs are given."""
        sizes = self.inputs, self.outputs, self.outer, self.inner, self.dtype
        products = PRODUCTS[self.precision] if self.dtype == np.float32 else 0
        return list(group_shapes(list(order), *sizes, products))


def rule_choice(case: KronCase) -> KronChoice | None:
    """Return the rule's choice, None where it takes general kernels, or kinds besides slices."""
    groups = case.by_the_rule()
    if groups is None or len({type(group) for group in groups} - {SliceGroup}) > 1:
        return None
    return tuple(
        GroupChoice(min(group.tile.modes), max(group.tile.modes) + 1, group.knobs)
        for group in groups
    )


def _by_the_rule(case: KronCase, runs: list[tuple[int, int]], kind: str) -> KronChoice | None:
    """Return these runs with the rule's knobs for kernels of one kind, None if one has none.

    Fibres are slices where these are faster by estimate; "slices" are registers elsewhere.
    """
    found = []
    for part, run in zip(case.parts(runs), runs, strict=True):
        knobs: Knobs | None = None
        sliced = slice_group(part, case.limits)
        if kind == "fibres":
            group = fibre_group(part, None, case.limits)
            knobs = None if group is None else group.knobs
            if sliced is not None and (group is None or sliced.cycles < group.cycles):
                knobs = sliced.knobs
        elif kind == "panels":
            by_panels = panel_group(part, case.limits)
            knobs = None if by_panels is None else by_panels.knobs
        elif kind == "slices" and sliced is not None:
            knobs = sliced.knobs
        else:
            knobs = register_knobs(part, case.constant, case.limits)
        if knobs is None:
            return None
        found.append(GroupChoice(*run, knobs))
    if kind == "slices" and not any(isinstance(one.knobs, SliceKnobs) for one in found):
        return None
    return tuple(found)


@lru_cache(maxsize=4096)
def _min_cycles(part: GroupShape, limits: DeviceLimits) -> float:
    """Return the estimated cycles of a group by fibres or slices."""
    ways, sliced = fibre_knobs(part, limits), slice_group(part, limits)
    by_fibres = ways[0][0] if ways else math.inf
    return by_fibres if sliced is None else min(by_fibres, sliced.cycles)


def chosen_groups(choice: KronChoice, case: KronCase) -> tuple[KronGroup, ...] | None:
    """Return the kernels of a choice, None if it does not fit the case or the device."""
    runs = [(one.low, one.high) for one in choice]
    modes = [mode for low, high in runs for mode in range(low, high)]
    if sorted(modes) != list(range(len(case.inputs))) or any(low >= high for low, high in runs):
        return None
    found: list[KronGroup] = []
    for part, one in zip(case.parts(runs), choice, strict=True):
        group: KronGroup | None
        if isinstance(one.knobs, FibreKnobs):
            group = fibre_group(part, one.knobs, case.limits)
        elif isinstance(one.knobs, PanelKnobs):
            group = panel_group(part, case.limits, one.knobs)
        elif isinstance(one.knobs, SliceKnobs):
            group = slice_group(part, case.limits, one.knobs)
        else:
            columns = part.R if case.inner == 1 else 0
            group = register_group(part, one.knobs, columns, case.constant, case.limits)
        if group is None:
            return None
        found.append(group)
    return tuple(found)


def written_kron_choice(choice: KronChoice) -> list[list[Any]]:
    """Return a choice as plain data."""
    names = {knobs: name for name, knobs in _KINDS.items()}
    return [[names[type(c.knobs)], c.low, c.high, *astuple(c.knobs)] for c in choice]


def read_kron_choice(data: Any) -> KronChoice | None:
    """Return what `written_kron_choice` wrote, None for anything else."""
    if not isinstance(data, list) or not data:
        return None
    found = []
    for one in data:
        kind = _KINDS.get(one[0]) if isinstance(one, list) and one and _is_str(one[0]) else None
        if kind is None or len(one) != 3 + len(fields(kind)):
            return None
        if not all(type(number) is int for number in one[1:]):
            return None
        found.append(GroupChoice(one[1], one[2], kind(*one[3:])))
    return tuple(found)


def _is_str(value: object) -> bool:
    return isinstance(value, str)


def _kernel(group: KronGroup, dtype: np.dtype[np.generic]) -> Kernel:
    """Return what is compiled for a group, and what it needs."""
    program, tile = kron_group_program(group, dtype), group.tile
    if isinstance(group, FibreGroup):
        return Kernel(program, group.tile.threads * group.tile.teams, 1, tile.shared_bytes)
    return Kernel(program, group.tile.threads, group.tile.blocks, tile.shared_bytes)


class KronSpace:
    """All choices for a Kron-Matmul, in the order in which they are worth a try."""

    def __init__(self, case: KronCase, rule: KronChoice) -> None:
        self.case, self.rule = case, rule

    def kernels(self, choice: KronChoice) -> tuple[Kernel, ...] | None:
        """Return what a choice is compiled to, None if it cannot run."""
        groups = chosen_groups(choice, self.case)
        if groups is None:
            return None
        return tuple(_kernel(group, self.case.dtype) for group in groups)

    def steps(self) -> Iterator[Callable[[KronChoice], Iterable[KronChoice]]]:
        """Yield functions from the best choice so far to others that may be better.

        First all runs of modes with the rule's knobs, then the knobs of each group, few changes
        first.
        """
        yield self._other_runs
        for changes, longer in _NEIGHBOURHOODS:
            for index in range(len(self.case.inputs)):
                yield partial(self._other_knobs, index, changes, longer)

    def _orders(self) -> Iterator[list[tuple[int, int]]]:
        count = len(self.case.inputs)
        square = self.case.inputs == self.case.outputs
        for parts in range(1, count + 1):
            for cut in cuts(count, parts):
                if square or parts > _MAX_PERMUTED:
                    yield list(reversed(cut))
                else:
                    yield from map(list, permutations(cut))

    def _other_runs(self, best: KronChoice) -> Iterator[KronChoice]:
        largest = max(*self.case.inputs, *self.case.outputs)
        kinds = ["fibres"] * (largest >= _MIN_FIBRE_FACTOR) + ["registers", "slices"]
        kinds += ["panels"] * (largest >= _MIN_PANEL_FACTOR)
        for choices in zip_longest(*(self._runs(kind) for kind in kinds)):
            yield from (choice for choice in choices if choice is not None)

    def _runs(self, kind: str) -> Iterator[KronChoice]:
        """Yield the fewest runs of modes that kernels of a kind can take, and one more."""
        orders = [(len(order), self._estimate(order, kind), order) for order in self._orders()]
        fewest = tried = 0
        for parts, _, order in sorted(orders):
            if tried == _MAX_CUTS or (fewest and parts > fewest + 1):
                return
            choice = _by_the_rule(self.case, order, kind)
            if choice is not None:
                fewest, tried = fewest or parts, tried + 1
                yield choice

    def _estimate(self, order: list[tuple[int, int]], kind: str) -> float:
        """Return what orders runs of modes: cycles of fibres, multiply-adds and traffic."""
        total = 0.0
        for part in self.case.parts(order):
            if kind == "fibres":
                total += _min_cycles(part, self.case.limits)
            elif kind == "panels":
                group = panel_group(part, self.case.limits)
                total += math.inf if group is None else group.cycles
            else:
                elements = part.L * part.R * max(math.prod(part.inputs), math.prod(part.outputs))
                total += elements * (_TRANSFER_MULTIPLIES + sum(part.inputs))
        return total

    def _other_knobs(
        self, index: int, changes: int, longer: float, best: KronChoice
    ) -> Iterator[KronChoice]:
        if index >= len(best):
            return
        one = best[index]
        part = self.case.parts((c.low, c.high) for c in best)[index]
        for knobs in self._knobs(part, one.knobs, changes, longer):
            yield (*best[:index], GroupChoice(one.low, one.high, knobs), *best[index + 1 :])

    def _knobs(self, part: GroupShape, now: Knobs, changes: int, longer: float) -> Iterator[Knobs]:
        """Yield a group's knobs near those that it has now, then kernels of the other kinds."""
        yield from slice_knobs(part, self.case.limits)
        if isinstance(now, PanelKnobs) or max(*part.inputs, *part.outputs) >= _MIN_PANEL_FACTOR:
            yield from panel_knobs(part)
        ways: list[tuple[float, FibreKnobs]] = []
        large = max(*part.inputs, *part.outputs) >= _MIN_FIBRE_FACTOR
        if large or isinstance(now, FibreKnobs):
            ways = fibre_knobs(part, self.case.limits)
        if ways:
            known = {knobs: cycles for cycles, knobs in ways}
            best = known[now] if isinstance(now, FibreKnobs) else ways[0][0]
            yield from (knobs for cycles, knobs in ways if cycles <= longer * best)
        rule = register_knobs(part, self.case.constant, self.case.limits)
        if rule is not None:
            centre = now if isinstance(now, RegisterKnobs) else rule
            yield from _neighbours(part, centre, changes)


def _register_options(part: GroupShape, centre: RegisterKnobs) -> list[tuple[int, ...]]:
    """Return the values that each of `RegisterKnobs` may have, in their order."""
    widths = {centre.columns, *(width for width in _WIDTHS if width <= part.R)}
    if max(_WIDTHS) >= part.R:
        widths.add(part.R)
    slices = {centre.slices, *(1 << bit for bit in range(_MAX_SLICES.bit_length()))}
    largest = max(*part.inputs, *part.outputs)
    held = {centre.held, largest, largest**2, 3 * largest, *_THREAD_ELEMENTS}
    return [
        tuple(n for n in sorted(slices) if n <= part.L),
        tuple(sorted(widths)),
        tuple(n for n in sorted(held) if n * part.itemsize <= _MAX_THREAD_BYTES),
        tuple(sorted({centre.threads, *_THREADS})),
        tuple(sorted({centre.blocks, *_BLOCKS})),
    ]


def _neighbours(part: GroupShape, centre: RegisterKnobs, changes: int) -> Iterator[RegisterKnobs]:
    """Yield the knobs that differ from others in at most ``changes`` values, the nearest first.

    Those are left out that leave a thread fewer registers than it holds elements in.
    """
    now = astuple(centre)
    found = []
    for values in product(*_register_options(part, centre)):
        changed = sum(value != old for value, old in zip(values, now, strict=True))
        if not 0 < changed <= changes:
            continue
        knobs = RegisterKnobs(*values)
        registers = REGISTER_FILE // (knobs.threads * knobs.blocks)
        room = registers >= knobs.held * part.itemsize // 4 + _MIN_OTHER_REGISTERS
        whole = knobs.columns == part.R or knobs.slices == 1
        if whole and (room or knobs.held == centre.held):
            far = sum(abs(math.log2(value / old)) for value, old in zip(values, now, strict=True))
            found.append((changed, far, values))
    yield from (RegisterKnobs(*values) for _, _, values in sorted(found))
