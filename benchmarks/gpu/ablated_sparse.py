"""Kronecker-sparse matrices in the ablation: cells, what their plans have, and their calls.

benchmarks/README.md says what `WAYS` are, which can be switched off beside families of kernels.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from batchkron.backends.cuda.kernel_family import is_enabled, without
from batchkron.backends.cuda.kron.fibres.passes import PRODUCTS
from batchkron.backends.cuda.kron_sparse.choose import fastest_way
from batchkron.backends.cuda.kron_sparse.kernel import SparseShape
from batchkron.backends.cuda.kron_sparse.library import LIBRARY, LibraryProduct
from batchkron.backends.cuda.kron_sparse.tiles.tile import KEPT_VALUES
from batchkron.backends.cuda.kron_sparse.transposed import TRANSPOSED, programs_of
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from benchmarks.gpu.cases import sparse_cases as cases
from benchmarks.gpu.options import Choice

PART = "kronecker-sparse"
PRECISION = "tf32x3"


# what `kernel_family.without` switches off for this benchmark alone
PREPARED = "kron_sparse.prepared_values"
UNITS = "kron_sparse.float32_units"
WAYS = LIBRARY, TRANSPOSED, KEPT_VALUES, PREPARED, UNITS


def choices(dtype: str | None) -> list[Choice]:
    small = (*cases.FIRST, *cases.SMALL, *cases.LARGE)
    chosen = [
        (one, cases.SparseCase(pattern, layout))
        for one in (*cases.SPARSE_DTYPES, PRECISION)
        for pattern in (cases.FIRST if one == PRECISION else small)
        for layout in cases.LAYOUTS
        if dtype in (None, one)
    ]
    return [Choice(PART, case.name, one, case) for one, case in chosen]


def shape_in(choice: Choice) -> SparseShape:
    if choice.dtype != PRECISION:
        return cases.shape_of(choice.case, choice.dtype)
    products = PRODUCTS[PRECISION] if is_enabled(UNITS) else 0
    return replace(cases.shape_of(choice.case, "float32"), products=products)


def used_ways(choice: Choice, device: DeviceLimits) -> set[str]:
    """Which of `WAYS` a cell's plan has."""
    way = fastest_way(shape_in(choice), device)
    found = {PREPARED}
    if isinstance(way, tuple):
        found.add(TRANSPOSED)
        products = [part.product for part in way]
    else:
        products = [way]
    for product in products:
        if isinstance(product, LibraryProduct):
            found.add(LIBRARY)
        elif getattr(product.variant, "kept", False):
            found.add(KEPT_VALUES)
    if choice.dtype == PRECISION:
        found.add(UNITS)
    return found


def programs(
    cells: Iterable[Choice], groups: Iterable[Sequence[str]], device: DeviceLimits
) -> list[Program]:
    """The kernels of the cells with all families, and without each group of them; each once."""
    known = list(cells)
    found: dict[Program, None] = {}
    for names in ((), *groups):
        with without(*names):
            for choice in known:
                try:
                    own = programs_of(fastest_way(shape_in(choice), device))
                except LookupError:
                    continue  # nobody else does it: reported where it is measured
                found |= dict.fromkeys(own)
    return list(found)


def subject(choice: Choice) -> tuple[Callable[[], list[Callable[[], object]]], Any]:
    import cupy

    import batchkron as bk
    from benchmarks.gpu.parts.kron_sparse import SparseData

    in_tf32 = choice.dtype == PRECISION
    data = SparseData(choice.case, "float32" if in_tf32 else choice.dtype)
    layout: Any = choice.case.layout

    def product() -> list[Callable[[], object]]:
        precision: Any = PRECISION if in_tf32 and is_enabled(UNITS) else None
        options = {"layout": layout, "precision": precision}
        if is_enabled(PREPARED):
            apply = bk.KroneckerSparse(data.values, **options).to("cuda").apply
        else:
            multiply = bk.kronecker_sparse_multiply
            apply = partial(multiply, cupy.asarray(data.values), **options)
        return [partial(apply, x, out=y) for x, y in data.pairs]

    return product, data.pairs[-1][1]
