"""A problem in time of whose state each rank has a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial, reduce
from operator import add
from typing import Any, Protocol, overload, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from batchkron.arrays import array_module
from batchkron.attributes import attribute, has_attribute
from batchkron.distributed.communication.communicator import Communicator
from batchkron.distributed.operator import DistributedOperator
from batchkron.distributed.preconditioners.like_operator import like_operator
from batchkron.distributed.problems.adaptive import DistributedAdaptive
from batchkron.distributed.problems.operators import ProblemOperators
from batchkron.distributed.problems.quantities import block_quantities
from batchkron.distributed.vectors.layout import Layout
from batchkron.distributed.vectors.movement import check_root, gather, scatter
from batchkron.functions.vector_sum import linear_combination
from batchkron.operators import Operator
from batchkron.operators.linear_system import SplitRightSide
from batchkron.spec.kron import Array

__all__ = ["DistributedProblem", "SeparableProblem"]

_Operators = Sequence[tuple[Callable[[float], float], Operator]]
_Vectors = Sequence[tuple[Callable[[float], float], Array]]


@runtime_checkable
class SeparableProblem(Protocol):
    """What is needed of a problem u' = A(t) u + s(t), such as `batchkron.problems.Problem`."""

    @property
    def initial(self) -> Array:
        """The state at t0, (N,)."""
        ...

    def time_parts(self, *, implicit: bool = False) -> Any:
        """Return ``operators`` and ``sources``, pairs of a function of time and what it scales.

        With ``implicit`` the part that IMEX methods treat implicitly.
        """
        ...


