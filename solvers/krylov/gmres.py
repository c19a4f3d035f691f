"""The generalised minimal residual method, restarted: GMRES(m)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..products import Vector
from .iteration.docstrings import with_shared_parts
from .iteration.method import KrylovMethod
from .iteration.recursion import Recursion
from .iteration.workspace_cache import solve_once
from .systems.limits import SolveLimits, check_count
from .systems.result import KrylovResult
from .systems.system import LinearSystem
from .vectors.passes import Pass
from .vectors.space import Field, Passes

_CALLBACK_TYPES = ("pr_norm", "x", "legacy")


class GmresVectors(NamedTuple):
    """x; the basis (m + 1, ..., N); work, the trial solution; M times what a pass left there; b.

    ``solutions``, of flexible GMRES, are M times the vectors of the basis.
    """

    x: Vector
    basis: Vector
    work: Vector
    corrected: Vector | None
    solutions: Vector | None = None
    b: Vector | None = None


GmresProject = Pass("GmresProject", GmresVectors)  # Q* u, Q* w, |u|², u* w, |w|²
GmresExtend = Pass("GmresExtend", GmresVectors)  # the next two vectors of the basis
GmresCombine = Pass("GmresCombine", GmresVectors)  # work = x + Σ y_i q_i; with M the sum alone
GmresCorrect = Pass("GmresCorrect", GmresVectors)  # work = x + corrected
GmresResidual = Pass("GmresResidual", GmresVectors)  # r = b - A work, its norm
GmresAccept = Pass("GmresAccept", GmresVectors)  # x = work, if its residual is smaller

_B = GmresVectors._fields.index("b")


class GmresRecursion(Recursion):
    """A cycle of GMRES: Arnoldi's recursion with a rotation of its matrix in each iteration."""

    measures = True
    never_worse = True
    checks_ahead = True

    def allocate(self, preconditioned: bool) -> tuple[Vector, Vector, Vector]:
        """Make the vectors and the passes over them; see `Recursion.allocate`."""
        space = self.space
        x, work = space.vector("x"), space.vector("work")
        basis = space.basis("basis", space.restart + 1)
        corrected = space.vector("corrected") if preconditioned else None
        return self.with_basis(GmresVectors(x, basis, work, corrected))

    def with_basis(self, at: GmresVectors) -> tuple[Vector, Vector, Vector]:
        """Make the passes over vectors, for `allocate`."""
        space = self.space
        self.max_steps = space.restart
        self.at = at
        self._slots: list[Vector] = list(at.basis)
        self._step = space.passes((GmresProject, GmresExtend), at, columns=space.restart)
        self._combine = space.passes((GmresCombine,), at)
        self._correct = space.passes((GmresCorrect,), at)
        self._accept: dict[int, Passes] = {}  # by the slot of the true residual
        return at.x, self._slots[0], self._slots[1]

    def direction(self, system: LinearSystem, step: int) -> Vector:
        """Return M u."""
        corrected = self.at.corrected
        if corrected is None:
            return self._slots[step]
        system.precondition(self._slots[step], corrected)
        return corrected

    def iterate(self, system: LinearSystem, steps: range) -> int:
        """Do iterations of a cycle."""
        left = -1
        for step in steps:
            system.apply(self.direction(system, step), self._slots[step + 1])  # w = A M u
            self.measure()
            left = self._step.steps[step]()  # orthogonalises u and w, rotates, estimates
            if left == 0:
                break
        return left

    def step_key(self, step: int) -> int:
        """Return the step: each has work of its own."""
        return step

    def check(self, system: LinearSystem, ahead: int = 0) -> int:
        """Form the trial solution; take it over if its residual is smaller.

        The residual takes the place of the basis, or where that is still needed the next one. If
        ``confirms`` is False, and the estimate is within the tolerance, it is not computed: then a
        multiple of b, with the estimated norm, is there.
        """
        self._slot = slot = ahead + 1 if 0 < ahead < self.space.restart else 0
        accept = self._accept.get(slot)
        if accept is None:
            at = self.at._replace(basis=self._slots[slot])
            accept = self._accept[slot] = self.space.passes((GmresResidual, GmresAccept), at)
        work, corrected = self.at.work, self.at.corrected
        self._combine.run()  # work = x + Σ y_i q_i, with M the sum alone
        if corrected is not None:
            system.precondition(work, corrected)
            self._correct.run()  # work = x + M work
        estimate = None if self.confirms else self._estimate()
        if estimate is None:
            system.apply(work, self._slots[slot])
        else:
            np.multiply(system.b, 1.0 - estimate, out=self._slots[slot])
        accept.set_vector(_B, system.b, self.space.address(system.b))
        return accept.run()  # x = work if b - A work is less than the last residual

    def _estimate(self) -> float | None:
        """Return the estimated residual relative to ‖b‖; None if it is not to be relied on.

        It is above the tolerance, or the triangle is singular to working precision: the estimate is
        zero then where the space is exhausted, whatever the residual is.
        """
        space = self.space
        space.changed()
        found, bound, size, columns, kept = (
            float(space.field(field)[0])
            for field in (Field.ESTIMATE, Field.TOLERANCE, Field.NORM_B, Field.COLUMNS, Field.KEPT)
        )
        space.changed()  # by the passes that follow
        # less by rounding, so that the norm which is computed of b is within the tolerance, too
        rounding = 8.0 * float(np.finfo(space.dtype).eps)
        reliable = found <= bound and size > 0.0 and kept == columns
        return (1.0 - rounding) * found / size if reliable else None

    def checked_residual(self) -> Vector:
        """Return the residual that `check` has computed."""
        return self._slots[self._slot]

    def go_on(self) -> None:
        """Bring the residual that `check` has computed to where a cycle begins."""
        if self._slot:
            np.copyto(self._slots[0], self._slots[self._slot])

    def forget_operands(self) -> None:
        """Let go of the arrays of the last solve that are not the workspace's own."""
        super().forget_operands()
        for accept in self._accept.values():
            accept.set_vector(_B, None, 0)


