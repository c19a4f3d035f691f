"""The problem u' = A u + s(t) of an operator that is given, such as a batch list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.arrays import array_module, to_host
from batchkron.attributes import attribute
from batchkron.operators import BatchedKron, Operator, ValidationReport
from batchkron.operators.linear_system import LinearSystem, One, VectorInTime, flat_vector

from ..discretization.parts import StepperSettings
from ..files.lists import OWN_QUANTITIES, ListContent, encode_list
from ..output_methods import OutputMethods
from ..statement.number_checks import finite_number
from ..statement.text import count, rows_text
from ..statement.time import constant
from ..statement.time_functions import TimeFunction
from .indices import check_blocks, index_names
from .output import LinearOutput

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LinearProblem"]


class LinearProblem(LinearSystem, OutputMethods):
    """The system u' = A u + s(t) of an operator A, from u(t0) = initial on.

    It is what a batch list of another code needs to be saved in a file, run by the command, spread
    over ranks or moved to a device. Vectors may be given flat, or in blocks.

    Parameters
    ----------
    op : Operator
        A, of shape (N, N), such as a `batchkron.BatchedKron`.
    u0 : array_like, (N,) or in blocks
        The state at t0; it is copied to the operator's device. States have the dtype that
        `numpy.result_type` gives for it and the operator.
    source : array_like, function, or pairs, optional
        s: a vector; a function s(t) that returns one, or s(t, out) that writes it; or a sequence
        of pairs (f, vector) for Σ f(t) vector, with functions of `batchkron.problems.time`. Files,
        and problems on ranks, have no functions that are Python code.
    exact : like source, optional
        The exact solution, if it is known.
    blocks : tuple of int, optional
        The shape of a vector in blocks, with an index for the block and one for each mode; by
        default that of the operator.
    name : str
        The problem's name.
    t0 : float
        The time of the initial state.
    stepper : StepperSettings, optional
        The default method, step and final time.
    quantities : mapping of str to array_like, (N,) or in blocks, optional
        Real weights w of quantities Σ w_i u_i, such as the mass, by their names.
    levels, cells : array_like of int, (axes,) and (blocks, axes), optional
        The finest levels of the grid from which a list comes, and the multi-index of the cell of
        each block: with them, preconditioners find the Kronecker terms of the list. Files have
        them.

    Attributes
    ----------
    operator : Operator
    initial : ndarray, (N,)
        Flat.
    device : {"cpu", "cuda"}
        The operator's; all states are there.
    name, t0, blocks, stepper, levels, cells
        As above; arrays of int64.

    Raises
    ------
    TypeError, ValueError
        If the parts do not fit together; the text names the part.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> from batchkron.problems import LinearProblem
    >>> from batchkron.solvers import evolve
    >>> pool = np.array([[[-1.0, 0.0], [0.0, -2.0]]])
    >>> op = bk.BatchedKron(pool, [[0], [0]], inputs=[0, 1], outputs=[0, 1])
    >>> problem = LinearProblem(op, np.ones((2, 2)), name="decay")
    >>> problem
    <LinearProblem 'decay': 4 unknowns, a BatchedKron of 2 products, float64>
    >>> evolve(problem, until=1.0, method="rk4", dt=0.01).u.round(4)
    array([0.3679, 0.1353, 0.3679, 0.1353])
    """

    def __init__(
        self,
        op: Operator,
        u0: ArrayLike,
        source: Any = None,
        *,
        exact: Any = None,
        blocks: Sequence[int] | None = None,
        name: str = "linear",
        t0: float = 0.0,
        stepper: StepperSettings | None = None,
        quantities: Mapping[str, ArrayLike] | None = None,
        levels: ArrayLike | None = None,
        cells: ArrayLike | None = None,
    ) -> None:
        if not isinstance(op, Operator):
            raise TypeError(
                f"op is a {type(op).__name__}; expected an operator of batchkron, such "
                "as a BatchedKron"
            )
        if not isinstance(name, str) or not name:
            raise TypeError(f"name is {name!r}; expected a text that is not empty")
        if stepper is not None and not isinstance(stepper, StepperSettings):
            raise TypeError(f"stepper is a {type(stepper).__name__}; expected StepperSettings")
        shape = None if blocks is None else check_blocks(blocks, op.shape[1])
        super().__init__(op, u0, source, t0=finite_number("t0", t0), blocks=shape)
        _refuse_not_finite("u0", self.initial)
        self.name, self.stepper = name, stepper
        self._exact = VectorInTime("exact", exact, self._vector)
        for what, given in (("source", self._source), ("exact", self._exact)):
            for k, (_, vector) in enumerate(given.parts):
                _refuse_not_finite(f"the vector of {what}[{k}]", vector)
        self._weights = self._checked_weights(quantities or {})
        self.levels = _index_array("levels", levels, 1)
        self.cells = _index_array("cells", cells, 2)
        if isinstance(op, BatchedKron) and not (levels is None and cells is None):
            _find_terms(op, levels, cells)
        self._hashed: tuple[Any, str | None] | None = None

    def _checked_weights(self, given: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        found = {}
        for name, weights in given.items():
            if not isinstance(name, str) or not name or name in OWN_QUANTITIES:
                raise ValueError(
                    f"a quantity is named {name!r}; expected a text other than "
                    f"{' and '.join(map(repr, OWN_QUANTITIES))}, which every problem has"
                )
            module = array_module(weights)
            if module.iscomplexobj(weights):
                raise TypeError(f"the weights of {name!r} are complex; expected real numbers")
            what, real = f"the weights of {name!r}", np.empty(0, self.initial.dtype).real.dtype
            found[name] = flat_vector(what, weights, self.vector_shapes, real, self.device)
            _refuse_not_finite(what, found[name])
        return found

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments that make the problem again."""
        return {
            "op": self.operator,
            "u0": self.initial,
            "source": self._source.given,
            "exact": self._exact.given,
            "blocks": self.blocks,
            "name": self.name,
            "t0": self.t0,
            "stepper": self.stepper,
            "quantities": self._weights,
            "levels": self.levels,
            "cells": self.cells,
        }

    def _with(self, **changes: Any) -> LinearProblem:
        return LinearProblem(**{**self._arguments(), **changes})

    def to(self, device: str) -> LinearProblem:
        """Return the problem on a device; all vectors of its runs are there.

        A source that is a function is called there as well, and has to return or write arrays of
        that device.

        Parameters
        ----------
        device : {"cpu", "cuda"}
            "cuda" is CuPy's current device.

        Returns
        -------
        LinearProblem
            ``self`` if the problem is on this device already.

        Raises
        ------
        ValueError
            For any other device.
        BackendUnavailableError
            If CuPy is not installed, or there is no usable device; the text says what to do.
        """
        moved = self.operator.to(device)
        return self if moved is self.operator else self._with(op=moved)

    def with_operator(self, operator: Operator) -> LinearProblem:
        """Return the problem with another operator of the same shape, such as A in another form.

        Raises
        ------
        TypeError, ValueError
            If it has another shape, or is no operator.
        """
        if attribute(operator, "shape") != self.operator.shape:
            raise ValueError(
                f"operator has shape {getattr(operator, 'shape', None)}; expected "
                f"{self.operator.shape}, that of the one before"
            )
        return self._with(op=operator)

    def beginning_at(self, u: ArrayLike, t: float | None = None) -> LinearProblem:
        """Return the problem with another initial state, as ``evolve(problem, u0=u)`` takes it.

        Parameters
        ----------
        u : array_like, (N,) or in blocks
            The state.
        t : float, optional
            Its time, by default `t0`.
        """
        return self._with(u0=u, t0=self.t0 if t is None else t)

    @property
    def exact(self) -> Any:
        """The exact solution as it was given; None if it is not known."""
        return self._exact.given if self._exact else None

    def exact_at(self, t: float) -> NDArray[Any]:
        """Return the exact solution at a time, (N,); raise ValueError if it is not known."""
        return self.output.exact_at(t)

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
        """Draw a state along one of its indices; see `LinearOutput.plot`."""
        return self.output.plot(u, t, along=along, slice=slice, show=show, ax=ax)

    def picture(
        self,
        u: ArrayLike,
        t: float | None = None,
        *,
        along: str | None = None,
        slice: Mapping[str, Any] | None = None,  # noqa: A002
    ) -> Any:
        """Return what `plot` shows; see `LinearOutput.picture`."""
        return self.output.picture(u, t, along=along, slice=slice)

    @property
    def output(self) -> LinearOutput:
        """What is read off states, and shown of them: errors, quantities, pictures."""
        return LinearOutput(self, self.name, self._exact, self._weights)

    def validate(self, samples: int | None = None, seed: int = 0) -> ValidationReport:
        """Compare the operator's products with dense ones; see `batchkron.BatchedKron.validate`.

        Raises
        ------
        TypeError
            If the operator has no such method.
        """
        own: Callable[..., ValidationReport] | None = attribute(self.operator, "validate")
        if own is None:
            raise TypeError(
                f"a {type(self.operator).__name__} has no method validate; a BatchedKron has one"
            )
        return own(samples, seed)

    @property
    def content(self) -> ListContent:
        """The content of the problem's file.

        Raises
        ------
        TypeError
            If files cannot hold it: the operator is no batch list, or a function is Python code.
        """
        operator = self.operator
        if not isinstance(operator, BatchedKron):
            raise TypeError(
                f"the operator is a {type(operator).__name__}; a file holds the batch list of a "
                "BatchedKron"
            )
        host = {name: to_host(weights, name) for name, weights in self._weights.items()}
        return ListContent(
            name=self.name,
            operator=operator,
            initial=to_host(self.initial, "initial"),
            blocks=self.blocks,
            t0=self.t0,
            sources=_stored_parts("source", self._source),
            exact=_stored_parts("exact", self._exact),
            quantities=host,
            stepper=self.stepper,
            levels=self.levels,
            cells=self.cells,
        )

    @property
    def content_hash(self) -> str | None:
        """SHA-256 (hexadecimal) of the content; saving and loading do not change it.

        It leaves out the plan of a batch list. Of a problem that files cannot hold, that of
        operator, source and initial state.
        """
        entries = getattr(self.operator, "_spec", None)  # another one after an update
        if self._hashed is None or entries is None or self._hashed[0] is not entries:
            found: str | None
            try:
                found = encode_list(self.content, with_plan=False).content_hash
            except TypeError:
                found = super().content_hash
            self._hashed = entries, found
        return self._hashed[1]

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows (name, text) of `describe`."""
        rows = [
            ("problem", self.name),
            ("unknowns", f"{self.unknowns} {self.initial.dtype}, {_names(self.blocks)}"),
            ("operator", f"{self.operator.describe()}\non the {self.device}"),
            ("source", _kind(self._source)),
            ("exact", _kind(self._exact)),
        ]
        if self._weights:
            rows.append(("quantities", ", ".join(self._weights)))
        if self.stepper is not None:
            chosen = self.stepper
            rows.append(("stepper", f"{chosen.method}, dt = {chosen.dt:.4g} to {chosen.until:.4g}"))
        return rows

    def describe(self) -> str:
        """Return a table of the problem's operator, vectors, source and defaults."""
        return rows_text(self.rows())

    def __repr__(self) -> str:
        products = ""
        if isinstance(self.operator, BatchedKron):
            products = f" of {count(self.operator.num_products, 'product')}"
        return (
            f"<LinearProblem {self.name!r}: {count(self.unknowns, 'unknown')}, a "
            f"{type(self.operator).__name__}{products}, {self.initial.dtype}>"
        )


