"""A problem that begins at another state than its own initial one."""

from __future__ import annotations

from typing import Any

from batchkron.arrays import array_module

from ...products import Vector

__all__ = ["beginning_at"]


def beginning_at(problem: Any, u0: Any) -> Any:
    """Return a problem with another initial state.

    Parameters
    ----------
    problem : TimeProblem
        The problem; its method ``beginning_at(u)`` is used if it has one.
    u0 : ndarray, shape (N,), or in the blocks of a problem that has some
        The state.

    Returns
    -------
    TimeProblem

    Raises
    ------
    TypeError
        If u0 is no array of numbers, or not where the problem is.
    ValueError
        If u0 has another shape than ``problem.initial``.
    """
    initial = getattr(problem, "initial", None)
    if initial is None:
        return problem  # refused by the check of all problems
    module = array_module(initial)
    if not isinstance(u0, module.ndarray):
        raise TypeError(
            f"u0 is a {type(u0).__name__}; expected a {module.__name__} array like problem.initial"
        )
    if u0.dtype.char not in "fdFD":
        raise TypeError(f"u0 has dtype {u0.dtype}; expected that of problem.initial")
    if u0.shape != initial.shape:
        shapes = _shapes_of(problem, initial.size)
        if u0.shape not in shapes:
            expected = " or ".join(map(str, shapes))
            raise ValueError(f"u0 has shape {u0.shape}; expected {expected}, as problem.initial")
        u0 = u0.reshape(-1)
    own = getattr(problem, "beginning_at", None)
    return _BeginningAt(problem, u0) if own is None else own(u0)


def _shapes_of(problem: Any, unknowns: int) -> list[tuple[int, ...]]:
    """Return the shapes in which a problem's states may be given: flat, or in blocks."""
    shapes: list[tuple[int, ...]] = list(getattr(problem, "vector_shapes", [(unknowns,)]))
    size = getattr(problem, "block_size", None)
    return [*shapes, (unknowns // size, size)] if size else shapes


class _BeginningAt:
    """A problem with another initial state and all else as it is."""

    def __init__(self, problem: Any, u0: Vector) -> None:
        self._problem, self.initial = problem, u0.copy()

    def rhs(self, t: float, u: Vector, out: Vector) -> Any:
        return self._problem.rhs(t, u, out)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_problem"), name)
