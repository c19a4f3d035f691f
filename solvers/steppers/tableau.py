"""A Runge-Kutta method as data: the Butcher tableau, with weights of an embedded method."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .order_conditions import missed_condition

__all__ = ["Tableau"]

_STEP = 1e-2  # step of z in the search for the end of a stability interval; chosen by hand
_MAX_STABLE_INTERVAL = 40.0  # largest |z| of the search along an axis; chosen by hand
_ROUNDING = 1e-12  # |R(z)| up to 1 plus this is regarded as stable
_ROUNDED_ONE = 1e-14  # |c - 1| that comes from coefficients rounded to double precision
_CONSISTENT = 1e-10  # tolerance of equations between coefficients, such as Σ b_i = 1
# If an order condition fails by less than this, the error text says that the coefficients probably
# have too few digits; chosen by hand.
_ROUNDED_COEFFICIENTS = 1e-4
_ARRAYS = (
    "weights",
    "explicit",
    "implicit",
    "embedded",
    "dense",
    "second_embedded",
    "dense_stages",
)


@dataclass(frozen=True, eq=False)
class Tableau:
    """The coefficients of a Runge-Kutta method, explicit, diagonally implicit, or both (IMEX).

    k_i = f(t + c_i dt, u + dt Σ_j a_ij k_j), u_next = u + dt Σ_i b_i k_i; an IMEX method has one
    matrix for the part that is treated explicitly and one for the rest, and the same b and c.

    Parameters
    ----------
    name : str
        The method's name for `evolve` and its records.
    order : int
        The order of convergence in dt (a float with an integer value is accepted). It is checked
        that the coefficients satisfy the order conditions, up to order 8.
    weights : array_like, (s,)
        The weights b.
    explicit : array_like, (s, s), optional
        The matrix a for f, or for its explicit part; strictly lower triangular.
    implicit : array_like, (s, s), optional
        The matrix a for f = A u + s(t), or for its implicit part A_I u; lower triangular. Diagonal
        entries that are not 0 must be equal, so that all stages solve with the same matrix.
    embedded : array_like, (s,), optional
        The weights of a second method; the difference of both results estimates the error.
    embedded_order : int
        The order of the second method.
    second_embedded : array_like, (s,), optional
        The weights of a third method, of lower order than the second one. With the differences
        e and e₂ of both from the result, the error is ‖e‖² / (‖e‖² + 0.01 ‖e₂‖²)^½.
    second_embedded_order : int
        The order of the third method.
    dense : array_like, (s + r, m), optional
        Continuous weights: u(t + θ dt) = u + dt Σ_i (Σ_j dense[i, j] θ^(j + 1)) k_i. At θ = 1 they
        must be equal to the weights, and they must sum to θ. Without them, cubic Hermite
        interpolation is used.
    dense_stages : array_like, (r, s + r), optional
        The rows of the matrix a for r further stages of an explicit method that ``dense`` uses.
        They are evaluated when the solution inside a step is asked for.
    source : str
        The publication of the coefficients.

    Raises
    ------
    ValueError
        If the shapes do not fit, an entry is not finite, a matrix is not triangular, the weights do
        not sum to 1, the diagonal has two values, or the coefficients miss a condition of the
        stated order.

    Examples
    --------
    >>> from batchkron.solvers.steppers import Tableau
    >>> heun = Tableau("heun", 2, [0.5, 0.5], explicit=[[0, 0], [1, 0]])
    >>> heun.stages, heun.nodes
    (2, array([0., 1.]))
    """

    name: str
    order: int
    weights: Any
    explicit: Any = None
    implicit: Any = None
    embedded: Any = None
    embedded_order: int = 0
    dense: Any = field(default=None, repr=False)
    second_embedded: Any = None
    second_embedded_order: int = 0
    dense_stages: Any = field(default=None, repr=False)
    source: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _frozen(value))
        s, more = self.stages, self.more_stages
        shapes: dict[str, tuple[int, ...]] = {
            "explicit": (s, s),
            "implicit": (s, s),
            "embedded": (s,),
            "second_embedded": (s,),
            "dense_stages": (more, s + more),
        }
        for name, shape in shapes.items():
            value = getattr(self, name)
            if value is not None and value.shape != shape:
                raise ValueError(f"{name} has shape {value.shape}; expected {shape}")
        if self.dense is not None and (self.dense.ndim != 2 or len(self.dense) != s + more):
            raise ValueError(f"dense has shape {self.dense.shape}; expected ({s + more}, m)")
        if self.explicit is None and self.implicit is None:
            raise ValueError("neither explicit nor implicit is given; a method needs one at least")
        self._check()

    def _check(self) -> None:
        """Check that entries are finite, matrices triangular, the diagonal constant, sums right."""
        for name in _ARRAYS:
            value = getattr(self, name)
            if value is not None and not np.isfinite(value).all():
                raise ValueError(f"{name} has entries that are not finite")
        if self.explicit is not None and np.triu(self.explicit).any():
            raise ValueError("explicit has entries on or above the diagonal; expected none there")
        if self.implicit is not None and np.triu(self.implicit, 1).any():
            raise ValueError(
                "implicit has entries above the diagonal, so that stages depend on "
                "later ones; expected a diagonally implicit method"
            )
        if self.implicit is not None:
            diagonal = self.implicit.diagonal()
            used = diagonal[diagonal != 0.0]
            if used.size and np.ptp(used) > _CONSISTENT:
                raise ValueError(
                    f"implicit has the diagonal {diagonal.tolist()}; expected one value beside 0"
                )
        for name in ("weights", "embedded", "second_embedded"):
            value = getattr(self, name)
            if value is not None and abs(value.sum() - 1.0) > _CONSISTENT:
                raise ValueError(f"{name} sum to {value.sum()}; expected 1")
        if self.is_imex and np.abs(self.explicit.sum(1) - self.implicit.sum(1)).max() > 1e-9:
            raise ValueError("explicit and implicit have other row sums; expected the same times")
        if self.embedded is not None and self.embedded_order < 1:
            raise ValueError("embedded is given without embedded_order, the order of its method")
        if self.second_embedded is not None and not (
            self.embedded is not None and 0 < self.second_embedded_order < self.embedded_order
        ):
            raise ValueError(
                "second_embedded needs embedded, and second_embedded_order below embedded_order"
            )
        if self.dense_stages is not None:
            self._check_dense_stages()
        self._check_order()

    def _check_dense_stages(self) -> None:
        """Check that further stages are explicit, and are used."""
        if self.implicit is not None or self.dense is None:
            raise ValueError("dense_stages need an explicit method, and dense, which uses them")
        if np.triu(self.dense_stages, self.stages).any():
            raise ValueError("dense_stages have entries of the same or later stages; expected none")

    def _check_order(self) -> None:
        """Check that the coefficients satisfy the conditions of the stated orders."""
        for name in ("order", "embedded_order", "second_embedded_order"):
            value = getattr(self, name)
            if isinstance(value, float) and value.is_integer():
                value = int(value)
                object.__setattr__(self, name, value)
            at_least = 1 if name == "order" else 0
            if not isinstance(value, Integral) or value < at_least:
                raise ValueError(f"{name} is {value!r}; expected an integer of at least {at_least}")
        matrices = {
            name: getattr(self, name)
            for name in ("explicit", "implicit")
            if getattr(self, name) is not None
        }
        orders = {
            "weights": self.order,
            "embedded": self.embedded_order,
            "second_embedded": self.second_embedded_order,
        }
        for name, order in orders.items():
            values = getattr(self, name)
            missed = None if values is None else missed_condition(values, matrices, order)
            if missed is not None:
                reached, expression, value, expected = missed
                expression = expression.replace("weights", name, 1)
                difference = value - float(expected)
                digits = (
                    ", or give them with more digits"
                    if abs(difference) < _ROUNDED_COEFFICIENTS
                    else ""
                )
                raise ValueError(
                    f"{name} of {self.name!r} are stated to have order {order}, but "
                    f"{expression} is {value:.10g} and not {expected} (c are the "
                    f"row sums), as order {reached} needs; the difference is "
                    f"{difference:.1e}. Correct the coefficients{digits}, or state order "
                    f"{reached - 1}"
                )
        if self.dense is not None:
            self._check_dense()

    def _check_dense(self) -> None:
        """Check that the continuous weights give the right values at both ends of a step."""
        scale = _CONSISTENT * max(1.0, float(np.abs(self.dense).sum()))
        weights = np.append(self.weights, np.zeros(self.more_stages))
        at_end = np.abs(self.dense.sum(axis=1) - weights)
        if at_end.max() > scale:
            k = int(at_end.argmax())
            raise ValueError(
                f"dense[{k}] sums to {self.dense[k].sum()}, so that at the end of a step u is not "
                f"the one that weights give; expected weights[{k}] = {weights[k]}"
            )
        sums = self.dense.sum(axis=0)
        if np.abs(sums - np.eye(len(sums))[0]).max() > scale:
            raise ValueError(
                f"the columns of dense sum to {sums.tolist()}; expected 1 in the first one and 0 "
                "in the others, so that the weights sum to θ"
            )

    @property
    def stages(self) -> int:
        """The number of stages s."""
        return len(self.weights)

    @property
    def more_stages(self) -> int:
        """The number r of further stages that the solution inside a step needs."""
        return 0 if self.dense_stages is None else len(self.dense_stages)

    @property
    def error_order(self) -> int:
        """The estimated error of a step is O(dt^(error_order + 1)); 0 without an estimate."""
        if self.second_embedded is None:
            return self.embedded_order
        return 2 * self.embedded_order - self.second_embedded_order

    @property
    def nodes(self) -> NDArray[np.float64]:
        """The nodes c, (s,): row sums of the matrix, exactly 1 if that is what was meant."""
        matrix = self.explicit if self.explicit is not None else self.implicit
        sums = np.array([math.fsum(row) for row in matrix])
        return np.where(np.abs(sums - 1.0) <= _ROUNDED_ONE, 1.0, sums)

    @property
    def is_imex(self) -> bool:
        """Whether the method is IMEX: f is split into an explicit and an implicit part."""
        return self.explicit is not None and self.implicit is not None

    @property
    def diagonal(self) -> float:
        """The value on the diagonal of ``implicit``; 0 for an explicit method."""
        return 0.0 if self.implicit is None else float(self.implicit.diagonal().max())

    @property
    def first_is_last(self) -> bool:
        """Whether the last stage of an explicit method is the first of the next step (FSAL)."""
        return (
            self.implicit is None
            and self.stages > 1
            and bool(np.array_equal(self.explicit[-1], self.weights))
        )

    def growth(self, z: complex) -> complex:
        """Return R(z), the factor of a step for u' = λ u with z = dt λ.

        For an IMEX method it is the factor of the implicit part.
        """
        matrix = self.explicit if self.implicit is None else self.implicit
        ones = np.ones(self.stages)
        inner = np.linalg.solve(np.eye(self.stages) - z * matrix, ones)
        return complex(1.0 + z * (self.weights @ inner))

    def step_matrix(self, explicit: NDArray[Any], implicit: NDArray[Any]) -> NDArray[Any]:
        """Return the matrix of a step of an IMEX method for u' = (E + I) u.

        Parameters
        ----------
        explicit, implicit : ndarray, shape (..., m, m)
            dt E and dt I.

        Returns
        -------
        ndarray, shape (..., m, m)

        Raises
        ------
        numpy.linalg.LinAlgError
            If a stage has no solution.
        """
        one = np.eye(explicit.shape[-1])
        solved = one - self.diagonal * implicit
        slopes: list[tuple[NDArray[Any], NDArray[Any]]] = []

        def combined(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
            total = np.broadcast_to(one, explicit.shape).astype(np.complex128)
            for a, b, (own, other) in zip(first, second, slopes, strict=False):
                total = total + a * own + b * other
            return total

        for i in range(self.stages):
            stage = combined(self.explicit[i, :i], self.implicit[i, :i])
            if self.implicit[i, i] != 0.0:
                stage = np.linalg.solve(solved, stage)
            slopes.append((explicit @ stage, implicit @ stage))
        return combined(self.weights, self.weights)

    @property
    def stability_polynomial(self) -> tuple[float, ...]:
        """The coefficients of 1, z, z², … in R(z) of an explicit method; empty for others."""
        if self.implicit is not None:
            return ()
        coefficients, inner = [1.0], np.ones(self.stages)
        for _ in range(self.stages):
            coefficients.append(float(self.weights @ inner))
            inner = self.explicit @ inner
        return tuple(coefficients)

    def stable_until(self, direction: complex) -> float:
        """Return the largest x with |R(y · direction)| ≤ 1 for all 0 ≤ y ≤ x; inf if unbounded.

        Parameters
        ----------
        direction : complex
            -1 for decay, 1j for oscillation.
        """
        if self.implicit is not None and abs(self.growth(1e8 * direction)) <= 1.0 + 1e-6:
            return np.inf
        good = 0.0
        while good < _MAX_STABLE_INTERVAL and self._is_stable((good + _STEP) * direction):
            good += _STEP
        bad = good + _STEP
        for _ in range(60):
            middle = 0.5 * (good + bad)
            good, bad = (middle, bad) if self._is_stable(middle * direction) else (good, middle)
        return good if good > _STEP else 0.0  # rounding errors can make 0 slightly larger

    def _is_stable(self, z: complex) -> bool:
        return abs(self.growth(z)) <= 1.0 + _ROUNDING


def _frozen(value: ArrayLike) -> NDArray[np.float64]:
    array = np.array(value, dtype=np.float64)
    array.flags.writeable = False
    return array
