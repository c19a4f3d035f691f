"""`Adapt`: the rule by which a grid follows the solution, and what a problem needs for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from batchkron.attributes import attribute, has_attribute
from batchkron.storage import StoredGrid

from ...products import Vector
from ..start.arguments import finite_number

__all__ = ["Adapt", "AdaptiveProblem", "adaptive_problem", "as_rule"]

_SHARE = 0.1  # default horizon as a share of the run; chosen by hand


@dataclass(frozen=True, eq=False)
class Adapt:
    """The rule by which the grid of a run is refined and coarsened; `evolve` takes it as ``adapt``.

    Parameters
    ----------
    tol : float
        A cell is refined if its indicator max(‖u_b‖, τ ‖(A u + s)_b‖) is larger, where b is its
        block of coefficients, and removed if it is below a tenth of that for two successive
        adaptations, unless another cell needs it. In the unit of f times the square root of the
        domain's volume.
    every : int
        Number of accepted steps from one adaptation to the next.
    horizon : float, optional
        τ, in the unit of time: the rate of change shows that a cell will be needed before its
        coefficients do. By default the time between two adaptations, or a tenth of the run if that
        is longer.
    max_level : int or sequence of int, optional
        Largest level of a cell, one for all axes or one per axis. By default three more than the
        finest level of the problem's grid; for a problem that has no operators of other levels, as
        one from a file, its finest level.
    keep : axis, name, or sequence of them
        Cells whose index is 0 along all of these axes are never removed. With the velocities of a
        kinetic problem, adaptation does not change the moments up to the basis's degree: density,
        momentum and energy.
    weight : callable, field or str, optional
        By what a cell's indicator is multiplied: the largest |weight| among points of its support,
        which are the centre and the corners, and eight points along the axis of a field.

        - A function of the axes, with one array for each, such as ``lambda x, v: v**2``.
        - A function of the axes and of ``fields``, such as ``lambda x, v, E: E**2 * v**2``.
        - A field, such as ``Poisson(x, Moment(v))``; it has the values that it has for the state.
        - A product of powers of the axes, and of ``field``, the field of the problem's Poisson
          equation, as a text: ``"v^2"``, ``"field^2*v^2"``.
    fields : sequence of fields
        The last arguments of ``weight``: moments, and what is made of them.
    relative : bool
        Whether ``tol`` is relative to the norm of the indicators of all cells, instead of absolute.

    Raises
    ------
    TypeError
        If a number has another type. `evolve` checks the other arguments against the problem.
    ValueError
        If ``tol`` or ``horizon`` is not positive, or ``every`` is less than 1.

    Notes
    -----
    The rates of the hierarchical children of a refined cell, in each axis, are computed on a wider
    grid. Children with an indicator above 0.7 ``tol`` there are added with coefficients 0, and with
    them the cells that keep the grid closed downward. If one of them would have exceeded
    ``tol`` in the time since the last adaptation, its rate times that time being larger, the steps
    since then are repeated with the new cells, at most three times. A new cell stays for at least
    three adaptations, so that none is added and removed in turn. Its rate is at first that of its
    way to a balance with other cells, and counts for the time between two adaptations instead of τ.
    The grid of the initial state is refined before the first step, by children with an indicator
    above 0.2 ``tol``, and the state projected on it anew.

    A coefficient of a stiff part of f, as of diffusion on fine cells, follows its rate for a time
    much shorter than τ. There ``horizon`` should be about that short; otherwise more cells are
    added than the solution needs.

    Examples
    --------
    >>> from batchkron.problems import make
    >>> from batchkron.solvers import Adapt, evolve
    >>> problem = make("continuity-2d", level=3, degree=2)
    >>> result = evolve(problem, until=0.02, dt=1e-3, adapt=Adapt(1e-3, every=5))
    >>> problem.unknowns, result.problem.unknowns, result.u.size
    (180, 288, 288)
    """

    tol: float
    every: int = 10
    horizon: float | None = None
    max_level: int | Sequence[int] | None = None
    keep: Iterable[Any] | Any = ()
    weight: Any = None
    relative: bool = False
    fields: Iterable[Any] | Any = ()

    def __post_init__(self) -> None:
        for name in ("tol", "horizon"):
            given = getattr(self, name)
            if given is None and name == "horizon":
                continue
            if not finite_number(name, given) > 0.0:
                raise ValueError(f"{name} is {given}; expected a number > 0.")
        every = self.every
        if isinstance(every, bool) or not isinstance(every, (int, np.integer)):
            raise TypeError(f"every is {every!r}; expected a number of steps, an int.")
        if every < 1:
            raise ValueError(f"every is {every}; expected at least 1 step.")
        if not isinstance(self.relative, (bool, np.bool_)):
            raise TypeError(f"relative is {self.relative!r}; expected True or False.")

    def horizon_of(self, length: float, interval: float) -> float:
        """Return τ for a run of this length and the time between two adaptations."""
        return max(interval, _SHARE * length) if self.horizon is None else float(self.horizon)


class AdaptiveProblem(Protocol):
    """A problem on a grid that follows its solution: what ``problem.adaptive(...)`` returns.

    `evolve` knows nothing of grids. It calls ``problem.adaptive`` with the keyword arguments
    ``tol``, ``relative``, ``max_level``, ``keep`` and ``weight`` of `Adapt`, and with ``fields`` if
    there are some, and uses the object that it gets by this protocol. Such an object does not
    change; another grid is another object. It may have the numbers ``limited`` and ``excess``, as
    of `AdaptOutcome`.
    """

    @property
    def problem(self) -> Any:
        """The problem on the present grid; its ``initial`` is the state at the last change."""
        ...

    @property
    def missed(self) -> bool:
        """Whether cells added last would have exceeded the tolerance in the interval before."""
        ...

    @property
    def is_finer(self) -> bool:
        """Whether the last change may have made stable steps shorter."""
        ...

    @property
    def added(self) -> int:
        """Number of cells that the last change added."""
        ...

    @property
    def removed(self) -> int:
        """Number of cells that the last change removed."""
        ...

    def started(self, horizon: float) -> AdaptiveProblem:
        """Return the problem on the grid that its initial state needs."""
        ...

    def changed(self, u: Vector, t: float, horizon: float, interval: float) -> AdaptiveProblem:
        """Return the problem on the grid that the state u at time t needs, with that state."""
        ...

    def extended(self, u: Vector, t: float, other: Any) -> AdaptiveProblem:
        """Return the problem with the cells of another grid as well, with the state u at t."""
        ...

    def saved(self) -> StoredGrid:
        """Return the grid, and what is remembered of its cells, for a checkpoint."""
        ...

    def restored(self, grid: StoredGrid, u: Vector, t: float) -> AdaptiveProblem:
        """Return the problem on a grid that `saved` has returned, with the state u at time t."""
        ...


def as_rule(own: Any) -> Adapt | None:
    """Return a problem's own rule, its attribute ``adapt``, as an Adapt; None if it is no rule."""
    if not has_attribute(own, "tol"):
        return None
    names = "tol", "every", "horizon", "max_level", "keep", "weight", "relative"
    return Adapt(**{name: getattr(own, name) for name in names})


def adaptive_problem(problem: Any, adapt: Any) -> AdaptiveProblem:
    """Return a problem with a rule by which its grid follows the solution.

    Raises `TypeError` if ``adapt`` is not an Adapt, or the problem has no method ``adaptive``.
    `ValueError` if the rule does not fit the problem.
    """
    if not isinstance(adapt, Adapt):
        raise TypeError(
            f"adapt is a {type(adapt).__name__}; expected an Adapt, as in adapt=Adapt(1e-4), "
            "or False for a grid that does not change."
        )
    make = attribute(problem, "adaptive")
    if not callable(make):
        raise TypeError(
            f"adapt is given, but a {type(problem).__name__} has no grid that can follow the "
            "solution: it has no method adaptive(). Leave adapt out, or take a problem of "
            "batchkron.problems."
        )
    more = {} if adapt.fields == () else {"fields": adapt.fields}
    made: AdaptiveProblem = make(
        tol=float(adapt.tol),
        relative=bool(adapt.relative),
        max_level=adapt.max_level,
        keep=adapt.keep,
        weight=adapt.weight,
        **more,
    )
    return made
