"""The linear solver of an implicit stepper: a Krylov method of batchkron, or a user's function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from batchkron.arrays import array_module
from batchkron.attributes import attribute
from batchkron.operators import Operator

from ..krylov.bicgstab import Bicgstab
from ..krylov.cg import Cg
from ..krylov.fgmres import Fgmres
from ..krylov.gmres import Gmres
from ..krylov.minres import Minres
from ..krylov.systems.result import KrylovResult, Status
from ..products import OnRanks, Products, Ranks, Vector, as_product, norm, norm_over, ranks_of

_METHODS: dict[str, Callable[..., Any]] = {
    "gmres": Gmres,
    "fgmres": Fgmres,
    "cg": Cg,
    "minres": Minres,
    "bicgstab": Bicgstab,
}
_WORKSPACE_OPTIONS: dict[str, tuple[str, ...]] = {"gmres": ("restart",), "fgmres": ("restart",)}
_SOLVE_OPTIONS = ("rtol", "atol", "maxiter")
# Defaults of each solver. Restarting GMRES after 20 steps, SciPy's default, needed three times as
# many products for diffusion.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gmres": {"restart": 50, "maxiter": 400},
    "fgmres": {"restart": 50, "maxiter": 400},
    "cg": {"maxiter": 20_000},
    "minres": {"maxiter": 20_000},
    "bicgstab": {"maxiter": 20_000},
}
# Relative tolerance by dtype character; chosen by hand.
_DEFAULT_RTOL = {"f": 1e-5, "F": 1e-5, "d": 1e-9, "D": 1e-9}
_MAX_REFINEMENTS = 4  # products with M that was the inverse, before a Krylov method goes on
_MAX_REFINED = 0.03  # of the residual that may be left by one of them, else a method goes on


def solver_names() -> tuple[str, ...]:
    """Return the names that `LinearSolver` takes.

    Examples
    --------
    >>> "gmres" in solver_names()
    True
    """
    return tuple(_METHODS)


class ShiftedOperator(OnRanks):
    """I - c A, as an operator that writes into a given array.

    ``operator``: the operator A, shape (N, N): anything that a Krylov method takes.
    ``scale``: the number c.
    ``like`` (ndarray, shape (N,)): a NumPy or CuPy vector with the shape and dtype of the vectors
      that it is applied to.
    ``products``: has a hook around the products with A.

    Examples
    --------
    >>> import numpy as np
    >>> shifted = ShiftedOperator(np.diag([1.0, 2.0]), 0.5, np.empty(2))
    >>> print(shifted.matvec(np.ones(2)))
    [0.5 0. ]
    """

    def __init__(
        self, operator: Any, scale: float, like: Vector, products: Products | None = None
    ) -> None:
        self.operator = operator
        self.shape = (like.size, like.size)
        self.dtype = like.dtype
        self._module = array_module(like)
        # what graphs on a device read
        self._minus = None if self._module is np else self._module.empty(1, like.dtype)
        self.scale = scale
        product = as_product(operator, "problem.operator", like)
        self._product = product if products is None else products.hooked(product)

    @property
    def scale(self) -> float:
        """The number c; graphs on a device that contain products take another one, too."""
        return self._scale

    @scale.setter
    def scale(self, scale: float) -> None:
        self._scale = scale
        if self._minus is not None:
            self._minus.fill(-scale)

    @property
    def communicator(self) -> Ranks | None:  # type: ignore[override]
        """The ranks that share vectors, None if A is not distributed."""
        return ranks_of(self.operator)

    @property
    def capturable(self) -> bool:
        """Whether products on a device may be captured in CUDA graphs, as those with A."""
        A = self.operator
        return isinstance(A, Operator) and A.dtype == self.dtype and A.capturable

    def multiply(self, x: Vector, out: Vector) -> None:
        """Write A x into ``out``."""
        self._product(x, out)

    def matvec(self, x: Vector, out: Vector | None = None) -> Vector:
        """Return x - c A x, in ``out`` if that is given."""
        result = np.empty_like(x) if out is None else out
        self._product(x, result)
        np.multiply(result, -self._scale if self._minus is None else self._minus, out=result)
        np.add(result, x, out=result)
        return result


class LinearSolver:
    """Solves linear systems of one size repeatedly, with one workspace.

    ``solver``: a name ("gmres", the default, "fgmres", "cg", "minres" or "bicgstab"), a mapping of
      options with that name, for example ``{"name": "gmres", "rtol": 1e-8, "restart": 40,
      "maxiter": 10}``, or a function with SciPy's convention, ``solver(A, b, M=...) -> (x, info)``.
    ``like`` (ndarray, shape (N,)): a NumPy or CuPy vector with the shape and dtype of the
      solutions.
    ``operator``: an operator of the systems; needed if their vectors are spread over ranks.

    Raises `ValueError` if the name or an option is unknown. `TypeError` if the solver is not a
    name, a mapping or a function.

    By default ``rtol`` is 1e-9 in double and 1e-5 in single precision, ``restart`` is 50 (so that
    GMRES needs 53 vectors), and a solve ends without convergence after 20 000 iterations.
    """

    def __init__(self, solver: Any, like: Vector, operator: Any = None) -> None:
        self._function: Callable[..., Any] | None = None
        self._options: dict[str, Any] = {}
        if callable(solver):
            self._function = solver
            return
        options = _options_of(solver)
        name = options.pop("name", "gmres")
        if name not in _METHODS:
            raise ValueError(f"solver is {name!r}; expected one of {', '.join(sorted(_METHODS))}.")
        known = (*_SOLVE_OPTIONS, *_WORKSPACE_OPTIONS.get(name, ()))
        for option in options:
            if option not in known:
                raise ValueError(
                    f"solver has the option {option!r}; {name} takes {', '.join(known)}."
                )
        self._trusting = {"confirm": False} if name == "gmres" else {}
        self._refinement: tuple[Vector, Vector] | None = None
        self._ranks = ranks_of(operator)
        options = {"rtol": _DEFAULT_RTOL[like.dtype.char], **_DEFAULTS[name], **options}
        own = {key: options.pop(key) for key in _WORKSPACE_OPTIONS.get(name, ())}
        self._options = options
        system = like.size if self._ranks is None else operator
        self._workspace = _METHODS[name](system, like.dtype, like=like, **own)

    def solve(
        self,
        A: Any,
        b: Vector,
        M: Any,
        out: Vector,
        *,
        rtol: float | None = None,
        atol: float | None = None,
    ) -> KrylovResult:
        """Solve A x = b from x = 0 and write x into ``out``.

        ``A``, ``M``: the operator and the preconditioner (or None), shape (N, N). If M says by
          ``is_near_inverse`` that it was nearly A⁻¹ when it was made, x = M b is refined before the
          method, which goes on from there if that does not suffice, and from 0 if it is no better
          than 0.
        ``b`` (ndarray, shape (N,)): the right-hand side.
        ``out`` (ndarray, shape (N,)): overwritten with x; it must not overlap b.
        ``rtol``: a relative tolerance for this solve, where it is larger than that of the options.
          A function of the user's does not get it.
        ``atol``: the same for the absolute tolerance. It is for solves whose result is looked at
          elsewhere: GMRES then trusts its estimate of the residual.

        Returns the result; its ``x`` is ``out``.
        """
        if self._function is not None:
            return _by_function(self._function, A, b, M, out)
        options = self._options
        if rtol is not None and rtol > options["rtol"]:
            options = {**options, "rtol": rtol}
        if atol is not None:
            options = {**options, "atol": max(atol, options.get("atol", 0.0)), **self._trusting}
        start = None
        # on a device, GMRES does as few products without waiting for it in between
        if attribute(M, "is_near_inverse", False) and not attribute(M, "capturable", False):
            found = self._by_inverse(A, b, M, out, options)
            if found.converged:
                return found
            # not where M is the inverse no more, or of a matrix that is nearly singular
            start = out if found.residual_norm < found.residual_norms[0] else None
        result: KrylovResult = self._workspace.solve(A, b, start, M=M, out=out, **options)
        return result

    def _by_inverse(
        self, A: Any, b: Vector, M: Any, out: Vector, options: dict[str, Any]
    ) -> KrylovResult:
        """Refine x = M b by x += M (b - A x) as long as the true residual falls by much.

        It has converged if that is within the tolerance.
        """
        if self._refinement is None:
            self._refinement = np.empty_like(b), np.empty_like(b)
        (residual, change), multiply = self._refinement, as_product(M, "M", b)
        sizes = [norm_over(self._ranks, b)]
        bound = max(options["rtol"] * sizes[0], options.get("atol", 0.0))
        multiply(b, out)
        while True:
            A.matvec(out, residual)
            np.subtract(b, residual, out=residual)
            sizes.append(norm_over(self._ranks, residual))
            falls = sizes[-1] <= _MAX_REFINED * sizes[-2]
            if sizes[-1] <= bound or len(sizes) > _MAX_REFINEMENTS or not falls:
                break
            multiply(residual, change)
            np.add(out, change, out=out)
        return KrylovResult(
            x=out,
            status=Status.CONVERGED if sizes[-1] <= bound else Status.MAX_ITERATIONS,
            residual_norm=sizes[-1],
            residual_norms=np.array(sizes),
            iterations=len(sizes) - 1,
            restarts=0,
            applications=len(sizes) - 1,
            preconditioner_applications=len(sizes) - 1,
        )


def _options_of(solver: Any) -> dict[str, Any]:
    if solver is None:
        return {}
    if isinstance(solver, str):
        return {"name": solver}
    if isinstance(solver, Mapping):
        return dict(solver)
    raise TypeError(
        f"solver is a {type(solver).__name__}; expected a name, a mapping of options, or a "
        "function solver(A, b, M=...) -> (x, info)."
    )


def _by_function(
    function: Callable[..., Any], A: Any, b: Vector, M: Any, out: Vector
) -> KrylovResult:
    """Call the user's solver; its ``info`` decides on success, unless x is not finite."""
    x, info = function(A, b, M=M)
    np.copyto(out, np.reshape(x, -1), casting="same_kind")
    if not np.isfinite(norm(out)):
        status = Status.NOT_FINITE
    elif info == 0:
        status = Status.CONVERGED
    else:
        status = Status.MAX_ITERATIONS if info > 0 else Status.BREAKDOWN
    return KrylovResult(
        x=out,
        status=status,
        residual_norm=float("nan"),
        residual_norms=np.empty(0),
        iterations=max(int(info), 0),
        restarts=0,
        applications=0,
        preconditioner_applications=0,
    )
