"""The inverse along the fibres of a grid: for operators that act on one mode only, or nearly so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.attributes import attribute
from batchkron.operators import BatchedKron, KroneckerTerms, on_device
from batchkron.operators.kronecker_terms import Factor, leading_part, terms_of
from batchkron.operators.scaling import exponent_of, times_power_of_two

from ..products import as_product, norm
from .base import Preconditioner, check_scale, dtype_with_scale
from .bases import NEGLIGIBLE

__all__ = ["FibreInverse"]

_MAX_ROWS = 1024  # largest size of a fibre's matrix, whose inverse is dense; chosen by hand
_MAX_PAIRS = 1 << 22  # of cells of all fibres, each an n × n matrix of M; chosen by hand
_NEAR = 1e-3  # largest defect for which x = M b is refined before a Krylov method begins
# For collisions with coefficients of any shape M takes up to three times the iterations of the
# combination technique, at a third to a tenth of its time each, with these (Xeon, 2026-11; levels
# 4 to 6, steps of 0.05 to 100 collisions).
_MAX_DEFECT, _MAX_RATE = 0.3, 0.5
_LONGER = 1e3  # steps so many times as long are to converge as well
_TRIALS = 6  # products for an estimate of the rate

Matrix = NDArray[Any]


class FibreInverse(Preconditioner):
    """M = B_k⁻¹, where in B the matrices of all modes but k are the nearest multiples of I.

    B is I - scale · A, or A itself. A fibre is the blocks of a grid that differ in the index of
    mode k only; B_k couples no two of them. So M is a dense inverse for each kind of fibre.

    Parameters
    ----------
    operator : Operator or KroneckerTerms
        The operator A, on the cells of a grid; it must know its Kronecker terms.
    scale : scalar, optional
        The number in I - scale · A; None stands for B = A.
    dtype : dtype, optional
        Dtype of the vectors; float64 by default, complex128 for complex terms or a
        complex scale.
    device : {"cpu", "cuda"}, optional
        Device of the vectors; by default the operator's.

    Attributes
    ----------
    mode : int
        k, the mode for which the defect is least.
    defect : float
        The distance of A from what takes its place, relative to A, in a bound of Frobenius norms.
    is_near_inverse : bool
        Whether the defect is small enough for solvers to begin with x = M b and refine that.
    product : BatchedKron
        M as a batch list.

    Raises
    ------
    TypeError
        If the operator does not know its Kronecker terms, or the scale is not a number that the
        dtype holds.
    ValueError
        If its terms are not on the cells of a grid, a fibre has more than 1024 unknowns, or the
        scale is infinite or NaN.

    Notes
    -----
    M is computed from the present values of A. For a singular matrix of a fibre the identity is
    taken.

    Storage: n² numbers for each pair of cells of each kind of fibre, and three indices for each
    pair of cells of each fibre. M is applied as one batch of products of n × n matrices.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.problems import PDE, Axis, div, grad
    >>> from batchkron.solvers.preconditioners import FibreInverse
    >>> x, v = Axis("x", 0, 1), Axis("v", -1, 1)
    >>> pde = PDE([x, v], div(v) @ grad(v), boundary="neumann", initial=0.0)
    >>> problem = pde.discretize(level=3, degree=1)
    >>> M = FibreInverse(problem.operator, 0.1)
    >>> b = np.cos(np.arange(problem.unknowns))
    >>> y = M.matvec(b)
    >>> print(M.mode, M.is_near_inverse, np.allclose(y - 0.1 * problem.operator @ y, b))
    1 True True
    """

    @staticmethod
    def may_suit(terms: KroneckerTerms) -> bool:
        """Return whether fibres are short and coupled little, so that `if_suitable` tries M."""
        return _short_fibres(terms) is not None

    @classmethod
    def if_suitable(
        cls, operator: Any, terms: KroneckerTerms, scale: Any, *, dtype: Any = None
    ) -> FibreInverse | None:
        """Return M if it is B⁻¹ but for rounding, or I - M B shrinks vectors fast; else None.

        ``terms`` are those of the operator. The rate is (‖(I - M B)^6 x‖ / ‖x‖)^(1/6) for a random
        vector x. It is to be at most ½ for this scale, and for a thousand times as much: what is
        weak in short steps may prevail in long ones.
        """
        least = _short_fibres(terms)
        if least is None:
            return None
        own_dtype = np.dtype(terms.dtype if dtype is None else dtype)
        is_real = scale is not None and not np.iscomplexobj(scale) and own_dtype.kind != "c"
        is_exact = least[1] <= NEGLIGIBLE
        if not (is_exact or is_real):
            return None
        found = cls.__new__(cls)
        found._build(terms, least, dtype, str(attribute(operator, "device", "cpu")), scale)
        if is_exact:
            return found
        rates = (_rate(operator, M) for M in (found, found.shifted(_LONGER * scale)))
        return found if max(rates) <= _MAX_RATE else None

    def __init__(
        self, operator: Any, scale: Any = None, *, dtype: Any = None, device: str | None = None
    ) -> None:
        terms = terms_of(operator)
        if terms.cells is None:
            raise ValueError("the operator has no cells, of which fibres would consist")
        least = _least_defect(terms)
        rows = _longest(terms, least[0])
        if rows > _MAX_ROWS:
            raise ValueError(
                f"fibres of mode {least[0]} have up to {rows} unknowns, more than {_MAX_ROWS}; "
                "take block Jacobi, which inverts nothing large"
            )
        self._build(terms, least, dtype, str(device or attribute(operator, "device", "cpu")), scale)

    def _build(
        self, terms: KroneckerTerms, least: tuple[int, float], dtype: Any, device: str, scale: Any
    ) -> None:
        """Set all attributes for the mode of the least defect, whose fibres are short enough."""
        assert terms.cells is not None
        self.mode, self.defect = least
        self.is_near_inverse = self.defect <= _NEAR
        self.dtype = dtype_with_scale(scale, terms.dtype, dtype)
        self._is_given = dtype is not None
        self.device = device
        self.shape = (terms.unknowns, terms.unknowns)
        self._sizes = terms.sizes
        self._matrix = _along(terms, self.mode)
        self._fibres = _fibres(terms.cells, self.mode)
        self._solve_with(scale)

    def shifted(self, scale: Any) -> FibreInverse:
        """Return the preconditioner for another scale."""
        check_scale(scale, self.dtype if self._is_given else None)
        other = copy(self)
        if not self._is_given and np.iscomplexobj(scale):
            other.dtype = np.result_type(self.dtype, 1j)
        other._solve_with(scale)
        return other

    def rescale(self, scale: Any) -> None:
        """Become the preconditioner for another scale, in place: also in graphs on a device."""
        check_scale(scale, self.dtype)
        self.scale = scale
        self.product.update(self._pools(scale))

    @property
    def capturable(self) -> bool:
        """Whether products on a device may be captured in CUDA graphs."""
        return self.device != "cpu" and self.product.capturable

    def _pools(self, scale: Any) -> list[Matrix]:
        """Return the matrices of M for each mode, (count, n, n)."""
        n, pool = self._sizes[self.mode], []
        for own, _ in self._fibres:
            rows = (own[:, None] * n + np.arange(n)).ravel()
            part = self._matrix[np.ix_(rows, rows)]
            B = part if scale is None else np.eye(len(rows)) - scale * part
            blocks = _inverted(B).reshape(len(own), n, len(own), n).swapaxes(1, 2)
            pool.append(blocks.reshape(-1, n, n))
        pools = [np.eye(size, dtype=self.dtype)[None] for size in self._sizes]
        pools[self.mode] = np.concatenate(pool).astype(self.dtype)
        return pools

    def _solve_with(self, scale: Any) -> None:
        self.scale = scale
        pairs, start = [], 0
        for own, numbers in self._fibres:
            count = len(own)
            row, column = np.divmod(np.arange(count**2), count)
            ids = np.broadcast_to(start + np.arange(count**2), (len(numbers), count**2))
            pairs.append(np.stack([ids, numbers[:, column], numbers[:, row]]).reshape(3, -1))
            start += count**2
        ids, inputs, outputs = np.concatenate(pairs, axis=1)
        modes = len(self._sizes)
        all_ids = np.zeros((len(ids), modes), dtype=np.int64)
        all_ids[:, self.mode] = ids
        pools = self._pools(scale)
        cells = self.shape[0] // math.prod(self._sizes)
        batch = BatchedKron(pools, all_ids, inputs, outputs, num_inputs=cells, num_outputs=cells)
        self.product: BatchedKron = batch.to(self.device)  # type: ignore[assignment]

    def matvec(self, x: Matrix, out: Matrix | None = None) -> Matrix:
        """Return M x; see `Preconditioner.matvec`."""
        return self.product.matvec(x, out=out)

    def matmat(self, X: Matrix) -> Matrix:
        """Return M X for the columns of X, (N, K)."""
        return self.product.matmat(X)

    def describe(self) -> str:
        """Return a text with the fibres, and how near to the inverse M is."""
        longest = max(len(own) for own, _ in self._fibres) * self._sizes[self.mode]
        return (
            f"{super().describe()}\n"
            f"  inverses along mode {self.mode}, {len(self._fibres)} kinds of fibres with up to "
            f"{longest} unknowns; {self.defect:.2g} of A left out"
        )


def _short_fibres(terms: KroneckerTerms) -> tuple[int, float] | None:
    """Return the mode of the least defect, and that, if it is small and the fibres are short."""
    if terms.cells is None or len(terms.sizes) < 2 or not len(terms.cells):
        return None
    mode, defect = _least_defect(terms)
    is_short = _longest(terms, mode) <= _MAX_ROWS and _pairs(terms.cells, mode) <= _MAX_PAIRS
    return (mode, defect) if is_short and defect <= _MAX_DEFECT else None


def _longest(terms: KroneckerTerms, mode: int) -> int:
    """Return an upper bound of the unknowns of a fibre along a mode."""
    assert terms.cells is not None
    return terms.sizes[mode] * len(np.unique(terms.cells[:, mode]))


def _pairs(cells: NDArray[np.int64], mode: int) -> int:
    """Return the number of pairs of cells of all fibres."""
    others = [k for k in range(cells.shape[1]) if k != mode]
    lengths = np.unique(cells[:, others], axis=0, return_counts=True)[1]
    return int((lengths.astype(np.int64) ** 2).sum())


def _rate(operator: Any, M: FibreInverse) -> float:
    """Return the mean factor by which I - M B shrinks a random vector in a product."""
    start = np.random.default_rng(0).standard_normal(M.shape[0]).astype(M.dtype)
    x = on_device(start, M.device)
    multiply = as_product(operator, "operator", x)
    product = x.copy()
    first = norm(x)
    for _ in range(_TRIALS):
        multiply(x, product)
        product *= M.scale
        product -= x  # -B x
        x = x + M.matvec(product)
    size = norm(x)
    return (size / first) ** (1.0 / _TRIALS) if np.isfinite(size) else math.inf


def _least_defect(terms: KroneckerTerms) -> tuple[int, float]:
    """Return the mode whose fibres are coupled least, and how much, relative to A."""
    counts = _counts(terms)
    kept = [[_nearest(*pair) for pair in zip(t.factors, counts, strict=True)] for t in terms.terms]
    defects = [_defect(terms, kept, mode) for mode in range(len(terms.sizes))]
    mode = int(np.argmin(defects))
    return mode, defects[mode]


def _defect(
    terms: KroneckerTerms, nearest: Sequence[Sequence[tuple[float, float]]], mode: int
) -> float:
    """Return Σ_t ‖A_t - A_tk‖ / Σ_t ‖A_t‖ over the terms, in Frobenius norms.

    The parts φ I and F - φ I of a factor are orthogonal, so that the squares of the norms of all
    products of such parts add up to that of the term.
    """
    largest = max((exponent_of(term.coefficient) for term in terms.terms), default=0)
    whole = left = 0.0
    for term, parts in zip(terms.terms, nearest, strict=True):
        # relative to the largest coefficient, whose square may be out of range
        alike, other = abs(times_power_of_two(term.coefficient, -largest)) ** 2, 0.0
        for k, (multiple, rest) in enumerate(parts):
            size = multiple**2 + rest
            alike, other = (
                (alike * size, other * size)
                if k == mode
                else (alike * multiple**2, other * size + alike * rest)
            )
        whole += math.sqrt(alike + other)
        left += math.sqrt(other)
    return left / whole if whole else 0.0


def _nearest(factor: Factor, count: int) -> tuple[float, float]:
    """Return |φ| of the nearest multiple φ I of a 1-D matrix F, and ‖F - φ I‖² / ‖I‖²."""
    if factor is None:
        return 1.0, 0.0
    multiple = _multiple(factor, count)
    if isinstance(factor, np.ndarray):
        rest = np.linalg.norm(factor - multiple * np.eye(len(factor))) ** 2 / len(factor)
        return abs(multiple), float(rest)
    n, blocks = factor.blocks.shape[-1], np.array(factor.blocks)
    own = factor.rows == factor.columns
    blocks[own] -= multiple * np.eye(n)
    missing = abs(multiple) ** 2 * n * (count - int(own.sum()))
    return abs(multiple), float((np.linalg.norm(blocks) ** 2 + missing) / (n * count))


def _multiple(factor: Factor, count: int) -> Any:
    """Return the mean of the diagonal of a 1-D matrix on that number of cells."""
    if factor is None:
        return 1.0
    if isinstance(factor, np.ndarray):
        return np.trace(factor) / len(factor)
    own = np.asarray(factor.blocks)[factor.rows == factor.columns]
    return np.trace(own, axis1=1, axis2=2).sum() / (factor.blocks.shape[-1] * count)


def _counts(terms: KroneckerTerms) -> list[int]:
    """Return the number of 1-D cells of each mode: those of the grid, and of all matrices."""
    assert terms.cells is not None
    last = terms.cells.max(axis=0, initial=0).tolist()
    for term in terms.terms:
        for k, factor in enumerate(term.factors):
            if factor is not None and not isinstance(factor, np.ndarray):
                ends = factor.rows.max(initial=0), factor.columns.max(initial=0)
                last[k] = max(last[k], *map(int, ends))
    return [1 << number.bit_length() for number in last]


def _along(terms: KroneckerTerms, mode: int) -> Matrix:
    """Return Σ_t c_t Π_{j≠k} φ_tj A_tk, dense, of all cells up to the last one of the grid."""
    assert terms.cells is not None
    rows = terms.sizes[mode] * (int(terms.cells[:, mode].max()) + 1)
    total: Matrix = np.zeros((rows, rows), terms.dtype)
    counts = _counts(terms)
    for term in terms.terms:
        number = term.coefficient
        for k, factor in enumerate(term.factors):
            number = number * (1.0 if k == mode else _multiple(factor, counts[k]))
        own = term.factors[mode]
        total += number * (np.eye(rows) if own is None else leading_part(own, rows))
    return total


def _fibres(cells: NDArray[np.int64], mode: int) -> list[tuple[Matrix, Matrix]]:
    """Return for each kind of fibre its cells along the mode, and the numbers of their blocks.

    These are (count,) and (fibres, count); kinds are in the order of their first fibres.
    """
    others = [k for k in range(cells.shape[1]) if k != mode]
    order = np.lexsort((cells[:, mode], *(cells[:, k] for k in reversed(others))))
    sorted_cells = cells[order]
    changes = (np.diff(sorted_cells[:, others], axis=0) != 0).any(axis=1)
    kinds: dict[bytes, tuple[Matrix, list[Matrix]]] = {}
    for numbers in np.split(order, np.flatnonzero(changes) + 1):
        own = np.ascontiguousarray(cells[numbers, mode])
        kinds.setdefault(own.tobytes(), (own, []))[1].append(numbers)
    return [(own, np.stack(fibres)) for own, fibres in kinds.values()]


def _inverted(B: Matrix) -> Matrix:
    try:
        found = np.linalg.inv(B)
    except np.linalg.LinAlgError:
        return np.eye(len(B))
    return found if np.isfinite(found).all() else np.eye(len(B))