@with_shared_parts
def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = 20,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    callback_type: str | None = "pr_norm",
    batched: str | None = None,
    confirm: bool = True,
    raise_on_failure: bool = False,
) -> KrylovResult:
    """Solve A x = b by minimising ‖b - A x‖₂ over x₀ + M K_m(A M, r₀), restarted every m steps.

    Parameters
    ----------
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
        Any square matrix, real or complex. ``matvec(x, out=None)`` is called with ``out``
        where it has that parameter.
    [rhs]
    restart : int or None
        m, the inner iterations between restarts; None is 20, and N bounds it.
    maxiter : int, optional
        The largest number of restart cycles; 10 N by default.
    M : as A, optional
        The preconditioner, M ≈ A⁻¹. It is applied from the right, so that the residual which is
        minimised is the true one. It must be linear: `fgmres` takes any.
    callback : callable, optional
        Called as ``callback_type`` says. On a device, each call waits for it.
    callback_type : {"pr_norm", "x", "legacy"} or None
        "pr_norm": with ‖r‖/‖b‖ (a float; of the first system) after each inner iteration. "x":
        with a copy of the iterate at the end of each cycle. "legacy": as "pr_norm", and
        ``maxiter`` counts inner iterations. None is "legacy", as in SciPy. Without a callback it
        has no effect.
    [batched]
    confirm : bool
        Whether b - A x is computed at the end of a cycle whose estimated residual is within the
        tolerance. False saves that product: for inner solves, whose result is looked at elsewhere.
        The estimate is then what the result says, unless A is singular over the space
        reached: then b - A x is computed. One system only.

    Returns
    -------
    KrylovResult
        ``x``, ``status``, ``iterations`` and more; unpacks as ``x, info``.

    Raises
    ------
    [raises]

    See Also
    --------
    fgmres : For an M that changes from step to step.
    Gmres : The same with a workspace that is kept between solves.

    Notes
    -----
    The method is that of [1]_. The basis is orthogonalised by classical Gram-Schmidt, done
    twice: this keeps it orthogonal to working precision unless A is numerically singular [2]_,
    where the modified variant loses orthogonality in proportion to the condition number. The
    second time is put off to the next step, so that the inner products of both need one pass
    over the basis, and their corrections another [3]_; inner products are summed in double
    precision. Singular systems break down as in [4]_: the part of the small triangular system
    that is singular to working precision is left out, and the result is a least-squares solution
    over the space reached.

    The estimate of the residual that stops a cycle is not trusted, unless ``confirm`` is False:
    b - A x is computed at its end and decides. An update that does not reduce it is thrown away, so
    that x is never worse than x₀.

    Storage: m + 3 vectors, m + 4 with M, beside b and the returned x. Each iteration applies A
    (and M) once, each cycle once more.

    References
    ----------
    .. [1] Y. Saad, M. H. Schultz, GMRES: a generalized minimal residual algorithm for solving
       nonsymmetric linear systems, SIAM J. Sci. Stat. Comput. 7 (1986).
    .. [2] L. Giraud, J. Langou, M. Rozložník, J. van den Eshof, Rounding error analysis of the
       classical Gram-Schmidt orthogonalization process, Numer. Math. 101 (2005).
    .. [3] D. Bielich, J. Langou, S. Thomas, K. Świrydowicz, I. Yamazaki, E. G. Boman, Low-synch
       Gram-Schmidt with delayed reorthogonalization for Krylov solvers, Parallel Computing 112
       (2022).
    .. [4] P. N. Brown, H. F. Walker, GMRES on (nearly) singular systems, SIAM J. Matrix Anal.
       Appl. 18 (1997).

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import gmres
    >>> x, info = gmres(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([4.0, 8.0]))
    >>> print(x.round(12), info)
    [1. 2.] 0
    """
    cycles: dict[str, Any] = {
        "restart": restart,
        "callback_type": callback_type,
        "confirm": confirm,
    }
    return solve_once(
        Gmres, A, b, x0, M, rtol, atol, maxiter, callback, batched, raise_on_failure, **cycles
    )


