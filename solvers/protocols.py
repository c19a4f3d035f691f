"""The protocol of problems for time stepping: any object with the right attributes will do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.attributes import attribute

Product: TypeAlias = Callable[[float, NDArray[Any], NDArray[Any]], object]


class TimeProblem(Protocol):
    """u' = f(t, u) with u(t0) = initial.

    ``initial`` and ``rhs`` are sufficient for explicit methods.

    Implicit methods also need ``operator``, or ``operator_at(t)`` if it depends on time; then
    f(t, u) = A(t) u + s(t).

    IMEX methods treat f_I(t, u) = A_I(t) u + s_I(t) implicitly and the rest of f, which may be
    nonlinear, explicitly. A_I is ``implicit_operator`` or ``implicit_operator_at(t)``, by default
    all of A. ``implicit_source(t, out)`` writes s_I(t) into ``out``, shape (N,): the data of A_I's
    boundary conditions, and other terms that depend on time alone and are not small compared with
    u / dt. Without it, the whole explicit dependence of f on time counts as s_I, which needs more
    evaluations of f; see `DiagonallyImplicit`.

    ``jacobian`` is ∂f/∂u of a nonlinear f, a matrix, an operator or a function of (t, u) that
    returns one, for methods that iterate with it, such as "bdf", and for `steady_state`.

    Where A depends on the state, ``whole_part()`` returns an `ImplicitPart` that is all of f, for
    methods that treat all of it implicitly. Where A_I depends on it, ``implicit_part()`` returns
    an `ImplicitPart` in place of both. They return None where it does not.

    Optional attributes are ``t0`` (0 by default), ``stepper`` (with the defaults ``method`` and
    ``dt``), ``content_hash`` (identifies the problem of a checkpoint) and ``is_linear``. If the
    latter is True, f is A(t) u + s(t) with the operator, and ``source(t, out)``, if there is one,
    writes s(t); otherwise f is tested when it matters. ``is_linear`` is ignored if it may belong to
    another ``rhs``: if it is passed on by ``__getattr__``, or inherited by a class that defines its
    own ``rhs``. ``split_rhs()``, which is ignored likewise, returns f as a `SplitRightSide`, by
    which explicit methods take their steps with fewer passes over memory, on a device as CUDA
    graphs. They do not call ``rhs`` then, which has to be the sum of these parts.

    If the state is spread over ranks, ``initial`` and all vectors are this rank's blocks, and
    ``communicator`` is one of `batchkron.distributed`; by default that of ``operator``. Every rank
    then evaluates f at the same time. `distribute` makes such an object of a problem. Checkpoints
    also need ``content_hash``, ``gather(u, root=0)``, which returns the whole state on rank 0, and
    ``scatter(u)``, which returns the block of a whole state that all ranks have; preconditioners
    by name ``distribute_preconditioner(M, A)``, which returns the whole preconditioner M on the
    blocks of the distributed operator A, which knows the Kronecker terms of the whole one.
    """

    @property
    def initial(self) -> NDArray[Any]:
        """The state at t0, shape (N,); it is never modified."""
        ...

    def rhs(self, t: float, u: NDArray[Any], out: NDArray[Any]) -> object:
        """Write f(t, u) into ``out``, shape (N,), without reading it."""
        ...


class SplitRightSide(Protocol):
    """f(t, u) = Σ_g f_g(t) P_g(t, u) + Σ_h f_h(t) s_h.

    The f_g and f_h are functions of an array of times, which return real numbers in its shape: they
    are evaluated for all stages of several steps at once.

    An optional attribute ``bind`` is for a single product, which does not depend on t:
    ``bind(u, out)`` returns a function that writes it, as `Operator.bound` of batchkron does.
    """

    @property
    def products(self) -> Sequence[tuple[Callable[[Any], Any] | None, Product]]:
        """The f_g, of which None is 1, and the P_g; at least one.

        ``product(t, u, out)`` writes P_g(t, u) into ``out`` without reading it.
        """
        ...

    @property
    def sources(self) -> Sequence[tuple[Callable[[Any], Any], NDArray[Any]]]:
        """The f_h and the vectors s_h, shape (N,), of the dtype of the state; none change."""
        ...

    @property
    def is_repeatable(self) -> bool:
        """Whether products launch the same work on a device in each call, whatever t is.

        They are then captured in a CUDA graph, where t may be any number.
        """
        ...

    @property
    def turn(self) -> Callable[[], AbstractContextManager[Any]]:
        """Returns a context manager, inside of which products are called and repeated."""
        ...


class ImplicitPart(Protocol):
    """f_I(t, u) = A_I(t, u) u + s_I(t, u) with coefficients that follow the state.

    In each stage an IMEX method takes A_I and s_I for the stage's explicit part w, and solves a
    linear system for U = w + c (A_I(t, w) U + s_I(t, w)). That is the stage of f_I if f_I conserves
    all that its coefficients depend on, as collisions conserve density, momentum and energy at
    every place: then U and w have the same ones. Otherwise the difference is treated explicitly.

    An optional attribute ``is_whole``, False by default, says that f_I is all of f.
    """

    @property
    def operator(self) -> Any:
        """A_I of the state that was last given, the same object always."""
        ...

    def follow(self, t: float, w: NDArray[Any]) -> None:
        """Compute A_I(t, w) and s_I(t, w)."""
        ...

    def source(self, t: float, out: NDArray[Any]) -> None:
        """Write s_I into ``out``, shape (N,)."""
        ...


def whole_part_of(problem: Any) -> ImplicitPart | None:
    """Return a new `ImplicitPart` that is all of f, by ``whole_part()``; None if f is linear."""
    make = attribute(problem, "whole_part")
    return None if make is None else make()


def implicit_part_of(problem: Any) -> ImplicitPart | None:
    """Return a new `ImplicitPart` of a problem; None if its implicit part is linear."""
    make = attribute(problem, "implicit_part")
    return None if make is None else make()


def refuse_unwritten(problem: Any, t: float, initial: NDArray[Any]) -> None:
    """Raise TypeError if a right-hand side does not write to ``out``.

    ``problem``: with ``initial`` and ``rhs``, which is evaluated once or twice.
    ``initial`` (ndarray, shape (N,)): the state for which it is evaluated.

    Raises `TypeError` if ``rhs`` leaves ``out`` unchanged.
    """
    for poison in (np.nan, 7.0):
        out = np.full_like(initial, poison)
        with np.errstate(all="ignore"):
            problem.rhs(t, initial, out)
        if not np.array_equal(out, np.full_like(out, poison), equal_nan=True):
            return
    raise TypeError(
        "problem.rhs(t, u, out) did not write into out; expected out[...] = f(t, u), and what "
        "it returns is not looked at."
    )


def says_linear(problem: Any) -> bool:
    """Return whether a problem's ``is_linear`` is True and belongs to its ``rhs``."""
    return known_beside_rhs(problem, "is_linear") is True


