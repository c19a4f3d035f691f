"""The parts of a discretized problem: operator terms, sources, exact solution, settings of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..grids.levels import MAX_LEVEL
from ..statement.axis import Axis
from ..statement.electric import Electric
from ..statement.fields import FieldExpression
from ..statement.functions import FunctionOfAxes
from ..statement.number_checks import check_integer, is_number
from ..statement.text import count, time_text
from ..statement.time import TimeFunction
from .fields.modes import FieldMode, FieldPart
from .matrices.mode_operator import ModeOperator

__all__ = [
    "AdaptSettings",
    "EdgeFunction",
    "ElectricOperator",
    "ExactSolution",
    "FieldAtPoints",
    "Masses",
    "OperatorTerm",
    "PointwiseOperator",
    "SeparableVector",
    "StepperSettings",
    "check_adapt",
    "check_mass",
    "read_only",
]

Masses: TypeAlias = tuple[NDArray[np.float64] | None, ...]
"""For each axis the mass blocks ∫ φ_i φ_j dV (cells, n, n), or None if the volume element is 1."""


@dataclass(frozen=True, eq=False)
class OperatorTerm:
    """One term time(t) · (A_1 ⊗ … ⊗ A_d) of the operator.

    Attributes
    ----------
    modes : tuple of (ModeOperator, FieldMode or None)
        One 1-D hierarchical operator per axis; None is the identity. A `FieldMode` is the
        multiplication by a field, whose values depend on the state.
    time : TimeFunction
        The coefficient's dependence on time.
    one_sided : bool
        Whether the matrices take traces from one side, as upwind fluxes do; such a term is unstable
        while ``time`` is negative. False by default. IMEX methods treat these terms explicitly, and
        the others implicitly.
    keeps_sign : bool
        Whether the problem is ill-posed while ``time`` is negative, though the term is not
        one-sided, as the only diffusion along an axis. False by default.
    """

    modes: tuple[ModeOperator | FieldMode | None, ...]
    time: TimeFunction
    one_sided: bool = False
    keeps_sign: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "modes", tuple(self.modes))
        object.__setattr__(self, "one_sided", bool(self.one_sided))
        object.__setattr__(self, "keeps_sign", bool(self.keeps_sign))
        for k, mode in enumerate(self.modes):
            if mode is not None and not isinstance(mode, (ModeOperator, FieldMode)):
                raise TypeError(
                    f"modes[{k}] must be a ModeOperator or None (the identity), "
                    f"got {type(mode).__name__}"
                )
        _check_time(self.time)

    @property
    def has_fields(self) -> bool:
        """Whether a mode is a field, so that the term depends on the state."""
        return any(isinstance(mode, FieldMode) for mode in self.modes)

    @property
    def acts_along(self) -> tuple[int, ...]:
        """The numbers of the axes along which it is not the identity."""
        return tuple(k for k, mode in enumerate(self.modes) if mode is not None)

    @property
    def fixed_modes(self) -> tuple[ModeOperator | None, ...]:
        """The modes of a term without fields.

        Raises
        ------
        TypeError
            If a mode is a field.
        """
        fixed = [mode for mode in self.modes if not isinstance(mode, FieldMode)]
        if len(fixed) < len(self.modes):
            raise TypeError("a mode of the term is a field, whose blocks depend on the state")
        return tuple(fixed)

    def __repr__(self) -> str:
        modes = " ⊗ ".join("I" if mode is None else repr(mode) for mode in self.modes)
        return f"<OperatorTerm {time_text(self.time)} * {modes}>"


@dataclass(frozen=True, eq=False)
class SeparableVector:
    """A separable function time(t) · (c_1 ⊗ … ⊗ c_d) in hierarchical coefficients.

    Attributes
    ----------
    factors : tuple of ndarray, shape (cells_k * n,), float64
        1-D hierarchical coefficients for each axis, up to the grid's finest level there.
    time : TimeFunction
        The dependence on time.
    explicit : bool
        Whether IMEX methods treat this source explicitly, because it belongs to a term that they
        treat explicitly: as its boundary data, or as its part of a manufactured source. False by
        default.
    """

    factors: tuple[NDArray[np.float64], ...]
    time: TimeFunction
    explicit: bool = False

    def __post_init__(self) -> None:
        frozen = []
        for k, factor in enumerate(self.factors):
            frozen.append(read_only(f"factors[{k}]", factor, dimensions=1))
        object.__setattr__(self, "factors", tuple(frozen))
        object.__setattr__(self, "explicit", bool(self.explicit))
        _check_time(self.time)

    def __repr__(self) -> str:
        sizes = " ⊗ ".join(str(factor.size) for factor in self.factors)
        return f"<SeparableVector {time_text(self.time)} * {sizes} coefficients>"


@dataclass(frozen=True, eq=False)
class FieldAtPoints:
    """A field of the state as an argument of pointwise functions.

    Attributes
    ----------
    name : str
        The name of the argument.
    axis : Axis
        The axis that the field is a function of.
    field : FieldExpression
        The field, with samples in place of functions.
    """

    name: str
    axis: Axis
    field: FieldExpression


@dataclass(frozen=True, eq=False)
class PointwiseOperator:
    """The sum of terms that act on a function of the state, Σ time(t) (A_1 ⊗ … ⊗ A_d) F(f).

    Attributes
    ----------
    function : FunctionOfAxes
        F, a function of the state, all axes and the time.
    terms : tuple of OperatorTerm
        What acts on it; none has a field.
    extra : int
        By how much the degree of the functions through the points is higher than that of states.
    linear : bool
        Whether F is g f, with a function g of axes and time.
    inner : tuple of OperatorTerm
        The sum of what acts on the state before F; empty if that is the identity.
    speed : FunctionOfAxes or None
        A function of the state whose largest magnitude α at the points multiplies ``damping``.
    damping : tuple of OperatorTerm
        The penalties of jumps that are added for α = 1; empty without ``speed``.
    derivative : FunctionOfAxes or None
        ∂F/∂f, as it is given.
    fields : tuple of FieldAtPoints
        The fields that the functions take beside the state.
    grows : bool
        Whether F has to grow with f, as where its second derivatives are taken.
    """

    function: FunctionOfAxes
    terms: tuple[OperatorTerm, ...]
    extra: int = 1
    linear: bool = False
    inner: tuple[OperatorTerm, ...] = ()
    speed: FunctionOfAxes | None = None
    damping: tuple[OperatorTerm, ...] = ()
    derivative: FunctionOfAxes | None = None
    fields: tuple[FieldAtPoints, ...] = ()
    grows: bool = False

    def __post_init__(self) -> None:
        for name in ("terms", "inner", "damping", "fields"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("linear", "grows"):
            object.__setattr__(self, name, bool(getattr(self, name)))
        for function in self.functions:
            if not (isinstance(function, FunctionOfAxes) and function.state):
                raise TypeError("function must be a FunctionOfAxes of the state")
        if self.linear and (self.speed or self.fields):
            raise ValueError("a linear function has a speed or fields that depend on the state")
        if self.damping and self.speed is None:
            raise ValueError("damping needs a speed")
        if self.extra not in (0, 1):
            raise ValueError(f"extra is {self.extra!r}; expected 0 or 1")

    @property
    def functions(self) -> tuple[FunctionOfAxes, ...]:
        """F, and the speed and the derivative, as far as they are given."""
        others = (own for own in (self.speed, self.derivative) if own is not None)
        return (self.function, *others)

    @property
    def is_steady(self) -> bool:
        """Whether neither F nor what acts on it depends on time."""
        return not any(own.in_time for own in self.functions) and all(
            term.time.is_constant for term in (*self.terms, *self.inner, *self.damping)
        )


@dataclass(frozen=True, eq=False)
class ElectricOperator:
    """The sum of terms that a part of a component of an electric field multiplies.

    Attributes
    ----------
    electric : Electric
    number : int
        Of the component, among the positions.
    part : {1, -1, 0}
        As of `FieldPart`.
    periodic : tuple of bool
        Which positions are periodic.
    terms : tuple of OperatorTerm
        What acts on the state before the multiplication; none has a field.
    """

    electric: Electric
    number: int
    part: FieldPart
    periodic: tuple[bool, ...]
    terms: tuple[OperatorTerm, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", tuple(self.terms))
        object.__setattr__(self, "periodic", tuple(map(bool, self.periodic)))

    @property
    def is_steady(self) -> bool:
        """Whether the terms do not depend on time."""
        return all(term.time.is_constant for term in self.terms)

    def text(self) -> str:
        """Return what multiplies the terms."""
        part = {1: "positive part of ", -1: "negative part of ", 0: ""}[self.part]
        axis = self.electric.positions[self.number]
        return part + self.electric[axis].text()


@dataclass(frozen=True, eq=False)
class EdgeFunction:
    """A source that comes from data at an end of an axis, a function of the other axes and time.

    It is time(t) · e ⊗ (⊗_k A_k) P g(t), with a vector e along the axis, the projection P g of the
    data on the other axes, and an operator A_k along each of them.

    Attributes
    ----------
    axis : int
        Number of the axis.
    end : float
        The coordinate of the end.
    along : ndarray, shape (cells * n,), float64
        1-D hierarchical coefficients along the axis.
    function : FunctionOfAxes
        g, a function of all axes.
    modes : tuple of (ModeOperator or None)
        The operators along all axes; None, the identity, along the axis itself.
    time : TimeFunction
    explicit : bool
        As of `SeparableVector`.
    """

    axis: int
    end: float
    along: NDArray[np.float64]
    function: FunctionOfAxes
    modes: tuple[ModeOperator | None, ...]
    time: TimeFunction
    explicit: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "along", read_only("along", self.along, dimensions=1))


@dataclass(frozen=True, eq=False)
class ExactSolution:
    """A known solution f = Σ_r time_r(t) Π_k Φ_kr(x_k).

    Attributes
    ----------
    parts : tuple of SeparableVector
        The 1-D projections of each part r, up to the grid's finest level along each axis.
    remainders : ndarray, shape (d, parts, parts), float64
        For each axis k the Gram matrix ∫ (Φ_kr - PΦ_kr)(Φ_ks - PΦ_ks) dx of the projection errors,
        where P projects onto the finest level; computed by quadrature of the differences.
    """

    parts: tuple[SeparableVector, ...]
    remainders: NDArray[np.float64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise ValueError("parts is empty; an exact solution has at least one separable part")
        remainders = read_only("remainders", self.remainders, dimensions=3)
        expected = (len(self.parts[0].factors), len(self.parts), len(self.parts))
        if remainders.shape != expected:
            raise ValueError(
                f"remainders has shape {remainders.shape}; expected {expected}: a Gram matrix "
                f"of the {expected[1]} parts for each of the {expected[0]} axes"
            )
        object.__setattr__(self, "remainders", remainders)

    def __repr__(self) -> str:
        return f"<ExactSolution: {count(len(self.parts), 'separable part')}>"


@dataclass(frozen=True)
class StepperSettings:
    """The time stepper, step and final time that a problem uses by default.

    Attributes
    ----------
    method : str
        Name of the time stepper, such as "ssp-rk3".
    dt : float
        Time step, in the problem's unit of time; positive.
    until : float
        Final time.
    """

    method: str
    dt: float
    until: float

    def __post_init__(self) -> None:
        if not isinstance(self.method, str) or not self.method:
            raise TypeError(f"method must be the name of a time stepper, got {self.method!r}")
        if not (math.isfinite(self.dt) and self.dt > 0.0):
            raise ValueError(f"dt must be positive and finite, got {self.dt!r}")
        if not math.isfinite(self.until):
            raise ValueError(f"until must be finite, got {self.until!r}")
        object.__setattr__(self, "dt", float(self.dt))
        object.__setattr__(self, "until", float(self.until))


@dataclass(frozen=True)
class AdaptSettings:
    """The rule by which a problem's grid follows its solution by default, as files hold it.

    Attributes
    ----------
    tol : float
        The tolerance; positive. This and the others are those of `batchkron.solvers.Adapt`.
    every : int
        Number of steps between adaptations.
    horizon : float or None
        The time ahead in which a rate counts.
    max_level : tuple of int
        Largest level along each axis.
    keep : tuple of str
        Names of axes along which cells of index 0 stay.
    weight : str or None
        A product of powers of axes and of the field, such as "v^2".
    relative : bool
        Whether ``tol`` is relative.
    steps : tuple of float
        The default steps where the finest cells are 0, 1, 2, … levels coarser than ``max_level``
        along every axis; empty if the default step is the same for all grids.
    """

    tol: float
    every: int
    horizon: float | None
    max_level: tuple[int, ...]
    keep: tuple[str, ...] = ()
    weight: str | None = None
    relative: bool = False
    steps: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name, value in (("tol", self.tol), ("horizon", self.horizon)):
            if name == "horizon" and value is None:
                continue
            if not (is_number(value) and math.isfinite(value) and value > 0.0):
                raise ValueError(f"{name} must be positive and finite, got {value!r}")
            object.__setattr__(self, name, float(value))
        if type(self.every) is not int or self.every < 1:
            raise ValueError(f"every must be an int of at least 1, got {self.every!r}")
        if not all(type(level) is int for level in self.max_level):
            raise TypeError(f"max_level must hold an int for each axis, got {self.max_level!r}")
        if not all(isinstance(name, str) for name in self.keep):
            raise TypeError(f"keep must hold names of axes, got {self.keep!r}")
        if self.weight is not None and not isinstance(self.weight, str):
            raise TypeError(f"weight must be a text, got {self.weight!r}")
        if not isinstance(self.relative, bool):
            raise TypeError(f"relative must be True or False, got {self.relative!r}")
        if not all(is_number(dt) and math.isfinite(dt) and dt > 0.0 for dt in self.steps):
            raise ValueError(f"steps must be positive and finite, got {self.steps!r}")
        object.__setattr__(self, "steps", tuple(float(dt) for dt in self.steps))

    def step(self, levels: Sequence[int]) -> float | None:
        """Return the default step for cells up to these levels, None if there are no ``steps``."""
        if not self.steps:
            return None
        pairs = zip(self.max_level, levels, strict=True)
        coarser = max(0, min(limit - level for limit, level in pairs))
        return self.steps[min(coarser, len(self.steps) - 1)]


def check_adapt(adapt: AdaptSettings, names: Sequence[str]) -> None:
    """Check that a rule has a level for each axis, and names axes that there are."""
    if not isinstance(adapt, AdaptSettings):
        raise TypeError(f"adapt must be AdaptSettings, got {type(adapt).__name__}")
    if len(adapt.max_level) != len(names):
        raise ValueError(
            f"max_level has {len(adapt.max_level)} levels; expected one for each of the "
            f"{len(names)} axes"
        )
    for name, level in zip(names, adapt.max_level, strict=True):
        check_integer(f"max_level along {name}", level, MAX_LEVEL)
    for name in adapt.keep:
        if name not in names:
            raise ValueError(f"keep names {name!r}; the axes are {', '.join(names)}")


def read_only(name: str, array: object, *, dimensions: int) -> NDArray[np.float64]:
    """Return a read-only C-ordered float64 copy, or the array itself if it is already that.

    Raises TypeError if its dtype is not real, ValueError if it has another number of dimensions or
    values that are not finite; ``name`` is for these texts.
    """
    given = np.asarray(array)
    if given.dtype.kind not in "fiu":
        raise TypeError(f"{name} has dtype {given.dtype}; expected real numbers (float64)")
    if given.ndim != dimensions:
        raise ValueError(f"{name} has {given.ndim} dimensions; expected {dimensions}")
    if not np.all(np.isfinite(given)):
        place = np.argwhere(~np.isfinite(given))[0]
        raise ValueError(
            f"{name}[{', '.join(map(str, place))}] is {given[tuple(place)]}; expected finite "
            "values, none that are NaN or infinite"
        )
    if given.dtype == np.float64 and given.flags.c_contiguous and not given.flags.writeable:
        return given
    copy = np.array(given, dtype=np.float64, order="C")
    copy.flags.writeable = False
    return copy


def check_mass(name: str, mass: object, level: int, n: int) -> NDArray[np.float64]:
    """Return the mass blocks (2^level, n, n) of one axis, read-only.

    Raises
    ------
    TypeError, ValueError
        If they are not real and finite, have another shape, or one is not symmetric and positive
        definite.
    """
    blocks = read_only(name, mass, dimensions=3)
    expected = (1 << level, n, n)
    if blocks.shape != expected:
        raise ValueError(
            f"{name} has shape {blocks.shape}; expected {expected}: a block for each finest cell "
            f"of level {level}"
        )
    size = np.abs(blocks).max(axis=(1, 2), keepdims=True)
    skew = np.abs(blocks - blocks.transpose(0, 2, 1)) > 1e-12 * size
    wrong = np.flatnonzero(skew.any(axis=(1, 2)) | (np.linalg.eigvalsh(blocks)[:, 0] <= 0.0))
    if wrong.size:
        raise ValueError(
            f"{name}[{wrong[0]}] is not symmetric and positive definite; expected ∫ φ_i φ_j dV "
            "with dV > 0"
        )
    return blocks


def _check_time(function: object) -> None:
    if not isinstance(function, TimeFunction):
        raise TypeError(
            f"time must be a TimeFunction of batchkron.problems.time (such as "
            f"time.constant(1.0)), got {type(function).__name__}"
        )