class Gmres(KrylovMethod):
    """GMRES(m) with a workspace that is kept from solve to solve; see `gmres`.

    A solve allocates no vector where ``out`` is given and A and M take ``out=``.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import Gmres
    >>> solver = Gmres(2, restart=2)
    >>> for scale in (1.0, 2.0):
    ...     print(solver.solve(scale * np.eye(2), np.ones(2)).x)
    [1. 1.]
    [0.5 0.5]
    """

    _recursion_type: type[Recursion] = GmresRecursion

    def __init__(
        self,
        size: Any,
        dtype: Any = None,
        *,
        restart: int | None = 20,
        like: Any = None,
        M: Any = None,
        batched: str | None = None,
    ) -> None:
        """Make the object, as `Cg`; ``restart`` is m, the inner iterations between restarts.

        None is 20, and N bounds it. ValueError if it is less than 1.
        """
        super().__init__(size, dtype, like=like, M=M, batched=batched)
        wanted = check_count("restart", 20 if restart is None else restart)
        self.restart = max(min(wanted, self._unknowns), 1)
        self._basis_size = self.restart

    def solve(
        self,
        A: Any,
        b: Any,
        x0: Any = None,
        *,
        rtol: float = 1e-5,
        atol: float = 0.0,
        maxiter: int | None = None,
        M: Any = None,
        callback: Callable[[Any], object] | None = None,
        callback_type: str | None = "pr_norm",
        out: Vector | None = None,
        confirm: bool = True,
        raise_on_failure: bool = False,
    ) -> KrylovResult:
        """Solve A x = b in this workspace; the parameters are those of `gmres`.

        Parameters
        ----------
        A, b, x0, rtol, atol, maxiter, M, callback, callback_type, confirm, raise_on_failure
            As for `gmres`.
        out : ndarray, of x's shape, optional
            Where x is written; a fresh array by default, of the kind of b.

        Returns
        -------
        KrylovResult
            As for `gmres`; ``x`` is ``out`` where that is given.

        Raises
        ------
        ValueError, TypeError, RuntimeError
            As for `gmres`; ValueError also if b or ``out`` does not fit.
        """
        if not (confirm or self.batched is None):
            raise ValueError("confirm is False, which is for a single system; leave batched out")
        limits = _CycleLimits(rtol, atol, maxiter, callback, callback_type)
        limits.confirms = bool(confirm)
        return self._solve(A, b, x0, M, limits, out, raise_on_failure)


class _CycleLimits(SolveLimits):
    """Limits the cycles, in the legacy count the iterations, and calls back as is asked for."""

    def __init__(
        self,
        rtol: float,
        atol: float,
        maxiter: int | None,
        callback: Callable[[Any], object] | None,
        callback_type: str | None,
    ) -> None:
        kind = "legacy" if callback_type is None else callback_type
        if kind not in _CALLBACK_TYPES:
            raise ValueError(
                f"callback_type is {callback_type!r}; expected one of {', '.join(_CALLBACK_TYPES)}."
            )
        super().__init__(rtol, atol, maxiter, None if kind == "x" else callback)
        self._at_end = callback if kind == "x" else None
        self._legacy = callback is not None and kind == "legacy"

    def begin_solve(self, size: int) -> None:
        super().begin_solve(size)
        maximum = self._maximum()
        self.max_iterations, self.max_cycles = (
            (maximum, math.inf) if self._legacy else (math.inf, maximum)
        )

    def iteration_ended(self, estimate: float, x: Vector) -> None:
        assert self.callback is not None
        self.callback(np.float64(estimate) / self.norm_b)

    def cycle_ended(self, x: Vector) -> None:
        if self._at_end is not None:
            self._at_end(x.copy())