def _kind(given: VectorInTime) -> str:
    """Return what a vector in time is, in words."""
    if given.function is not None:
        return "a function of time"
    return f"{count(len(given.parts), 'vector')} times a function of time" if given else "none"


def _names(blocks: tuple[int, ...]) -> str:
    pairs = zip(index_names(blocks), blocks, strict=True)
    return ", ".join(f"{size} along {name}" for name, size in pairs)


def _refuse_not_finite(name: str, vector: Any) -> None:
    if not bool(array_module(vector).isfinite(vector).all()):
        values = to_host(vector, name)
        place = int(np.argmin(np.isfinite(values)))
        raise ValueError(f"{name} is {values[place]} at {place}; expected finite values")


def _index_array(name: str, given: Any, dimensions: int) -> NDArray[np.int64] | None:
    """Return a hint as a read-only array of int64."""
    if given is None:
        return None
    array = np.asarray(given)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {array.dtype}; expected integers")
    if array.ndim != dimensions or (array < 0).any():
        raise ValueError(
            f"{name} has shape {array.shape}; expected {dimensions} dimensions, and numbers >= 0"
        )
    copy = np.array(array, np.int64, order="C")
    copy.flags.writeable = False
    return copy


def _stored_parts(name: str, given: VectorInTime) -> tuple[tuple[TimeFunction, Any], ...]:
    """Return the parts of a vector in time with functions that files hold.

    Raises `TypeError` if one is Python code.
    """
    found = []
    for function, vector in given.parts:
        known = constant() if isinstance(function, One) else function
        if not isinstance(known, TimeFunction):
            raise TypeError(_no_code(name))
        found.append((known, to_host(vector, name)))
    if given.function is not None:
        raise TypeError(_no_code(name))
    return tuple(found)


def _no_code(name: str) -> str:
    return (
        f"{name} has a function that is Python code, which files do not hold; give pairs "
        "(f, vector) with functions f of batchkron.problems.time"
    )


def _find_terms(op: BatchedKron, levels: ArrayLike | None, cells: ArrayLike | None) -> None:
    """Let a list find its Kronecker terms on a grid; where it has none, its `describe` says why."""
    hint: dict[str, Any] = {"cells": cells}
    if cells is None:
        hint = {"levels": np.atleast_1d(np.asarray(levels)).tolist()}
    try:
        op.kronecker_terms()
    except TypeError:
        with suppress(TypeError):
            op.recover_terms(**hint)