class DistributedProblem:
    """The system u' = A(t) u + s(t) on blocks of u; `distribute` makes it for `evolve`.

    Each rank has the block of the initial state, of the sources and of all states of a run.

    Parameters
    ----------
    whole : Problem
        The whole problem, on every rank.
    communicator : Communicator
        The ranks, which share every state.
    make : ProblemOperators
        Returns the distributed operators of some of the problem's.

    Attributes
    ----------
    whole : Problem
    communicator : Communicator
    layout : Layout
        Who owns what of a state.
    initial : ndarray, (n,)
        This rank's block of the state at t0.

    Examples
    --------
    >>> from batchkron.distributed import distribute, simulate
    >>> from batchkron.problems import make
    >>> from batchkron.solvers import evolve
    >>> def run(comm):
    ...     part = distribute(make("continuity-1d", level=3, degree=1), comm)
    ...     result = evolve(part, until=0.1)
    ...     return result.u.size, part.gather(result.u).size
    >>> simulate(2, run)
    [(8, 16), (8, 16)]
    """

    def __init__(
        self, whole: SeparableProblem, communicator: Communicator, make: ProblemOperators
    ) -> None:
        self.whole, self.communicator, self._make = whole, communicator, make
        self._operators = self._distributed(whole.time_parts().operators)
        self.layout: Layout = self._operators[0][1].layout
        self.initial = self._block(whole.initial)
        self._arrays = array_module(self.initial)
        if isinstance(self.initial, np.ndarray):  # CuPy has no such flag
            self.initial.flags.writeable = False
        self._sources = self._blocks(whole.time_parts().sources)

    @property
    def t0(self) -> float:
        """The time of the initial state."""
        return float(attribute(self.whole, "t0", 0.0))

    @property
    def stepper(self) -> Any:
        """The default method and step."""
        return attribute(self.whole, "stepper")

    @property
    def adapt(self) -> Any:
        """The whole problem's rule by which its grid follows the solution."""
        return attribute(self.whole, "adapt")

    @property
    def content_hash(self) -> str | None:
        """The whole problem's, if any, by which checkpoints are known on any number of ranks."""
        known = attribute(self.whole, "content_hash")
        return None if known is None else str(known)

    @property
    def is_linear(self) -> bool:
        """True: `rhs` is A(t) u + s(t)."""
        return type(self).rhs is DistributedProblem.rhs

    def check_interval(self, t0: float, until: float) -> None:
        """Raise ValueError if the whole problem does not know its coefficients at some time."""
        check = attribute(self.whole, "check_interval")
        if check is not None:
            check(t0, until)

    @property
    def imbalance(self) -> float:
        """The work of the busiest rank in that of the mean, for operators on a sparse grid."""
        return self._make.imbalance

    @property
    def is_rebalanced(self) -> bool:
        """Whether cells have changed their owners when the grid has changed last."""
        return self._make.is_rebalanced

    def adaptive(self, **rule: Any) -> DistributedAdaptive[DistributedProblem]:
        """Return the problem with a rule by which its grid follows the solution.

        Parameters
        ----------
        **rule
            Those of the whole problem's method, such as `batchkron.problems.Problem.adaptive`.

        Raises
        ------
        TypeError
            If the whole problem has no grid that can change.
        """
        whole: Any = self.whole
        if not callable(attribute(whole, "adaptive")):
            raise TypeError(
                f"a {type(whole).__name__} has no grid that can follow the solution: it has no "
                "method adaptive()"
            )
        return DistributedAdaptive(whole.adaptive(**rule), self)

    def on_another_grid(self, whole: SeparableProblem) -> DistributedProblem:
        """Return the problem on another grid, whose cells stay on their ranks if that is balanced.

        Parameters
        ----------
        whole : Problem
            The whole problem there, on every rank.
        """
        return DistributedProblem(whole, self.communicator, self._make.on_another_grid())

    @property
    def operator(self) -> Operator:
        """The operator A on blocks, of a problem in which it does not depend on time.

        Raises
        ------
        ValueError
            If it depends on time.
        """
        if not _is_constant(self._operators):
            raise ValueError(
                "the operator depends on time; use operator_at(t) for the operator at one time"
            )
        return self._operators[0][1]

    def operator_at(self, t: float) -> Operator:
        """Return A(t) on blocks, the same object as long as it does not depend on time."""
        return _sum_at(self._operators, t)

    def implicit_operator_at(self, t: float) -> Operator:
        """Return the part of A(t) that IMEX methods treat implicitly, on blocks."""
        return _sum_at(self._implicit[0], t)

    def distribute_preconditioner(self, whole: Any, operator: Any) -> Any:
        """Return a preconditioner of a whole operator on blocks; `evolve` asks for it.

        Parameters
        ----------
        whole : CombinationPreconditioner or BatchedKron
            The whole preconditioner, on every rank, such as `block_jacobi` returns.
        operator : Operator
            The operator A on blocks, which knows the Kronecker terms of the whole one.

        Raises
        ------
        TypeError, ValueError
            As for `distribute` with ``like``.
        """
        return like_operator(whole, operator)

    def rhs(self, t: float, u: Array, out: Array | None = None) -> Array:
        """Overwrite ``out`` with A(t) u + s(t), and return it; all ranks call it together.

        Parameters
        ----------
        t : float
        u : ndarray, (n,), float64
            This rank's block of the state.
        out : ndarray, (n,), float64, optional
            Overwritten; it must not overlap u. By default a new array.

        Returns
        -------
        ndarray, (n,), float64
            ``out``, or the new array.

        Raises
        ------
        TypeError, ValueError
            If a vector has another dtype or shape.
        """
        if out is None:
            out = array_module(u).empty_like(u)
        self.source(t, out)
        self.accumulate(t, u, out)
        return out

    def accumulate(self, t: float, u: Array, out: Array) -> None:
        """Add A(t) u to ``out``: what `rhs` does after `source`."""
        for function, operator in self._operators:
            alpha = 1.0 if attribute(function, "is_constant", False) else function(t)
            operator.accumulate(u, out, alpha=alpha)

    def split_rhs(self) -> SplitRightSide:
        """Return A(t) u and s(t) apart, as the whole problem's steps have them.

        On devices there is a product for each function of time, so that a CUDA graph serves all
        times; all ranks launch it where one exchange may be captured.
        """
        sources = tuple((_of_arrays(function), vector) for function, vector in self._sources)
        if self._arrays is np:
            return SplitRightSide(((None, partial(_write_product, self._operators)),), sources)
        constant = [part for part in self._operators if _is_constant([part])]
        products: list[tuple[Any, Any]] = [
            (_of_arrays(function), partial(_multiply, operator))
            for function, operator in self._operators
            if not _is_constant([(function, operator)])
        ]
        if constant:
            products.insert(0, (None, partial(_write_product, constant)))
        repeats = all(operator.capturable for _, operator in self._operators)
        return SplitRightSide(tuple(products), sources, repeats)

    def source(self, t: float, out: Array) -> None:
        """Overwrite ``out`` with this rank's block of s(t)."""
        _combine(self._sources, t, out)

    def implicit_source(self, t: float, out: Array) -> None:
        """Overwrite ``out`` with the sources that IMEX methods treat implicitly, on this rank."""
        _combine(self._implicit[1], t, out)

    def scatter(self, u: ArrayLike | None = None, root: int | None = None) -> Array:
        """Return this rank's block of a whole state; see `DistributedOperator.scatter`."""
        ranks = self.communicator
        return scatter(self.layout, ranks, u, check_root(root, ranks.size), self._arrays)

    @overload
    def gather(self, u: ArrayLike, root: None = None) -> Array: ...
    @overload
    def gather(self, u: ArrayLike, root: int) -> Array | None: ...
    def gather(self, u: ArrayLike, root: int | None = None) -> Array | None:
        """Return the whole of a state of which each rank has a block, such as a run's.

        Parameters
        ----------
        u : array_like, (n,)
            This rank's block.
        root : int, optional
            The only rank that needs the result.

        Returns
        -------
        ndarray or None
            (N,), in the order of one process; None on ranks other than ``root``.

        Raises
        ------
        ValueError
            If u does not fit, or there is no rank ``root``.
        """
        ranks = self.communicator
        return gather(self.layout, ranks, u, check_root(root, ranks.size), self._arrays)

    def l2_error(self, u: ArrayLike, t: float) -> float:
        """Return the L2 error of a state of which each rank has a block, on all ranks.

        Parameters
        ----------
        u : array_like, (n,)
            This rank's block.
        t : float

        Returns
        -------
        float
            That of the whole problem, for the state that each rank gathers.

        Raises
        ------
        ValueError
            If the exact solution is not known.
        """
        whole: Any = self.whole
        return float(whole.l2_error(self.gather(u), t))

    def quantities(self, *names: str) -> dict[str, Any]:
        """Return quantities by their names, for ``evolve(part, watch=…)``.

        Parameters
        ----------
        *names : str
            As of the whole problem's method, such as `batchkron.problems.Problem.quantities`.

        Returns
        -------
        dict
            This rank's block of those that are weights, and functions of (t, u), where u is this
            rank's block. All ranks call a function together: each gathers the whole state. In a run
            whose grid changes they are made anew for each grid.

        Raises
        ------
        TypeError, ValueError
            If the whole problem has no quantities, or not this one.
        """
        return block_quantities(self, names)

    def describe(self) -> str:
        """Return a text with the whole problem, and its operators on the ranks."""
        whole = getattr(self.whole, "describe", lambda: type(self.whole).__name__)()
        return "\n".join([whole, *(operator.describe() for _, operator in self._operators)])

    @cached_property
    def _implicit(self) -> tuple[_Operators, _Vectors]:
        """The operators and vectors that IMEX methods treat implicitly."""
        parts, every = self.whole.time_parts(implicit=True), self.whole.time_parts()
        same = all(a is b for (_, a), (_, b) in zip(parts.operators, every.operators, strict=False))
        if same and len(parts.operators) == len(every.operators):
            return self._operators, self._blocks(parts.sources)
        return self._distributed(parts.operators), self._blocks(parts.sources)

    def _distributed(self, parts: _Operators) -> list[tuple[Any, DistributedOperator]]:
        operators = self._make([operator for _, operator in parts])
        return [(function, made) for (function, _), made in zip(parts, operators, strict=True)]

    def _blocks(self, parts: _Vectors) -> list[tuple[Any, Array]]:
        return [(function, self._block(vector)) for function, vector in parts]

    def _block(self, vector: Array) -> Array:
        return self.layout.block_of(vector, self.communicator.rank)


