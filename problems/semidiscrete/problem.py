"""A discretized problem: everything that a run needs, as one immutable value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.arrays import array_module, to_host
from batchkron.operators import Operator, ValidationReport, on_device

from ..discretization.multiwavelets import check_degree
from ..discretization.parts import (
    ExactSolution,
    OperatorTerm,
    SeparableVector,
    StepperSettings,
    read_only,
)
from ..grids.sparse_grid import SparseGrid
from ..statement.axis import Axis
from ..statement.text import problem_rows, problem_text, rows_text
from .checks import (
    check_axes,
    check_masses,
    check_terms,
    check_times,
    check_vectors,
)
from .evaluation import evaluate_on_grid
from .exact_function import ExactFunction, FunctionOnGrid
from .exact_separable import SeparableSolution
from .operators import (
    OperatorForm,
    TermGroup,
    choose_form,
    group_terms,
    validate_groups,
)
from .time_combination import TimeCombination
from .transfer import carried_over, check_levels, take_operators
from .vector_checks import check_content, check_vector
from .weighted_norm import Masses

__all__ = ["ExactSolution", "OperatorTerm", "Problem", "SeparableVector", "StepperSettings"]


@dataclass(frozen=True, eq=False)
class Problem:
    """The system u' = A(t) u + s(t) of hierarchical coefficients u on a grid, from t0 on.

    A = Σ terms and s = Σ sources, restricted to the grid. Vectors have N = num_cells · n^d
    entries, n = degree + 1: the block index is slowest, and within a block the last axis is
    fastest.

    Parameters
    ----------
    name : str
        What the problem is called.
    axes : sequence of Axis
        The d coordinates.
    degree : int
        Polynomial degree of the basis.
    grid : SparseGrid
        The blocks, d axes.
    terms : sequence of OperatorTerm
        The terms of A.
    sources : sequence of SeparableVector
        The terms of s: sources and boundary data alike.
    initial : ndarray, shape (N,), float64
        u at t0. Copied, and read-only from then on.
    exact : ExactSolution or ExactFunction, optional
        The true solution, where it is known. A function is no part of the content that is saved.
    t0 : float
        Initial time.
    stepper : StepperSettings
        How to step unless told otherwise.
    units : mapping of str to str
        Units by name of a quantity ("x", "t", …).
    masses : sequence of (ndarray, shape (cells_k, n, n), float64, or None), optional
        For each axis with a volume element dV_k the mass blocks ∫ φ_i φ_j dV_k of the nodal
        functions of its finest cells, None where dV_k = 1. They define the norm; the terms and
        sources have the inverse masses in them. By default none has one.
    provenance : mapping of str to JSON data
        Where the problem comes from; no part of its content.
    device : {"cpu", "cuda"}
        Where its operators and vectors are; no part of its content. "cuda" is CuPy's current
        device: `initial` is a CuPy array there, and so are all states.
    form : {"auto", "sweep", "batch", "dense"}
        How its operators are applied; no part of its content. "sweep": mode by mode along the
        grid's fibres, a `batchkron.SparseGridOperator`. "batch": as a list of all coupled pairs of
        cells, a `batchkron.BatchedKron`. "dense": as a matrix, for at most 8192 unknowns. "auto"
        takes sweeps. Dense operators are on the CPU.

    Raises
    ------
    TypeError, ValueError
        If the parts do not fit together; the text names the part.
    BackendUnavailableError
        If CuPy is not installed, or there is no usable device.

    Notes
    -----
    Error against the exact solution: see `exact_error`. A problem may be used
    by several threads at once.
    """

    name: str
    axes: tuple[Axis, ...]
    degree: int
    grid: SparseGrid
    terms: tuple[OperatorTerm, ...]
    sources: tuple[SeparableVector, ...]
    initial: NDArray[np.float64]
    exact: ExactSolution | ExactFunction | None = field(default=None, kw_only=True)
    t0: float = field(default=0.0, kw_only=True)
    stepper: StepperSettings = field(kw_only=True)
    units: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    masses: Masses = field(default=(), kw_only=True)
    provenance: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    device: str = field(default="cpu", kw_only=True)
    form: str = field(default="auto", kw_only=True)

    def __post_init__(self) -> None:
        for name in ("axes", "terms", "sources", "masses"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "degree", check_degree(self.degree))
        initial = read_only("initial", to_host(self.initial, "initial"), dimensions=1)
        object.__setattr__(self, "initial", on_device(initial, self.device))
        for name in ("units", "provenance"):
            object.__setattr__(self, name, dict(getattr(self, name)))
        self._check()
        choose_form(self.form, self.device, self.unknowns)
        object.__setattr__(self, "t0", float(self.t0))

    def _check(self) -> None:
        """Check that axes, grid, terms, sources, initial and exact fit together."""
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"name must be a string that is not empty, got {self.name!r}")
        if not isinstance(self.stepper, StepperSettings):
            raise TypeError(f"stepper must be StepperSettings, got {type(self.stepper).__name__}")
        if not math.isfinite(self.t0):
            raise ValueError(f"t0 must be finite, got {self.t0!r}")
        n, grid = self.degree + 1, self.grid
        check_axes(self.axes, grid)
        expected = (grid.num_cells * n**grid.dimensions,)
        if self.initial.shape != expected:
            raise ValueError(
                f"initial has shape {self.initial.shape}; expected {expected} for "
                f"{grid.num_cells} blocks of {n}**{grid.dimensions} coefficients"
            )
        masses = check_masses(self.masses, grid, n)
        object.__setattr__(self, "masses", masses)
        check_terms(self.terms, grid, n)
        check_vectors("sources", self.sources, grid, n)
        if isinstance(self.exact, ExactSolution):
            check_vectors("exact.parts", self.exact.parts, grid, n)

    def to(self, device: str) -> Problem:
        """Return the problem on a device, where its runs have all their vectors.

        Parameters
        ----------
        device : {"cpu", "cuda"}
            "cuda" is CuPy's current device.

        Returns
        -------
        Problem
            ``self`` if it is there already; of the same content.

        Raises
        ------
        ValueError
            For any other device.
        BackendUnavailableError
            If CuPy is not installed, or there is no usable device; the text says what to do.
        """
        moved = self if device == self.device else replace(self, device=device)
        if moved is not self and "_groups" in self.__dict__ and self._form == moved._form:
            groups = tuple(group.to(device) for group in self._groups)
            moved.__dict__["_groups"] = groups
        return moved

    def with_form(self, form: str) -> Problem:
        """Return the problem with operators that are applied in another way.

        Parameters
        ----------
        form : {"auto", "sweep", "batch", "dense"}
            As of the class.

        Returns
        -------
        Problem
            ``self`` if it has this form already; of the same content.

        Raises
        ------
        ValueError
            If there is no such form, or none on the problem's device, or the problem is too large
            for a dense matrix.
        """
        return self if form == self.form else replace(self, form=form)

    def on_grid(
        self, grid: SparseGrid, u: NDArray[np.float64] | None = None, t: float | None = None
    ) -> Problem:
        """Return the problem on another grid, such as a refined or coarsened one.

        The 1-D operators, sources and the exact solution stay as they are, and operators that have
        been assembled move by `batchkron.SparseGridOperator.on_grid`.

        Parameters
        ----------
        grid : SparseGrid
            With the finest levels of this problem's.
        u : ndarray, shape (N,), float64, optional
            The state that the new problem begins with; by default `initial`. It keeps the
            coefficients of the cells that both grids have, and gets zeros in those that are new.
        t : float, optional
            When it begins, by default `t0`.

        Returns
        -------
        Problem

        Raises
        ------
        TypeError
            If ``grid`` is no SparseGrid.
        ValueError
            For other levels or another shape, or if the problem is too large for its form there.

        Examples
        --------
        >>> from batchkron.problems import SparseGrid, make
        >>> problem = make("continuity-2d", 4, 1)
        >>> cells = problem.grid.cells
        >>> coarser = SparseGrid.custom(cells[cells.max(axis=1) < 8], problem.grid.levels)
        >>> problem.unknowns, problem.on_grid(coarser).unknowns
        (192, 128)
        """
        check_levels(grid, self.grid)
        state = self._on_host(self.initial if u is None else u)
        begin = self.t0 if t is None else t
        initial = carried_over(state, self.grid, grid)
        moved = replace(self, grid=grid, initial=initial, t0=begin)
        take_operators(moved, self)
        return moved

    @property
    def _form(self) -> OperatorForm:
        return choose_form(self.form, self.device, self.unknowns)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone; operators are assembled anew where they are needed."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    def check_interval(self, t0: float, until: float) -> None:
        """Check that the functions of time can be used from t0 to ``until``.

        Parameters
        ----------
        t0, until : float
            The run's beginning and end.

        Raises
        ------
        ValueError
            If a tabulated function does not reach that far, or a term that takes traces from one
            side gets a negative coefficient on the way, and would grow without bound.
        """
        check_times(self.terms, self.sources, t0, until)

    @property
    def unknowns(self) -> int:
        """Number N of coefficients."""
        return self.initial.size

    @property
    def block_size(self) -> int:
        """Number n^d of coefficients of one block."""
        return int((self.degree + 1) ** len(self.axes))

    @cached_property
    def _groups(self) -> tuple[TermGroup, ...]:
        groups = group_terms(self.terms, self.grid, self.degree, self._form)
        return tuple(group.to(self.device) for group in groups)

    @property
    def is_constant(self) -> bool:
        """Whether the operator A does not depend on time."""
        return all(term.time.is_constant for term in self.terms)

    @property
    def is_linear(self) -> bool:
        """Whether `rhs` is A(t) u + s(t) by construction: not where a subclass writes its own."""
        return type(self).rhs is Problem.rhs

    @property
    def num_added_cells(self) -> int:
        """Cells beside the grid that sweeps pass through, see `batchkron.SparseGridOperator`.

        Of several operators, one for each function of time, that of the one that has most; 0 for
        other forms.

        Raises
        ------
        ValueError
            If there are too many for sweeps.
        """
        counts = (getattr(group.operator, "num_added_cells", 0) for group in self._groups)
        return max(counts, default=0)

    @property
    def operator(self) -> Operator:
        """The operator A of shape (N, N), where it does not depend on time.

        Raises
        ------
        ValueError
            If a term depends on time.
        """
        if not self.is_constant:
            raise ValueError(
                "the operator depends on time; use operator_at(t) for the operator at one time"
            )
        return self._groups[0].operator

    def operator_at(self, t: float) -> Operator:
        """Return the operator A(t).

        Parameters
        ----------
        t : float
            Time.

        Returns
        -------
        Operator, shape (N, N)
            The very object `operator` if no term depends on time.
        """
        if self.is_constant:
            return self.operator
        return reduce(add, [group.time(t) * group.operator for group in self._groups])

    def implicit_operator_at(self, t: float) -> Operator:
        """Return what IMEX methods treat implicitly: the terms of A(t) without one-sided traces.

        Those are diffusion and reactions; what is left is transport with upwind fluxes.

        Parameters
        ----------
        t : float
            Time.

        Returns
        -------
        Operator, shape (N, N)
            The very object that `operator_at` returns where that is all of A, and the same object
            at all times where no such term depends on time.
        """
        if not any(term.one_sided for term in self.terms):
            return self.operator_at(t)
        groups = self._implicit_groups
        if all(group.time.is_constant for group in groups):
            return groups[0].operator
        return reduce(add, [group.time(t) * group.operator for group in groups])

    def implicit_source(self, t: float, out: NDArray[np.float64]) -> None:
        """Overwrite `out` with what IMEX methods add to the implicit operator's product.

        That is s(t) without the sources that are marked as ``explicit``, which are the boundary
        data, and the parts of manufactured sources, of terms with one-sided traces.

        Parameters
        ----------
        t : float
            Time.
        out : ndarray, shape (N,), float64, C-contiguous
            Overwritten.

        Raises
        ------
        TypeError, ValueError
            For another dtype, shape or layout.
        """
        check_vector("out", out, self.initial, is_output=True)
        self._implicit_sources.evaluate(t, out)

    @cached_property
    def _implicit_groups(self) -> tuple[TermGroup, ...]:
        kept = [term for term in self.terms if not term.one_sided]
        groups = group_terms(kept, self.grid, self.degree, self._form)
        return tuple(group.to(self.device) for group in groups)

    def rhs(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Overwrite `out` with A(t) u + s(t); allocates nothing after a thread's first call.

        Parameters
        ----------
        t : float
            Time.
        u : ndarray, shape (N,), float64
            State.
        out : ndarray, shape (N,), float64, C-contiguous
            Overwritten; it may not overlap u.

        Raises
        ------
        TypeError, ValueError
            For another dtype, shape or layout, or an overlap.
        """
        self._check_pair(u, out)
        self._sources.evaluate(t, out)
        self._accumulate(t, u, out)

    def accumulate(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Add A(t) u to `out`: what `rhs` does after `source`.

        Parameters
        ----------
        t : float
            Time.
        u : ndarray, shape (N,), float64
            State.
        out : ndarray, shape (N,), float64, C-contiguous
            Added to; it may not overlap u.

        Raises
        ------
        TypeError, ValueError
            For another dtype, shape or layout, or an overlap.
        """
        self._check_pair(u, out)
        self._accumulate(t, u, out)

    def _accumulate(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        for group in self._groups:
            group.accumulate(t, u, out)

    def source(self, t: float, out: NDArray[np.float64]) -> None:
        """Overwrite `out` with s(t), sources and boundary data together.

        Parameters
        ----------
        t : float
            Time.
        out : ndarray, shape (N,), float64, C-contiguous
            Overwritten.

        Raises
        ------
        TypeError, ValueError
            For another dtype, shape or layout.
        """
        check_vector("out", out, self.initial, is_output=True)
        self._sources.evaluate(t, out)

    def exact_coefficients(self, t: float) -> NDArray[np.float64] | None:
        """Return the exact solution's projection on the grid, or None if it is not known.

        Parameters
        ----------
        t : float
            Time.

        Returns
        -------
        ndarray, shape (N,), float64, or None
        """
        return None if self.exact is None else on_device(self._known.coefficients(t), self.device)

    def l2_error(self, u: NDArray[np.float64], t: float) -> float:
        """Return the true L2 error ‖u - f(t)‖ against the exact solution, ‖f‖² = ∫ f² dV.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            State.
        t : float
            Time.

        Returns
        -------
        float
            In the unit of f times the square root of the domain's volume.

        Raises
        ------
        ValueError
            If the exact solution is not known.

        Notes
        -----
        ‖u - Pf‖² plus what the grid leaves out of f, summed directly; with volume elements in
        coordinates that are orthonormal, see `weighted_norm`. By quadrature
        against an `ExactFunction`. Computed on the CPU, wherever the state is.
        """
        return self._known.error(self._on_host(u), t)

    def l2_norm_exact(self, t: float) -> float:
        """Return the L2 norm ‖f(t)‖ of the exact solution.

        Raises
        ------
        ValueError
            If the exact solution is not known.
        """
        return self._known.norm(t)

    def relative_error(self, u: NDArray[np.float64], t: float) -> float:
        """Return ‖u - f(t)‖ / ‖f(t)‖; inf where f(t) vanishes and u does not, 0 where both do.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            Coefficients of a state.
        t : float
            Its time.

        Raises
        ------
        ValueError
            If the exact solution is not known.
        """
        error, norm = self.l2_error(u, t), self.l2_norm_exact(t)
        if norm == 0.0:
            return math.inf if error > 0.0 else 0.0
        return error / norm

    def evaluate(self, u: NDArray[np.float64], points: ArrayLike) -> NDArray[np.float64]:
        """Return the values of a state at points.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            State.
        points : array_like, shape (m, d), float64
            Coordinates, in the order of the axes. A point on an edge between cells takes the
            value from the cell above it.

        Returns
        -------
        ndarray, shape (m,), float64

        Raises
        ------
        ValueError
            For another shape, or points outside the domain.
        """
        return evaluate_on_grid(self._on_host(u), points, self.axes, self.grid, self.degree)

    def validate(self, samples: int | None = None, seed: int = 0) -> ValidationReport:
        """Compare the operator's blocks with dense Kronecker products.

        As `batchkron.BatchedKron.validate`: one vector and several, `accumulate`, the transpose.

        Parameters
        ----------
        samples : int, optional
            How many output blocks of every group of terms to check; all by default.
        seed : int
            Of the random vectors and of the choice of blocks.

        Returns
        -------
        ValidationReport
            The worst over all groups of terms.

        Raises
        ------
        ValueError
            If ``samples`` is less than 1.
        """
        return validate_groups(self._groups, samples, seed)

    def describe(self) -> str:
        """Return the problem's axes, grid, terms, sources, time stepper and form, a row each.

        Sources are boundary data as well: a discretized problem does not tell them apart.

        Returns
        -------
        str
            Some fifteen lines, whatever the number of unknowns.

        Examples
        --------
        >>> from batchkron.problems import make
        >>> lines = make("diffusion-1d", level=3, degree=1).describe().splitlines()
        >>> print(lines[2])
        grid            sparse, finest levels 3, 8 cells
        """
        form = "sweep" if self.form == "auto" else self.form
        return rows_text([*problem_rows(self), ("operators", f"{form}, on the {self.device}")])

    def __repr__(self) -> str:
        return f"<{problem_text(self)}>"

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (hexadecimal) of the content, the same before saving and after loading."""
        from ..files.problem_file import problem_hash

        return problem_hash(self)

    @cached_property
    def _sources(self) -> TimeCombination:
        return TimeCombination(self.sources, self.grid, self.degree + 1, self.device)

    @cached_property
    def _implicit_sources(self) -> TimeCombination:
        kept = [source for source in self.sources if not source.explicit]
        if len(kept) == len(self.sources):
            return self._sources
        return TimeCombination(kept, self.grid, self.degree + 1, self.device)

    @cached_property
    def _known(self) -> SeparableSolution | FunctionOnGrid:
        """The exact solution with its projections on the grid."""
        if self.exact is None:
            raise ValueError(
                f"the exact solution of {self.name!r} is not known; give PDE(..., exact=...) one"
            )
        if isinstance(self.exact, ExactFunction):
            return self.exact.on(self.grid)
        return SeparableSolution(self.exact, self.masses, self.grid, self.degree)

    def _check_pair(self, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        check_vector("u", u, self.initial)
        check_vector("out", out, self.initial, is_output=True)
        if array_module(u).may_share_memory(u, out):
            raise ValueError("out overlaps u; pass another array")

    def _on_host(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a state as a NumPy array."""
        check_content("u", u, self.initial.shape)
        return to_host(u, "u")
