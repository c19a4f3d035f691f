"""Which way to multiply by a Kronecker-sparse matrix is fastest, by predicted times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from batchkron.kronecker_sparse.costs import (
    WAYS,
    CostTable,
    Rates,
    Way,
    costs_of,
    predicted_seconds,
)
from batchkron.kronecker_sparse.sizes import checked_size
from batchkron.spec.kron_sparse import Layout, Pattern, as_pattern, check_layout

_DEVICES = ("cpu", "cuda")
MAX_EXPONENT = 40  # times of up to 2^40 vectors are compared


@dataclass(frozen=True)
class Advice:
    """What `advise` returns.

    Attributes
    ----------
    pattern : Pattern
    batch : int
    dtype : str
    layout : {"batch-first", "batch-last"}
    device : {"cpu", "cuda"}
    machine : str
        Where the times were measured that the predictions are fitted to.
    batchkron : float
        Predicted seconds of `KroneckerSparse`.
    bmm : float
        Of copies around a batched multiply of dense matrices.
    dense : float
        Of a multiply with the dense matrix.
    ratio : float
        (b + c) / (b c), elements of vectors for each multiplication: the larger it is, the more
        copies cost.
    interleaved_ratio : float
        d (b + c) / (b c).
    use : {"batchkron", "bmm", "dense"}
        The way with the least predicted time.
    from_batch : int or None
        The least number of vectors from which on `KroneckerSparse` is fastest; None if another way
        is for many vectors.
    """

    pattern: Pattern
    batch: int
    dtype: str
    layout: Layout
    device: str
    machine: str
    batchkron: float
    bmm: float
    dense: float
    ratio: float
    interleaved_ratio: float
    use: Way
    from_batch: int | None

    def __str__(self) -> str:
        """Return a text of a few lines, times in µs."""
        rows, columns = self.pattern.shape
        seconds = (self.batchkron, self.bmm, self.dense)
        times = ", ".join(f"{way} {1e6 * t:.3g}" for way, t in zip(WAYS, seconds, strict=True))
        when = "for no large number of vectors"
        if self.from_batch is not None:
            when = f"from {self.from_batch} vectors on"
        return (
            f"{rows}×{columns}, pattern {tuple(self.pattern)}, {self.batch} vectors, {self.dtype}, "
            f"{self.layout}, {self.device}\n"
            f"  predicted µs: {times} (measured on {self.machine})\n"
            f"  (b+c)/(bc) = {self.ratio:.3g}, d(b+c)/(bc) = {self.interleaved_ratio:.3g}\n"
            f"  use {self.use}; batchkron is fastest {when}"
        )


def advise(
    pattern: Sequence[int],
    batch: int,
    dtype: DTypeLike = np.float32,
    layout: Layout = "batch-first",
    device: str = "cpu",
) -> Advice:
    """Return which way to multiply a batch of vectors by a Kronecker-sparse matrix is fastest.

    Times are predicted from the pattern's numbers by a table that was fitted to measured ones, of
    one thread on a CPU or of one card. On other machines they differ, their order less so.

    Parameters
    ----------
    pattern : (a, b, c, d)
        Four integers, each at least 1.
    batch : int
        Number of vectors.
    dtype : float32 or float64, on "cuda" also float16
    layout : {"batch-first", "batch-last"}
        Of the vectors.
    device : {"cpu", "cuda"}
        Neither has to be there.

    Returns
    -------
    Advice

    Raises
    ------
    TypeError
        If the pattern or batch are no integers, or no times of the dtype were measured.
    ValueError
        If there are not four numbers, one is less than 1, or layout or device are unknown.

    Notes
    -----
    The ways and the ratios are those of Gonon, Zheng, Carrivain and Le, "Fast inference with
    Kronecker-sparse matrices" (2024).

    Examples
    --------
    >>> from batchkron.kronecker_sparse import advise
    >>> found = advise((1, 48, 48, 64), 25088, layout="batch-last", device="cuda")
    >>> found.use, found.batchkron < found.bmm < found.dense
    ('batchkron', True)
    """
    wanted = as_pattern(pattern, "pattern", least=1)
    count, layout = checked_size(batch, "batch"), check_layout(layout)
    table, rates = checked_rates(dtype, layout, device)
    itemsize = np.dtype(dtype).itemsize

    def predicted(vectors: int) -> dict[Way, float]:
        return predicted_seconds(rates, wanted, vectors, itemsize, layout, device)

    def is_fastest(vectors: int) -> bool:
        return fastest(predicted(vectors)) == "batchkron"

    seconds = predicted(count)
    _, b, c, d = wanted
    return Advice(
        wanted,
        count,
        np.dtype(dtype).name,
        layout,
        device,
        table.machine,
        **seconds,
        ratio=(b + c) / (b * c),
        interleaved_ratio=d * (b + c) / (b * c),
        use=fastest(seconds),
        from_batch=_holds_from(is_fastest),
    )


def checked_rates(
    dtype: DTypeLike, layout: Layout, device: str
) -> tuple[CostTable, Mapping[Way, Rates]]:
    """Return the table of a device, and its rates of products in a dtype and layout, by `Way`.

    Raises `TypeError` if no times of the dtype were measured. `ValueError` if the device is
    unknown.
    """
    if device not in _DEVICES:
        raise ValueError(f"device is {device!r}; expected 'cpu' or 'cuda'")
    table, name = costs_of(device), _name_of(dtype)
    rates = table.rates.get(f"{name} {layout}")
    if rates is None:
        raise TypeError(f"dtype is {name}; expected one of {', '.join(table.dtypes)} on {device}")
    return table, rates


def _name_of(dtype: DTypeLike) -> str:
    """Return the name of a dtype, which NumPy may not know, as it does not know bfloat16."""
    try:
        return np.dtype(dtype).name
    except TypeError:
        return str(dtype)


def fastest(seconds: Mapping[Way, float]) -> Way:
    """Return the way that takes the least time."""
    return min(WAYS, key=seconds.__getitem__)


def _holds_from(condition: Callable[[int], bool]) -> int | None:
    """Return the least number from which on a condition holds, None if it does not at the end.

    It is looked for among powers of two, then between two of them.
    """
    if not condition(1 << MAX_EXPONENT):
        return None
    tried = reversed(range(MAX_EXPONENT))
    last = next((1 << power for power in tried if not condition(1 << power)), None)
    if last is None:
        return 1
    first = 2 * last
    while first - last > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if condition(middle) else (first, middle)
    return first
