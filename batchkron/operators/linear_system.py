"""The system u' = A u + s(t) of one operator: what time steppers need of it."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from batchkron.arrays import array_module, as_array, is_sparse, to_host
from batchkron.attributes import attribute, has_attribute
from batchkron.functions.vector_sum import linear_combination
from batchkron.operators.algebra import Operator, ScaledOperator, SumOperator
from batchkron.operators.batched_kron import BatchedKron
from batchkron.operators.block_operator import BlockOperator
from batchkron.operators.checksum import add_to_checksum
from batchkron.operators.kronecker_product import KroneckerProduct
from batchkron.operators.kronecker_sum.operator import KroneckerSum
from batchkron.operators.placement import on_device
from batchkron.spec.kron import Array, compute_dtype

__all__ = [
    "LinearSystem",
    "One",
    "SplitRightSide",
    "TimeParts",
    "VectorInTime",
    "flat_vector",
    "is_function",
    "writing",
]


class TimeParts(NamedTuple):
    """A system u' = Σ_g f_g(t) A_g u + Σ_h f_h(t) s_h.

    ``operators``: the f_g and A_g.
    ``sources``: the f_h and s_h.
    """

    operators: tuple[tuple[Any, Operator], ...]
    sources: tuple[tuple[Any, Array], ...]


class SplitRightSide(NamedTuple):
    """A system u' = Σ_g f_g(t) P_g(t, u) + Σ_h f_h(t) s_h.

    ``products``: the f_g, of which None is 1, and ``product(t, u, out)`` for each P_g.
    ``sources``: the f_h and s_h.
    ``is_repeatable``: whether products launch the same work on a device in each call.
    ``turn``: returns a context manager, inside of which they are called and repeated.
    ``bind``: ``bind(u, out)`` returns a function without arguments that writes the only product,
      which does not depend on t.
    """

    products: tuple[tuple[Any, Callable[..., None]], ...]
    sources: tuple[tuple[Any, Array], ...]
    is_repeatable: bool = False
    turn: Callable[[], AbstractContextManager[None]] = nullcontext
    bind: Callable[[Array, Array], Callable[[], object]] | None = None


class One:
    """The function of time that is 1."""

    is_constant = True

    def __call__(self, t: Any) -> Any:
        """Return 1, or as many as there are times."""
        return np.ones(np.shape(t)) if np.ndim(t) else 1.0


_ONE = One()


@dataclass(frozen=True)
class GivenFunction:
    """A function of time of a user's own, which need not take arrays.

    Its name and its field are part of the hashes in checkpoints.

    ``function``: ``function(t)`` returns a number.
    """

    function: Callable[[float], float]

    def __call__(self, t: Any) -> Any:
        """Return its value at a time, or an array of those at several times."""
        if not np.ndim(t):
            return float(self.function(float(t)))
        times = np.asarray(t, np.float64)
        values = [float(self.function(float(time))) for time in times.flat]
        return np.array(values).reshape(times.shape)


def is_function(value: object) -> bool:
    """Whether a value is a function, and neither an operator nor an array."""
    return callable(value) and not isinstance(value, Operator) and not hasattr(value, "__array__")


def writing(function: Callable[..., Any], arguments: str, name: str) -> Callable[..., object]:
    """Return ``write(*arguments, out)`` for a function that returns its value, or writes it.

    The function takes the arguments, and returns an array; or one argument more, or one that is
    named ``out``, and writes into that. ``arguments`` are their names, such as "t, u"; these and
    the name are for texts of errors.
    """
    count, called = 1 + arguments.count(","), f"{name}({arguments})"
    if _writes(function, count):
        return function

    def write(*given: Any) -> None:
        *values, out = given
        found = function(*values)
        if found is None:
            raise TypeError(
                f"{called} returned None; expected an array of {out.size} values. A function that "
                f"writes its result takes one argument more: {name}({arguments}, out)"
            )
        vector = as_array(found, called, array_module(out))
        if vector.size != out.size:
            raise ValueError(
                f"{called} has shape {vector.shape}; expected {out.shape}, as the state"
            )
        if vector.dtype.kind == "c" and out.dtype.kind != "c":
            raise TypeError(
                f"{called} has dtype {vector.dtype}, and the state is real ({out.dtype}); begin "
                "with a complex state"
            )
        out[...] = vector.reshape(out.shape)

    return write


def _writes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function takes one argument more than ``count``, to write to."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    positional = [each for each in parameters if each.kind in kinds]
    needed = [each for each in positional if each.default is inspect.Parameter.empty]
    more = positional[count:]
    return len(needed) > count or (bool(more) and more[0].name == "out")


def blocks_of(operator: Any) -> tuple[int, ...]:
    """Return the shape of an operator's vectors with an index for each mode, (N,) if unknown.

    Of a BatchedKron the first index is the block, those of modes follow. A multiple or a sum has
    the shape of its operators, if those that have one have the same.
    """
    if isinstance(operator, ScaledOperator):
        return blocks_of(operator.operator)
    if isinstance(operator, SumOperator):
        found = {blocks_of(term) for term in operator.terms} - {(operator.shape[1],)}
        return found.pop() if len(found) == 1 else (operator.shape[1],)
    if isinstance(operator, BatchedKron):
        spec = operator._spec
        return (spec.num_inputs, *(pool.shape[3] for pool in spec.pools))
    if isinstance(operator, BlockOperator):
        return operator._input_shape
    if isinstance(operator, (KroneckerProduct, KroneckerSum)):
        return tuple(factor.shape[-1] for factor in operator.factors)
    return (operator.shape[1],)


def shapes_of(operator: Any, blocks: tuple[int, ...] | None = None) -> list[tuple[int, ...]]:
    """Return the shapes in which vectors may be given: flat, by blocks, with an index per mode.

    ``blocks`` is another one; by default that of the operator.
    """
    own = blocks_of(operator)
    given = [(operator.shape[1],), *(() if blocks is None else (blocks,)), own]
    if len(own) > 2:
        given.append((own[0], math.prod(own[1:])))
    return list(dict.fromkeys(given))


def flat_vector(
    name: str,
    value: ArrayLike,
    shapes: Sequence[tuple[int, ...]],
    dtype: np.dtype[Any],
    device: str,
) -> Array:
    """Return a vector that is given flat or in blocks as a new flat array on a device.

    It has one of the shapes, see `shapes_of`, and the dtype of states, or TypeError or ValueError
    is raised with its name.
    """
    module = array_module(value)
    given = as_array(value, name, module)
    if given.shape not in shapes:
        raise ValueError(
            f"{name} has shape {given.shape}; expected {' or '.join(map(str, shapes))}"
        )
    if given.dtype.kind == "c" and dtype.kind != "c":
        raise TypeError(f"{name} has dtype {given.dtype}; expected real numbers ({dtype})")
    flat: Array = module.array(given.reshape(-1), dtype=dtype)
    return on_device(to_host(flat, name) if device == "cpu" else flat, device)


class VectorInTime:
    """A vector s(t): none, one that does not depend on time, Σ f_h(t) s_h, or a function.

    ``name``: its name, for error texts.
    ``given``: None, an array, a pair (f, array), a sequence of pairs, or a function s(t) or s(t,
      out).
    ``as_vector``: ``as_vector(name, array)`` returns a checked flat vector.
    ``parts``: the pairs; () for none and for a function.
    ``function``: ``write(t, out)`` of a function.

    Raises `TypeError`, `ValueError` if it is of another kind, or an array does not fit.
    """

    def __init__(self, name: str, given: Any, as_vector: Callable[[str, Any], Array]) -> None:
        self.parts: tuple[tuple[Any, Array], ...] = ()
        self.function: Callable[..., object] | None = None
        self.given = given
        if given is None:
            return
        if is_function(given):
            self.function = writing(given, "t", name)
            return
        pairs = _pairs(given)
        if pairs is None:
            self.parts = ((_ONE, as_vector(name, given)),)
            return
        self.parts = tuple(
            (_in_time(function), as_vector(f"the vector of {name}[{k}]", vector))
            for k, (function, vector) in enumerate(pairs)
        )

    def __bool__(self) -> bool:
        return bool(self.parts) or self.function is not None

    @property
    def is_constant(self) -> bool:
        """Whether it does not depend on time, as far as is known."""
        fixed = all(attribute(function, "is_constant", False) for function, _ in self.parts)
        return self.function is None and fixed

    def write(self, t: float, out: Array) -> None:
        """Overwrite ``out`` with s(t)."""
        if self.function is not None:
            self.function(t, out)
        elif self.parts and out.size:
            factors = [float(function(t)) for function, _ in self.parts]
            linear_combination(factors, [vector for _, vector in self.parts], out)
        else:
            out[...] = 0.0


def _in_time(function: Any) -> Any:
    """Return a function that takes arrays of times, too, as those of `batchkron.problems.time`."""
    return function if has_attribute(function, "is_constant") else GivenFunction(function)


def _pairs(given: Any) -> Sequence[tuple[Any, Any]] | None:
    """Return pairs of a function of time and a vector; None if the value is something else."""
    if not isinstance(given, (tuple, list)):
        return None

    def is_pair(value: Any) -> bool:
        return isinstance(value, (tuple, list)) and len(value) == 2 and is_function(value[0])

    if is_pair(given):
        return [(given[0], given[1])]
    found = [is_pair(each) for each in given]
    if not any(found):
        return [] if not given else None
    if not all(found):
        raise TypeError(
            f"entry {found.index(False)} of the source is no pair of a function of time and a "
            "vector, as others are"
        )
    return list(given)


class LinearSystem:
    """The system u' = A u + s(t), from u(t0) = initial on, as `batchkron.solvers.evolve` takes it.

    Parameters
    ----------
    operator : Operator
        A, of shape (N, N). With ``product`` also a matrix, or whatever that multiplies by.
    initial : array_like, (N,) or in blocks
        The state at t0; it is copied to the operator's device. States have the dtype that
        `numpy.result_type` gives for it and the operator.
    source : array_like, function, or pairs, optional
        s: a vector; a function s(t) that returns one, or s(t, out) that writes it; or a sequence
        of pairs (f, vector) for Σ f(t) vector.
    t0 : float
        The time of the initial state.
    blocks : tuple of int, optional
        The shape of vectors in blocks; by default that of the operator's blocks and modes.
    product : callable, optional
        ``product(x, out)`` writes A x; by default the operator's own.

    Attributes
    ----------
    operator : Operator
    initial : ndarray, (N,)
        Flat.
    t0 : float
    device : {"cpu", "cuda"}
    blocks : tuple of int
    vector_shapes : list of tuple of int
        The shapes in which vectors may be given.

    Raises
    ------
    TypeError, ValueError
        If the parts do not fit together.
    """

    def __init__(
        self,
        operator: Any,
        initial: ArrayLike,
        source: Any = None,
        *,
        t0: float = 0.0,
        blocks: tuple[int, ...] | None = None,
        product: Callable[[Any, Any], object] | None = None,
    ) -> None:
        rows, columns = operator.shape
        if rows != columns:
            raise ValueError(
                f"the operator has shape {(rows, columns)}; expected a square one: u' = A u needs "
                "as many outputs as inputs. For a BatchedKron give num_inputs and num_outputs"
            )
        if attribute(operator, "batch_shape", ()):
            raise ValueError(
                f"the operator has batch_shape {operator.batch_shape}; expected one system"
            )
        self.operator = operator
        self.device: str = attribute(operator, "device", "cpu")
        self.blocks = blocks_of(operator) if blocks is None else blocks
        self.vector_shapes = shapes_of(operator, blocks)
        self.t0 = t0
        given = as_array(initial, "u0", array_module(initial))
        entries = np.empty(0, attribute(operator, "dtype") or np.float64)
        self._dtype = compute_dtype(np.empty(0, given.dtype), entries)
        self.initial = self._vector("u0", given)
        self._source = VectorInTime("source", source, self._vector)
        self._product = product

    def _vector(self, name: str, value: Any) -> Array:
        vector = flat_vector(name, value, self.vector_shapes, self._dtype, self.device)
        if isinstance(vector, np.ndarray):  # CuPy has no such flag
            vector.flags.writeable = False
        return vector

    @property
    def unknowns(self) -> int:
        """Number N of unknowns."""
        return int(self.initial.size)

    @property
    def is_linear(self) -> bool:
        """True: `rhs` is A u + s(t), if no subclass overrides it."""
        return type(self).rhs is LinearSystem.rhs

    def rhs(self, t: float, u: Array, out: Array | None = None) -> Array:
        """Overwrite ``out`` with A u + s(t), and return it.

        Parameters
        ----------
        t : float
            Time.
        u : ndarray, (N,) or in blocks
            State.
        out : ndarray, like u, optional
            Overwritten; it must not overlap u. By default a new array, so that
            ``scipy.integrate.solve_ivp(problem.rhs, ...)`` takes the method as it is.

        Returns
        -------
        ndarray, like u
            ``out``, or the new array.

        Raises
        ------
        TypeError, ValueError
            If an array has another dtype or shape.
        """
        if out is None:
            u = array_module(u).ascontiguousarray(u)  # solve_ivp passes columns of matrices
            out = np.empty_like(u)
        vector, written = self._flat("u", u), self._flat("out", out)
        if self._source:
            self._source.write(t, written)
            self._add(vector, written)
        else:
            self._write_product(t, vector, written)
        return out

    def accumulate(self, t: float, u: Array, out: Array) -> None:
        """Add A u to ``out``: what `rhs` does after `source`."""
        self._add(self._flat("u", u), self._flat("out", out))

    def source(self, t: float, out: Array) -> None:
        """Overwrite ``out`` with s(t)."""
        self._source.write(t, self._flat("out", out))

    def implicit_source(self, t: float, out: Array) -> None:
        """Overwrite ``out`` with what IMEX methods treat implicitly of s(t): all of it, as of A."""
        self.source(t, out)

    def _add(self, u: Array, out: Array) -> None:
        if self._product is None:
            self.operator.accumulate(u, out)
            return
        product = array_module(u).empty_like(out)
        self._product(u, product)
        out += product

    def _flat(self, name: str, vector: Array) -> Array:
        """Return a vector as a flat view."""
        if vector.shape == self.initial.shape:
            return vector
        if vector.shape not in self.vector_shapes or not vector.flags.c_contiguous:
            raise ValueError(
                f"{name} has shape {vector.shape}; expected "
                f"{' or '.join(map(str, self.vector_shapes))}, C-contiguous"
            )
        return vector.reshape(-1)

    def time_parts(self, *, implicit: bool = False) -> TimeParts:
        """Return the operator and the vectors of s(t) with their functions of time.

        Raises
        ------
        TypeError
            If the source is a function.
        """
        if self._source.function is not None:
            raise TypeError(
                "the source is a function s(t), whose values may be anything; expected a vector, "
                "or pairs (f, vector) of a function of time and a vector"
            )
        return TimeParts(((_ONE, self.operator),), self._source.parts)

    def split_rhs(self) -> SplitRightSide | None:
        """Return A u + s(t) in the parts by which explicit methods take their steps.

        Returns
        -------
        SplitRightSide or None
            None if the source is a function.
        """
        if self._source.function is not None:
            return None
        products, sources = ((None, self._write_product),), self._source.parts
        if self._product is not None:
            return SplitRightSide(products, sources)
        is_ours = self.operator.dtype == self._dtype and self.operator.communicator is None
        bind = self.operator.bound if is_ours and self.device == "cpu" else None
        return SplitRightSide(products, sources, self.operator.capturable, bind=bind)

    def _write_product(self, t: float, u: Array, out: Array) -> None:
        if self._product is None:
            self.operator.apply_flat(u, out)
        else:
            self._product(u, out)

    @property
    def content_hash(self) -> str | None:
        """SHA-256 (hexadecimal) of operator, source and initial state, for checkpoints.

        A function is known by its name alone. None for an operator of another library that is no
        array or sparse matrix, and for one whose vectors are spread over ranks.
        """
        operator, content = self.operator, self.operator
        if is_sparse(operator):
            rows = operator.tocsr()
            content = (operator.shape, rows.indptr, rows.indices, rows.data)
        elif isinstance(operator, Operator):
            if operator.communicator is not None:
                return None
            content = operator._content() if isinstance(operator, BatchedKron) else operator
        elif not isinstance(operator, np.ndarray) and array_module(operator) is np:
            return None
        digest, source = hashlib.sha256(), self._source
        function = None if source.function is None else source.given
        add_to_checksum(digest, (content, self.initial, float(self.t0), source.parts, function))
        return digest.hexdigest()
