"""What is shown of a problem's states: pictures, datasets and named quantities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .cut import AxisOrName, Counts, Places, make_cut
from .dataset import state_dataset
from .draw import draw_on, drawn_state, make_view
from .observables import Observables
from .quantities import StateQuantity, quantities_of, recurrence_time_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Output"]


class Output(Observables):
    """What is read off a problem's states, and shown of them: pictures, datasets, quantities."""

    def plot(
        self,
        u: NDArray[np.float64],
        t: float | None = None,
        *,
        slice: Places | None = None,  # noqa: A002
        marginal: AxisOrName | Sequence[AxisOrName] | None = None,
        show: str | None = None,
        limits: tuple[float, float] | None = None,
        ax: Axes | None = None,
    ) -> Any:
        """Draw a state along one axis as a curve, along two as an image with a colour bar.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            State.
        t : float, optional
            Its time. If it is given and the exact solution is known, its projection on the grid and
            the difference from it are drawn, too.
        slice : mapping of Axis or str to float, optional
            Axes that are fixed, and where: ``{v: 0.0}`` or ``{"v": 0.0}``.
        marginal : Axis, str, or sequence of them, optional
            Of the other axes those that are kept; f is integrated over the rest. If more than two
            axes are left, those after the first two are fixed in the middle of the domain, or at a
            place where the state is large if it vanishes there.
        show : {"solution", "exact", "error"}, optional
            Draw this alone; by default all that is known, but with ``ax`` the solution.
        limits : (float, float), optional
            The range of the values: of colours, or of the vertical axis. By default that of the
            state; for errors and functions of both signs it is symmetric around 0.
        ax : matplotlib.axes.Axes, optional
            Where to draw one subplot; by default a new figure is made, which needs no display.

        Returns
        -------
        matplotlib.figure.Figure or matplotlib.axes.Axes
            The new figure, with ``savefig``; or ``ax``.

        Raises
        ------
        BackendUnavailableError
            If Matplotlib is not installed (``pip install 'batchkron[plot]'``).
        TypeError, ValueError
            If the state has another shape, an axis is unknown, a place is outside of its axis, no
            axis is left, or what is to be shown is not known.

        Examples
        --------
        >>> from batchkron.problems import make
        >>> problem = make("continuity-2d", 4, 2)
        >>> figure = problem.plot(problem.initial, 0.0)
        >>> [subplot.get_title() for subplot in figure.axes[:3]]
        ['f', 'exact f', 'error of f']
        """
        cut = make_cut(self.problem.axes, slice, marginal)
        view = make_view(self, u, t, cut, limits)
        if ax is None:
            return drawn_state(view, show)
        draw_on(ax, view, show or "solution")
        return ax

    def to_xarray(
        self,
        u: NDArray[np.float64],
        t: float | None = None,
        *,
        points: int | Counts | None = None,
        slice: Places | None = None,  # noqa: A002
        marginal: AxisOrName | Sequence[AxisOrName] | None = None,
    ) -> Any:
        """Return a state's values on a uniform grid of points as an xarray.Dataset.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            State.
        t : float, optional
            Its time. If it is given and the exact solution is known, the dataset has its projection
            on the grid, too.
        points : int or mapping of Axis or str to int, optional
            Number of points along each axis, the midpoints of equal parts; by default n for each of
            the finest cells, and at most about a million in all.
        slice, marginal
            As of `plot`; any number of axes may be left.

        Returns
        -------
        xarray.Dataset
            The variable ``f``, and ``exact`` if it is known, with a coordinate for each axis, and
            the time ``t`` if it is given. They have the attributes ``long_name`` and, where the
            problem knows it, ``units``.

        Raises
        ------
        BackendUnavailableError
            If xarray is not installed (``pip install 'batchkron[xarray]'``).
        TypeError, ValueError
            As for `plot`; if there would be more than 2^26 points.
        """
        cut = make_cut(self.problem.axes, slice, marginal)
        return state_dataset(self, u, t, cut, points)

    def quantities(self, *names: str) -> dict[str, StateQuantity]:
        """Return quantities of a state by their names, for ``evolve(problem, watch=…)``.

        Parameters
        ----------
        *names : str
            See the notes; by default all that the problem has, without other moments.

        Returns
        -------
        dict of str to StateQuantity
            Functions of (t, u). In a run whose grid changes they are made anew for each grid.

        Raises
        ------
        TypeError, ValueError
            If a name is unknown, or the problem does not have this quantity.

        Notes
        -----
        "mass" is ∫ f over all axes, "norm" the L2 norm of f, "error" the L2 error against the exact
        solution, "outflow-rate" what flows out at the ends of the axes in a unit of time. Moments
        ∫ v^k f over all axes have names such as "v", "v^2" and "v*w^2".

        Where the terms have moments as coefficients, the axes over which these are taken are the
        velocities: "momentum" is ∫ v f ("momentum-v1" and so on if there are several velocities),
        and "kinetic-energy" ½ ∫ |v|² f. With Poisson's equation "field" is the norm ‖E‖ of its
        field, "field-energy" ½ ∫ E², and "energy" the sum of both energies.

        Examples
        --------
        >>> from batchkron.problems import make
        >>> problem = make("landau-1x1v", 4, 2)
        >>> list(problem.quantities())
        ['mass', 'momentum', 'kinetic-energy', 'field', 'field-energy', 'energy', 'norm']
        >>> energy = problem.quantities("energy")["energy"]
        >>> energy.label, round(energy(0.0, problem.initial), 3)
        ('½ ∫ v² f + ½ ∫ E²', 6.283)
        """
        return quantities_of(self, names)

    @property
    def recurrence_time(self) -> float | None:
        """The time 2π/(k Δv) at which the damping of the longest wave of a plasma ends, at latest.

        f then has filaments along v as thin as the grid's finest cells, of width Δv; what is seen
        later is of the grid. k is 2π over the length of the axis of Poisson's equation, and v the
        first of the velocities. None without velocities or a field on a periodic axis.
        """
        return recurrence_time_of(self)
