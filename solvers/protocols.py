"""Problems in time: the protocol that they follow, and what else `evolve` takes for one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module, as_array, is_sparse
from batchkron.attributes import attribute, has_attribute, is_of_class
from batchkron.operators import Operator
from batchkron.operators.linear_system import LinearSystem, is_function, writing
from batchkron.spec.kron import compute_dtype

from .products import Vector, as_product

# Attributes that an object with an operator alone may have beside it, see `TimeProblem`.
_BESIDE = ("stepper", "content_hash", "check_interval")
# Attributes that describe ``rhs``, see `known_beside_rhs`.
_OF_RHS = ("is_linear", "split_rhs", "whole_part", "source")

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


def as_time_problem(given: Any, u0: Any, source: Any, jac: Any = None) -> Any:
    """Return the problem in time that is meant by the arguments of `evolve`.

    ``given`` (TimeProblem, Operator, matrix, object with ``operator``, or function): u' = f(t, u),
      u' = A u + s(t), or f itself.
    ``u0``: the state at t0; None for the problem's.
    ``source``: s of an operator, see `LinearSystem`.
    ``jac``: the Jacobian of f, which becomes the problem's ``jacobian``.

    Raises `TypeError`, `ValueError` if an argument is missing, or does not belong to the others.
    """
    if jac is not None:
        found = as_time_problem(given, u0, source)
        if not isinstance(found, FunctionProblem):
            found = _WithRhs(found, found.initial, found.rhs)
        found.jacobian = jac if not is_function(jac) else found.flat(jac)
        return found
    has_rhs = callable(attribute(given, "rhs"))
    if not has_rhs and callable(attribute(given, "discretize")):
        raise TypeError(
            f"problem is a {type(given).__name__}, which is not discretized: call "
            "pde.discretize(level), such as evolve(pde.discretize(5), ...)"
        )
    operator = None
    if not has_rhs:  # the operator of a problem may be made only when it is needed
        operator = given if _is_matrix(given) else attribute(given, "operator")
    if has_rhs or (operator is None and not is_function(given)):
        if source is not None:
            raise TypeError(
                "source is the s(t) of an operator, u' = A u + s(t), and the problem has a rhs of "
                "its own; leave source out"
            )
        if has_rhs and has_attribute(given, "initial") and _returns(given.rhs):
            given = _WithRhs(given, given.initial, writing(given.rhs, "t, u", "problem.rhs"))
        return given if u0 is None else _beginning_at(given, u0)
    if operator is not None and _is_matrix(operator):
        return _system(given, operator, u0, source)
    if operator is not None:
        raise TypeError(
            f"operator is a {type(operator).__name__}; expected an operator of batchkron, a matrix "
            "or a LinearOperator"
        )
    if u0 is None:
        raise ValueError("u0 is missing: a function f(t, u) does not say where u begins")
    if source is not None:
        raise TypeError(
            "source is the s(t) of an operator, u' = A u + s(t); add it inside of the function"
        )
    return FunctionProblem(given, u0)


def _returns(rhs: Any) -> bool:
    """Whether a function takes (t, u), and not (t, u, out), by its signature."""
    try:
        takes = inspect.signature(rhs).bind
        takes(None, None)
    except (TypeError, ValueError):  # it takes more, or has no signature
        return False
    try:
        takes(None, None, None)
    except TypeError:
        return True
    return False


def _is_matrix(value: Any) -> bool:
    """Whether a value multiplies vectors: an operator, a matrix or a SciPy LinearOperator."""
    if isinstance(value, Operator) or is_sparse(value):
        return True
    is_array = isinstance(value, array_module(value).ndarray)
    return is_array or (has_attribute(value, "matvec") and has_attribute(value, "shape"))


def _system(given: Any, operator: Any, u0: Any, source: Any) -> LinearSystem:
    """Return u' = A u + s(t) of an operator, or of an object that has one and no ``rhs``."""
    initial, kept = (u0, None) if given is operator else (_first(given, u0), given)
    if initial is None:
        raise ValueError("u0 is missing: an operator does not say where u begins")
    if kept is not None and source is None:
        source = attribute(kept, "source")
    product = None
    if not isinstance(operator, Operator):
        like = np.empty(0, attribute(operator, "dtype", np.float64))
        state = as_array(initial, "u0", array_module(initial))
        state = state.astype(compute_dtype(np.empty(0, state.dtype), like))
        product = as_product(operator, "operator", state.reshape(-1))
    t0 = float(attribute(kept, "t0", 0.0))
    system = LinearSystem(operator, initial, source, t0=t0, product=product)
    for name in _BESIDE:
        if has_attribute(kept, name):
            setattr(system, name, getattr(kept, name))
    return system


def _first(given: Any, u0: Any) -> Any:
    return attribute(given, "initial") if u0 is None else u0


def _beginning_at(problem: Any, u0: Any) -> Any:
    """Return a problem with another initial state: its own ``beginning_at(u0)``, or a wrapper."""
    initial = attribute(problem, "initial")
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
    own = attribute(problem, "beginning_at")
    return _WithRhs(problem, u0.copy(), problem.rhs) if own is None else own(u0)


class _WithRhs:
    """A problem with another initial state, or with its ``rhs`` as a function that writes."""

    def __init__(self, problem: Any, initial: Any, rhs: Any) -> None:
        self._problem, self.initial, self.rhs = problem, initial, rhs
        for name in _OF_RHS:
            known = known_beside_rhs(problem, name)
            if known is not None:
                setattr(self, name, known)

    def flat(self, function: Any) -> Any:
        """Return a function of (t, u) for flat states, as the problem's are."""
        return function

    def __getattr__(self, name: str) -> Any:
        problem = object.__getattribute__(self, "_problem")
        try:
            return getattr(problem, name)
        except AttributeError as error:
            if is_of_class(problem, name):  # a fault, which must not count as a missing attribute
                raise RuntimeError(f"{type(problem).__name__}.{name} failed: {error}") from error
            raise


def _shapes_of(problem: Any, unknowns: int) -> list[tuple[int, ...]]:
    """Return the shapes in which a problem's states may be given: flat, or in blocks."""
    shapes: list[tuple[int, ...]] = list(attribute(problem, "vector_shapes", [(unknowns,)]))
    size = attribute(problem, "block_size")
    return [*shapes, (unknowns // size, size)] if size else shapes


class FunctionProblem:
    """u' = f(t, u) of a function f(t, u), which returns its value, or f(t, u, out).

    ``function``: it is called with states of the shape of ``u0``.
    ``u0``: the state at 0, of any shape, `state_shape`; integers are taken as float64.
    """

    t0 = 0.0

    def __init__(self, function: Any, u0: Any) -> None:
        given = as_array(u0, "u0", array_module(u0))
        self.state_shape, self._write = given.shape, writing(function, "t, u", "f")
        self.initial: Vector = given.astype(compute_dtype(given)).reshape(-1)

    def rhs(self, t: float, u: Vector, out: Vector) -> None:
        """Write f(t, u) into ``out``."""
        self._write(t, u.reshape(self.state_shape), out.reshape(self.state_shape))

    def flat(self, function: Any) -> Any:
        """Return a function of (t, u) for flat states, which gives it those of the shape of u0."""
        return lambda t, u: function(t, u.reshape(self.state_shape))
