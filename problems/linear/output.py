"""What is read off the states of a linear problem, and shown of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.arrays import array_module, to_host
from batchkron.figures import plain
from batchkron.operators.linear_system import LinearSystem, VectorInTime

from ..statement.number_checks import finite_number
from .indices import IndexPlot, draw_on, figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LinearOutput"]


class LinearOutput:
    """Errors, quantities and pictures of the states of a linear problem.

    Parameters
    ----------
    system : LinearSystem
        The problem's system, for the shapes and the place of states.
    name : str
        The problem's name.
    exact : VectorInTime
        The exact solution, if it is known.
    weights : mapping of str to ndarray, (N,)
        Of the quantities that were given.
    """

    def __init__(
        self,
        system: LinearSystem,
        name: str,
        exact: VectorInTime,
        weights: Mapping[str, NDArray[Any]],
    ) -> None:
        self._system, self._name, self._exact, self._weights = system, name, exact, weights

    def exact_at(self, t: float) -> NDArray[Any]:
        """Return the exact solution at a time, (N,).

        Raises
        ------
        ValueError
            If it is not known.
        """
        if not self._exact:
            raise ValueError(
                f"the exact solution of {self._name!r} is not known; give LinearProblem(exact=...)"
            )
        out: NDArray[Any] = array_module(self._system.initial).empty_like(self._system.initial)
        self._exact.write(finite_number("t", t), out)
        return out

    def l2_norm_exact(self, t: float) -> float:
        """Return the Euclidean norm of the exact solution at a time."""
        return _norm(self.exact_at(t))

    def l2_error(self, u: ArrayLike, t: float) -> float:
        """Return the Euclidean norm of u - exact(t).

        Parameters
        ----------
        u : array_like, (N,) or in blocks
            A state, on the CPU or the problem's device.
        t : float
            Its time.

        Raises
        ------
        ValueError
            If the exact solution is not known, or the state has another shape.
        """
        exact = to_host(self.exact_at(t), "exact")
        return _norm(to_host(self._system._flat("u", _array(u)), "u") - exact)

    def relative_error(self, u: ArrayLike, t: float) -> float:
        """Return `l2_error` relative to the norm of the exact solution; infinite if that is 0."""
        size = self.l2_norm_exact(t)
        return self.l2_error(u, t) / size if size else math.inf

    def quantities(self, *names: str) -> dict[str, Any]:
        """Return quantities by their names, for ``evolve(problem, watch=…)``.

        Parameters
        ----------
        *names : str
            By default all: those that were given, "norm" (‖u‖₂), and "error" (‖u - exact‖₂) where
            the exact solution is known.

        Returns
        -------
        dict
            Weights (N,) of those that were given, and functions of (t, u).

        Raises
        ------
        ValueError
            If a name is unknown.
        """
        known: dict[str, Any] = {**self._weights, "norm": lambda t, u: _norm(u)}
        if self._exact:
            known["error"] = lambda t, u: self.l2_error(u, t)
        for name in names:
            if name not in known:
                raise ValueError(
                    f"{name!r} is no quantity of {self._name!r}; it has {', '.join(known)}"
                )
        return {name: known[name] for name in names or known}

    def plot(
        self,
        u: ArrayLike,
        t: float | None = None,
        *,
        along: str | None = None,
        slice: Mapping[str, int] | None = None,  # noqa: A002
        show: str | None = None,
        ax: Axes | None = None,
    ) -> Figure | Axes:
        """Draw a state along one of its indices.

        Parameters
        ----------
        u : array_like, (N,) or in blocks
            State.
        t : float, optional
            Its time. If it is given and the exact solution is known, that is drawn, too.
        along : str, optional
            The index: "block", "i1", "i2", …; by default the first one that ``slice`` does not
            fix.
        slice : mapping of str to int, optional
            Indices that are fixed, and where; by default where the state is largest.
        show : {"solution", "exact", "error"}, optional
            Draw this alone.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default a new figure is made.

        Returns
        -------
        matplotlib.figure.Figure or matplotlib.axes.Axes

        Raises
        ------
        BackendUnavailableError
            If Matplotlib is not installed.
        TypeError, ValueError
            If the state has another shape, an index is unknown or outside of its range, or what is
            to be shown is not known.
        """
        picture = self.picture(u, t, along=along, slice=slice)
        if ax is None:
            return figure_of(picture, self._title(t), show)
        draw_on(ax, picture, show)
        return ax

    def picture(
        self,
        u: ArrayLike,
        t: float | None = None,
        *,
        along: str | None = None,
        slice: Mapping[str, Any] | None = None,  # noqa: A002
    ) -> IndexPlot:
        """Return the values that `plot` draws, without Matplotlib; its arguments are those."""
        state = to_host(self._system._flat("u", _array(u)), "u").reshape(self._system.blocks)
        exact = None
        if t is not None and self._exact:
            exact = to_host(self.exact_at(t), "exact").reshape(self._system.blocks)
        return IndexPlot(state, exact, along, slice or {})

    def _title(self, t: float | None) -> str:
        return plain(self._name if t is None else f"{self._name},  t = {t:.6g}")


def _array(value: Any) -> Any:
    """Return a state as an array: lists as NumPy arrays."""
    return value if isinstance(value, array_module(value).ndarray) else np.asarray(value)


def _norm(u: Any) -> float:
    return float(array_module(u).linalg.norm(u))
