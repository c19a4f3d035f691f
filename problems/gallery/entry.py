"""An entry of the gallery: a PDE with its description and default settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from batchkron.names import StepperName

from ..grids.choice import GridChoice
from ..grids.sparse_grid import SparseGrid
from ..pde import PDE
from ..semidiscrete.problem import Problem
from ..statement.number_checks import finite_number

__all__ = ["WAVENUMBERS", "GalleryEntry", "step_of_second_order"]

WAVENUMBERS = 1e-6, 1e6
"""The range of the parameter k of waves, which have the length 2π/k."""


@dataclass(frozen=True)
class GalleryEntry:
    """A PDE with its description and its default settings for a run.

    Attributes
    ----------
    name : str
        Name in the gallery.
    equation : str
        Domain, equation and boundary conditions, in one line.
    solution : str
        The exact solution, in one line; or that it is not known, and what is known of it.
    build : callable
        A function that makes the PDE, with `parameters` as its only arguments.
    level : int
        Finest level of every axis.
    degree : int
        Polynomial degree.
    until : float
        Final time.
    method : str
        Time stepper.
    step : callable or None
        A function of (level, degree) that returns the time step; None means the rule of
        `PDE.discretize`, 0.5 / ((2p + 1) Σ |v_i| / h_i) for first derivatives.
    parameters : mapping of str to float
        The keyword arguments of `build` with their defaults.
    is_known : bool
        Whether the PDE has its exact solution.
    ranges : mapping of str to (float, float)
        The smallest and largest value of parameters that may not be any finite number.
    """

    name: str
    equation: str
    solution: str
    build: Callable[..., PDE]
    level: int
    degree: int
    until: float
    method: str
    step: Callable[[int, int], float] | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)
    is_known: bool = True
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def pde(self) -> PDE:
        """The PDE, with the default parameters."""
        return self.build(**self.parameters)

    def pde_with(self, parameters: Mapping[str, float]) -> PDE:
        """Return the PDE with other values of some parameters.

        Raises
        ------
        TypeError, ValueError
            If the entry has no such parameter, or a value is not a finite number in its range.
        """
        for name, value in parameters.items():
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise TypeError(
                    f"{self.name} has no parameter {name!r}; its parameters are: {known}"
                )
            number = finite_number(f"the parameter {name!r}", value)
            low, high = self.ranges.get(name, (number, number))
            if not low <= number <= high:
                raise ValueError(
                    f"the parameter {name!r} of {self.name} is {number:g}; expected {low:g} … "
                    f"{high:g}"
                )
        return self.build(**{**self.parameters, **parameters})

    def make(
        self,
        level: int | Sequence[int] | None = None,
        degree: int | None = None,
        grid: GridChoice = "sparse",
        *,
        until: float | None = None,
        method: StepperName | None = None,
        dt: float | None = None,
        boundary_penalty: float = 1.0,
        **parameters: float,
    ) -> Problem:
        """Return the discretized problem; arguments that are left out have the entry's defaults.

        Parameters
        ----------
        level : int or sequence of int, optional
            Finest level, one for all axes or one per axis.
        degree : int, optional
            Polynomial degree.
        grid : {"sparse", "full"}, Mixed or SparseGrid
            Which blocks the grid has; a SparseGrid has its own levels.
        until : float, optional
            Final time.
        method : str, optional
            Time stepper.
        dt : float, optional
            Time step. If it is left out and the method is not the entry's, the rule of
            `PDE.discretize` gives it.
        boundary_penalty : float
            See `PDE.discretize`.
        **parameters : float
            Values of the entry's `parameters`, such as ``k=0.4``.

        Returns
        -------
        Problem

        Raises
        ------
        TypeError, ValueError
            As `PDE.discretize`, or if the entry has no such parameter or a value is out of range.
        """
        if level is None and not isinstance(grid, SparseGrid):
            level = self.level
        chosen = self.degree if degree is None else degree
        if dt is None and self.step is not None and method in (None, self.method):
            dt = self.step(_finest(level, grid), chosen)
        return self.pde_with(parameters).discretize(
            level,
            chosen,
            grid,
            until=self.until if until is None else until,
            method=cast(StepperName, self.method) if method is None else method,
            dt=dt,
            boundary_penalty=boundary_penalty,
        )

    def describe(self) -> str:
        """Return a few lines with the equation, the solution and the default settings."""
        return (
            f"{self.name}: {self.equation}\n"
            f"  exact solution {self.solution}\n"
            f"{self._parameters_text()}"
            f"  level {self.level}, degree {self.degree}, {self.method} until {self.until:g}"
        )

    def _parameters_text(self) -> str:
        """Return a line with the parameters and their defaults, or nothing."""
        if not self.parameters:
            return ""
        values = ", ".join(f"{name} = {value:g}" for name, value in self.parameters.items())
        return f"  parameters {values}\n"


def _finest(level: int | Sequence[int] | None, grid: GridChoice) -> int:
    """Return the largest of the axes' finest levels."""
    if isinstance(grid, SparseGrid):
        return max(grid.levels)
    return max(level) if isinstance(level, Sequence) else int(level or 0)


def step_of_second_order(level: int, degree: int) -> float:
    """Return the time step 0.5 h^((p + 1)/2) / (2p + 1) for h = 2^-level and degree p.

    The error in time of a method of second order then falls as fast as the error in space, of order
    p + 1 in h.
    """
    return float(0.5 * 0.5 ** (level * (degree + 1) / 2) / (2 * degree + 1))