def known_beside_rhs(problem: Any, name: str) -> Any:
    """Return an attribute that describes ``rhs``, if it certainly belongs to this problem's.

    ``problem``: with ``rhs``.
    ``name``: the attribute's name.

    Returns the attribute if it is defined by the object itself, by the class that defines ``rhs``,
    or by a class derived from that. Otherwise None: an attribute from ``__getattr__`` may describe
    another object's ``rhs``, and an inherited one describes the ``rhs`` that was overridden.
    """
    places = [getattr(problem, "__dict__", {}), *map(vars, type(problem).__mro__)]
    for place in places:
        if name in place:
            return attribute(problem, name)
        if "rhs" in place:
            return None
    return None


def implicit_operator_of(problem: Any, t: float) -> Any:
    """Return A_I(t), the part of the operator that an IMEX method treats implicitly.

    ``problem``: with ``implicit_operator_at(t)`` or ``implicit_operator``; otherwise as for
      `operator_of`.

    Returns a linear operator of shape (N, N). Raises `TypeError` if the problem has no operator.
    """
    at_time = attribute(problem, "implicit_operator_at")
    if at_time is not None:
        return at_time(t)
    operator = attribute(problem, "implicit_operator")
    return operator_of(problem, t) if operator is None else operator


def implicit_source_of(problem: Any) -> Callable[[float, NDArray[Any]], object] | None:
    """Return the function that writes s_I(t), which an IMEX method adds to A_I(t) u.

    ``problem``: with ``implicit_source(t, out)`` or without.

    Result: None if the problem has no ``implicit_source``. Raises `TypeError` if
    ``implicit_source`` is not a function.
    """
    source: Callable[[float, NDArray[Any]], object] | None
    source = attribute(problem, "implicit_source")
    if source is not None and not callable(source):
        raise TypeError(
            f"problem.implicit_source is a {type(source).__name__}; expected a function "
            "implicit_source(t, out) that writes s_I(t) into out."
        )
    return source


def has_operator(problem: Any) -> bool:
    """Return whether a problem has ``operator_at(t)`` or ``operator``."""
    at_time = attribute(problem, "operator_at")
    return at_time is not None or attribute(problem, "operator") is not None


def operator_of(problem: Any, t: float) -> Any:
    """Return A(t), the linear part of f(t, u) = A(t) u + s(t).

    ``problem``: with ``operator_at(t)`` or ``operator``.

    Returns a linear operator of shape (N, N). Raises `TypeError` if the problem has neither.
    """
    at_time = attribute(problem, "operator_at")
    if at_time is not None:
        return at_time(t)
    operator = attribute(problem, "operator")
    if operator is None:
        raise TypeError(
            f"{type(problem).__name__} has neither operator nor operator_at(t), which an implicit "
            "method needs. Give it one, or take an explicit method or method='bdf' with rtol, "
            "which need none; for u' = A u + s(t) give evolve(A, u0, source=s)."
        )
    return operator
