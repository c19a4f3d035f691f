"""What `evolve` is given, as a problem in time: a problem, an operator, or a function f(t, u)."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from batchkron.arrays import array_module, as_array, is_sparse
from batchkron.attributes import attribute, has_attribute, is_of_class
from batchkron.operators import Operator
from batchkron.operators.linear_system import LinearSystem, is_function, writing
from batchkron.spec.kron import compute_dtype

from ...products import Vector, as_product
from ...protocols import known_beside_rhs

__all__ = ["as_time_problem"]

# Attributes that an object with an operator alone may have beside it, see `TimeProblem`.
_BESIDE = ("stepper", "content_hash", "check_interval")
# Attributes that describe ``rhs``, see `known_beside_rhs`.
_OF_RHS = ("is_linear", "split_rhs", "whole_part", "source")


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
