"""The cases: problems of the gallery on sparse grids."""

import math
from dataclasses import dataclass
from functools import cached_property

from batchkron.problems import gallery

PI = math.pi


@dataclass(frozen=True)
class Box:
    """A continuity problem in numbers: half-widths, velocities and waves of the axes."""

    half_widths: tuple[float, ...]
    velocities: tuple[float, ...]
    numbers: tuple[float, ...]
    sines: tuple[bool, ...]
    omega: float = 2.0


BOXES = {
    "continuity-2d": Box((1, 2), (1, 1), (PI, 2 * PI), (False, True)),
    "continuity-3d": Box((1, 2, 3), (1, 1, 1), (PI, 2 * PI, 2 * PI / 3), (False, True, False)),
    "continuity-6d": Box(
        (1, 2, 3, 10, 20, 30),
        (1, 1, 3, 4, 3, 2),
        (PI, PI / 2, PI / 3, PI / 10, PI / 20, PI / 30),
        (False, True, False, False, True, False),
    ),
}


@dataclass(frozen=True)
class Case:
    """A problem of the gallery, a level and a degree."""

    name: str
    level: int
    degree: int

    @property
    def label(self):
        return f"{self.name}, level {self.level}, degree {self.degree}"

    @property
    def box(self):
        return BOXES[self.name]

    @cached_property
    def problem(self):
        return self.discretized()

    def discretized(self):
        return gallery.make(self.name, self.level, self.degree)


CASES = (
    *(Case("continuity-2d", 7, 2), Case("continuity-2d", 8, 2), Case("continuity-2d", 8, 3)),
    *(Case("continuity-3d", 7, 2), *(Case("continuity-6d", level, 2) for level in (3, 4, 5))),
)
QUICK = (Case("continuity-2d", 5, 2), Case("continuity-3d", 4, 2), Case("continuity-6d", 2, 2))

# how the time grows with the grid: to 34 million unknowns, vectors of a quarter of a gibibyte
GROWTH = (
    *(Case("continuity-2d", level, 2) for level in range(4, 17)),
    *(Case("continuity-3d", level, 2) for level in range(4, 14)),
    *(Case("continuity-6d", level, 2) for level in range(2, 9)),
)
