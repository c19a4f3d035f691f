"""What a Krylov method is: a recursion between products with A, over vectors of its own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ...products import Vector
from ..systems.system import LinearSystem
from ..vectors.passes import (
    OperatorExtent,
    ScaleResidual,
    SharedVectors,
    StartExtent,
    StartNorms,
    TrueResidual,
)
from ..vectors.space import Flag, KrylovSpace, Passes

_B = SharedVectors._fields.index("b")


class Recursion(ABC):
    """A method's vectors and the passes over them, for systems with or without M.

    It begins from a true residual b - A x and iterates until the passes have an estimate of the
    residual that is small enough, or cannot go on. Passes return how many systems are running
    after them, -1 where that is not known without waiting for a device; so do the functions here.
    """

    flags = Flag(0)  # options of the passes
    flags_with_m = Flag.PRECONDITIONED  # others where there is an M
    measures = False  # whether the first product with A says in what unit they are taken
    never_worse = False  # whether an iterate is taken over only if its true residual is less
    checks_ahead = False  # whether `check` may be called while a system is running

    def __init__(self, space: KrylovSpace, preconditioned: bool) -> None:
        space.flags = self.flags | (self.flags_with_m if preconditioned else Flag(0))
        self.space, self.preconditioned = space, preconditioned
        self.max_steps: int | float = math.inf  # before the true residual is computed
        self.confirms = True  # whether `check` computes the true residual in any case
        self.measured = False  # whether the unit of products with A is known
        self.x, self.residual, product = self.allocate(preconditioned)
        given = SharedVectors(r=self.residual, x=self.x)
        self.start = space.passes((StartExtent, StartNorms), given)
        self._scale = space.passes((ScaleResidual,), SharedVectors(r=self.residual))
        if self.measures:
            self._extent = space.passes((OperatorExtent,), SharedVectors(w=product))
        self.decide = space.passes((TrueResidual,), given)

    @abstractmethod
    def allocate(self, preconditioned: bool) -> tuple[Vector, Vector, Vector]:
        """Make the vectors and the passes over them.

        Returns
        -------
        x : ndarray
        r : ndarray
            Where the true residual is written when no system is running.
        w : ndarray
            Where products with A are; the first one may say in what unit they are taken.
        """

    def begin(self, system: LinearSystem) -> int:
        """Begin from the true residual."""
        return self._scale.run()

    @abstractmethod
    def iterate(self, system: LinearSystem, steps: range) -> int:
        """Do iterations, counted since `begin`, until no system is running."""

    def step_key(self, step: int) -> int:
        """Return what iterations of the same work have in common."""
        return step % 2

    def measure(self) -> None:
        """After the first product with A: see in what unit products are taken."""
        if not self.measured:
            self._extent.run()
            self.measured = True

    def check(self, system: LinearSystem, ahead: int = 0) -> int:
        """Compute the true residual, and what it says.

        If ``ahead`` is not 0, the system may be running after so many iterations, and can then go
        on.
        """
        system.apply(self.x, self.residual)
        return self.decide.run()

    def checked_residual(self) -> Vector:
        """Return the residual that `check` has computed."""
        return self.residual

    def go_on(self) -> None:
        """After `check` with ``checks_ahead``: bring the residual to where a cycle begins."""
        return

    def recognise(self, system: LinearSystem, progress: Any, scalars: Any) -> None:
        """Say of systems that did not converge what their passes could not know: nothing here."""
        return

    def measured_residual(self, system: LinearSystem) -> Vector:
        """Return b - A x of all systems, where the passes have it."""
        system.apply(self.x, self.residual)
        np.subtract(system.b, self.residual, out=self.residual)
        return self.residual

    def in_a_launch(self, A: Any) -> Passes | None:
        """Return iterations that the device does in one launch, None where there are none."""
        return None

    def point_at(self, b: Vector | None, address: int) -> None:
        """Let the passes that read b read these right-hand sides; None and 0 for none."""
        for passes in (self.start, self.decide):
            passes.set_vector(_B, b, address)

    def forget_operands(self) -> None:
        """Let go of the arrays of the last solve that are not the workspace's own."""
        self.point_at(None, 0)