def _of_arrays(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """Return a function of arrays of times; those of `batchkron.problems.time` are."""
    if has_attribute(function, "is_constant"):
        return function
    return np.vectorize(function, otypes=[np.float64])


def _write_product(parts: _Operators, t: float, u: Array, out: Array) -> None:
    """Overwrite ``out`` with Σ f(t) A u; a term that does not depend on time is first."""
    first = [operator for function, operator in parts if _is_constant([(function, operator)])][:1]
    if first:
        first[0].matvec(u, out)
    else:
        out[...] = 0.0
    for function, operator in parts:
        if not first or operator is not first[0]:
            operator.accumulate(u, out, alpha=function(t))


def _multiply(operator: Operator, t: float, u: Array, out: Array) -> None:
    """Overwrite ``out`` with A u, whatever t is."""
    operator.matvec(u, out)


def _is_constant(parts: _Operators) -> bool:
    return all(attribute(function, "is_constant", False) for function, _ in parts)


def _sum_at(parts: _Operators, t: float) -> Operator:
    """Return Σ f(t) A; the operator itself if there is one, and nothing depends on time."""
    if _is_constant(parts):
        return reduce(add, [operator for _, operator in parts])
    return reduce(add, [function(t) * operator for function, operator in parts])


def _combine(parts: _Vectors, t: float, out: Array) -> None:
    """Overwrite ``out`` with Σ f(t) s."""
    if not parts or not out.size:
        out[...] = 0.0
        return
    linear_combination([function(t) for function, _ in parts], [v for _, v in parts], out)
