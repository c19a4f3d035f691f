"""Calls of the operators and of their algebra."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from inputs import DTYPES, Call, Inputs, title

import batchkron as bk
from batchkron import kronecker_sparse
from batchkron.operators import KroneckerTerms
from batchkron.operators.block_operator import BlockOperator
from batchkron.problems import SparseGrid

_SUMS: dict[str, list[int]] = {
    "one": [5],
    "two": [8, 8],
    "two of 60": [60, 50],
    "primes": [3, 7, 5],
    "three of 16": [16, 16, 16],
    "four": [2, 3, 4, 5],
    "six": [2, 2, 3, 2, 2, 3],
    "eight": [2] * 8,
    "with ones": [1, 4, 1],
}


def calls() -> Iterator[Call]:
    """Yield the calls of operators."""
    for dtype in DTYPES:
        yield from _calls_of(dtype)
    yield Call("BatchedKron atomic", _atomic, anywhere=False)
    yield Call("operators validated", _validated, anywhere=False)
    yield Call("operators mixed dtypes", _mixed_dtypes)


def _calls_of(dtype: str) -> Iterator[Call]:
    for make in (
        _product,
        _rectangular_product,
        _sum,
        _batch,
        _grid_operator,
        _diagonal,
        _composed,
    ):
        name = title(make)
        yield Call(f"products {name} {dtype}", partial(_products, make, dtype))
        yield Call(f"relatives {name} {dtype}", partial(_relatives, make, dtype))
        yield Call(f"entries {name} {dtype}", partial(_entries, make, dtype))
    for name in _SUMS:
        yield Call(f"KroneckerSum {name} {dtype}", partial(_sum_of, name, dtype))
    for here in (_many_sums, _many_products, _batch_systems, _shifted_solves, _propagator):
        yield Call(f"operators {title(here)} {dtype}", partial(here, dtype))
    for here in (_updates, _algebra, _batch_shapes, _grid_shapes, _on_grid, _from_products):
        yield Call(f"operators {title(here)} {dtype}", partial(here, dtype))
    for here in (_solve_product, _solve_sum, _solve_many, _eigenpairs, _exponentials, _terms):
        yield Call(f"direct {title(here)} {dtype}", partial(here, dtype), anywhere=False)
    for here in (_kronecker_sparse, _sparse_chains):  # no kernels for devices
        yield Call(f"operators {title(here)} {dtype}", partial(here, dtype), anywhere=False)


def _scalar(dtype: str) -> complex:
    return 0.3 - 0.7j if dtype.startswith("c") else 0.3


# operators of which there is one in each dtype


def _product(given: Inputs, dtype: str) -> Any:
    return given.place(bk.KroneckerProduct([given.host(n, n, dtype=dtype) for n in (4, 3, 5)]))


def _rectangular_product(given: Inputs, dtype: str) -> Any:
    shapes = [(4, 2), (3, 6), (1, 5)]
    return given.place(bk.KroneckerProduct([given.host(*shape, dtype=dtype) for shape in shapes]))


def _sum(given: Inputs, dtype: str) -> Any:
    return given.place(bk.KroneckerSum([given.host(n, n, dtype=dtype) for n in (4, 3, 5)]))


def _batch(given: Inputs, dtype: str) -> Any:
    pool = given.host(9, 3, 3, dtype=dtype)
    pool[2] = np.eye(3)
    ids, blocks = given.integers(9, 300, 3), given.integers(20, 2, 300)
    weights = given.host(300, dtype=dtype)
    sizes = {"num_inputs": 20, "num_outputs": 20}
    return given.place(bk.BatchedKron(pool, ids, *blocks, weights=weights, **sizes))


def _mode_operator(given: Inputs, cells: int, n: int, dtype: str, share: float = 0.6) -> Any:
    """Return random blocks of a 1-D operator that join some pairs of cells."""
    joined = given.host(cells, cells) > 0.5 - share
    np.fill_diagonal(joined, True)
    rows, columns = np.nonzero(joined)
    return SimpleNamespace(
        cells=cells,
        n=n,
        rows=rows,
        columns=columns,
        blocks=given.host(len(rows), n, n, dtype=dtype),
    )


def _grid_operator(given: Inputs, dtype: str) -> Any:
    first, second = (_mode_operator(given, 8, 2, dtype) for _ in range(2))
    terms = [(first, second), (None, first), (second, None), (first, first)]
    made = bk.SparseGridOperator(
        SparseGrid.sparse([3, 3]), terms, 2, coefficients=given.host(4, dtype=dtype)
    )
    return given.place(made)


def _diagonal(given: Inputs, dtype: str) -> Any:
    return given.place(bk.Diagonal(given.host(60, dtype=dtype)))


def _composed(given: Inputs, dtype: str) -> Any:
    product, total, diagonal = (make(given, dtype) for make in (_product, _sum, _diagonal))
    return _scalar(dtype) * product @ diagonal @ total - total / 3 + diagonal**2


_Make = Callable[[Inputs, str], Any]


def _vectors(given: Inputs, operator: Any, rows: bool, *leading: int, dtype: str) -> Any:
    """Return vectors for `apply`, as blocks where the operator takes these."""
    size = operator.shape[0 if rows else 1]
    array = given.array(*leading, size, dtype=dtype)
    if isinstance(operator, BlockOperator):
        blocks = operator.num_outputs if rows and hasattr(operator, "num_outputs") else None
        count = operator.num_inputs if blocks is None else blocks
        array = array.reshape(*leading, count, size // count)
    return array


def _products(make: _Make, dtype: str, given: Inputs) -> Any:
    """Multiply vectors: one, several, strided, added, into given arrays."""
    operator, alpha = make(given, dtype), _scalar(dtype)
    rows, columns = operator.shape
    results = [operator.apply(_vectors(given, operator, False, *n, dtype=dtype)) for n in _LEADING]
    for leading in _LEADING:
        x = _vectors(given, operator, False, *leading, dtype=dtype)
        y = _vectors(given, operator, True, *leading, dtype=dtype)
        results.append(operator.accumulate(x, y.copy()))
        results.append(operator.accumulate(x, y.copy(), alpha=alpha))
        results.append(operator.apply(x, out=y))
    x, many = given.array(columns, dtype=dtype), given.array(columns, 7, dtype=dtype)
    results.append(operator.matvec(x, out=given.array(rows, dtype=dtype)))
    results += [
        operator @ x,
        operator.matvec(x[:, None]),
        operator.matmat(many),
        operator @ many[:, ::2],
    ]
    flat = given.array(3, columns, dtype=dtype)
    results.append(operator.apply_flat(flat, given.array(3, rows, dtype=dtype)))
    results.append(operator.apply_flat(x, given.array(rows, dtype=dtype)))
    return results


_LEADING: tuple[tuple[int, ...], ...] = ((), (1,), (6,), (2, 3), (0,))


def _relatives(make: _Make, dtype: str, given: Inputs) -> Any:
    """Apply the transpose, adjoint, negative, multiples, other dtypes, copies."""
    operator, scalar = make(given, dtype), _scalar(dtype)
    wide = operator.astype("complex128")
    x, y = (
        given.array(operator.shape[1], dtype=dtype),
        given.array(operator.shape[0], 3, dtype=dtype),
    )
    relatives = [
        -operator,
        scalar * operator,
        operator / 7,
        operator + operator,
        copy.copy(operator),
    ]
    relatives += [pickle.loads(pickle.dumps(operator)), wide, operator.T.T, operator.H.H]
    results = [relative @ x for relative in relatives]
    results.append(operator.T.H @ x)
    results += [adjoint @ y for adjoint in (operator.T, operator.H, (scalar * operator).H, wide.H)]
    results += [operator.rmatvec(y[:, 0].copy()), operator.rmatmat(y)]
    return results


def _entries(make: _Make, dtype: str, given: Inputs) -> Any:
    """Return the matrix, its diagonal, its trace."""
    operator = make(given, dtype)
    square = operator.shape[0] == operator.shape[1]
    return operator.to_dense(), operator.diagonal(), operator.trace() if square else None


# what single kinds of operators have


def _sum_of(name: str, dtype: str, given: Inputs) -> Any:
    sizes = _SUMS[name]
    operator = given.place(bk.KroneckerSum([given.host(n, n, dtype=dtype) for n in sizes]))
    size = math.prod(sizes)
    x, y = given.array(5, size, dtype=dtype), given.array(5, size, dtype=dtype)
    many = operator.matmat(given.array(size, 3, dtype=dtype))
    return operator.apply(x[0]), operator.apply(x), operator.accumulate(x, y, alpha=-2), many


def _many_sums(dtype: str, given: Inputs) -> Any:
    """Take Kronecker sums of many systems."""
    results = []
    for shapes in ([(7, 4, 4), (7, 3, 3)], [(5, 8, 8), (8, 8)], [(2, 1, 3, 3), (3, 2, 2), (4, 4)]):
        operator = given.place(bk.KroneckerSum([given.host(*s, dtype=dtype) for s in shapes]))
        x = given.array(*operator.batch_shape, operator.shape[1], dtype=dtype)
        results += [
            operator.apply(x),
            operator.T.apply(x),
            operator.H.apply(x),
            operator.diagonal(),
        ]
        results.append(operator.accumulate(x, x.copy(), alpha=0.5))
    return results


def _many_products(dtype: str, given: Inputs) -> Any:
    """Take Kronecker products of many systems."""
    shapes = [(4, 1, 3, 2), (5, 4, 4), (2, 3)]
    operator = given.place(bk.KroneckerProduct([given.host(*s, dtype=dtype) for s in shapes]))
    x, y = given.array(4, 5, 24, dtype=dtype), given.array(2, 4, 5, 24, dtype=dtype)
    return operator.apply(x), operator.apply(y), operator.T.apply(operator.apply(x))


def _batch_systems(dtype: str, given: Inputs) -> Any:
    """Take batch lists of many systems."""
    pools = [given.host(3, 4, 2, 3, dtype=dtype), given.host(3, 5, 4, 2, dtype=dtype)]
    ids = np.stack([given.integers(4, 25), given.integers(5, 25)], axis=1)
    weights = given.host(3, 25, dtype=dtype)
    made = bk.BatchedKron(pools, ids, given.integers(6, 25), given.integers(7, 25), weights=weights)
    operator = given.place(made)
    x = given.array(3, operator.num_inputs, 6, dtype=dtype)
    result = operator.apply(x)
    return result, operator.T.apply(result), operator.accumulate(x, result.copy(), alpha=2)


def _batch_shapes(dtype: str, given: Inputs) -> Any:
    """Take batch lists of many block shapes, with few products and with many."""
    results = []
    for shapes, count in [
        ([(1, 1)], 20),
        ([(4, 4)], 200),
        ([(9, 9)], 40),
        ([(2, 2), (2, 2)], 500),
        ([(3, 5), (4, 2)], 100),
        ([(8, 8), (8, 8)], 60),
        ([(3, 3)] * 3, 2000),
        ([(4, 4)] * 3, 100),
        ([(2, 3), (3, 2), (1, 4)], 70),
        ([(2, 2)] * 6, 50),
        ([(40, 40), (30, 30)], 6),
    ]:
        pools = [given.host(6, *shape, dtype=dtype) for shape in shapes]
        ids, blocks = given.integers(6, count, len(shapes)), given.integers(12, 2, count)
        sizes = {"num_inputs": 12, "num_outputs": 12}
        operator = given.place(bk.BatchedKron(pools, ids, *blocks, accumulation="owner", **sizes))
        x = given.array(12, operator.shape[1] // 12, dtype=dtype)
        results += [
            operator.apply(x),
            operator.matmat(given.array(operator.shape[1], 3, dtype=dtype)),
        ]
    return results


def _from_products(dtype: str, given: Inputs) -> Any:
    products = [[given.host(2, 2, dtype=dtype), given.host(3, 1, dtype=dtype)] for _ in range(5)]
    made = bk.BatchedKron.from_products(products, [0, 1, 0, 2, 1], [0, 0, 1, 1, 1])
    return given.place(made).apply(given.array(3, 2, dtype=dtype))


def _kronecker_sparse(dtype: str, given: Inputs) -> Any:
    """Take Kronecker-sparse matrices of patterns that all kernels are used for."""
    results = []
    patterns = [(3, 20, 30, 1), (1, 7, 300, 16), (2, 9, 5, 12), (1, 5, 4, 37), (40, 2, 3, 1)]
    for a, b, c, d in patterns:
        values = given.host(a, b, c, d, dtype=dtype)
        operator = bk.KroneckerSparse(values)
        for count in (1, 5, 50):
            x = given.host(count, operator.shape[1], dtype=dtype)
            y = given.host(operator.shape[0], count, dtype=dtype)
            results += [operator.apply(x), operator @ x.T.copy(), operator.H @ y]
            results.append(operator.accumulate(x, operator.apply(x), alpha=_scalar(dtype)))
            results.append(bk.kronecker_sparse_multiply(values, x))
        results += [operator.to_dense(), operator.diagonal()]
    return results


def _sparse_chains(dtype: str, given: Inputs) -> Any:
    """Take a chain and its transpose."""
    patterns = kronecker_sparse.square_dyadic(32)
    chain = bk.KroneckerSparseChain([given.host(*p, dtype=dtype) for p in patterns])
    x = given.host(5, 32, dtype=dtype)
    turned = given.host(32, 3, dtype=dtype)
    return chain.apply(x), chain.T.apply(x), chain @ turned, chain.to_dense()


def _atomic(given: Inputs) -> Any:
    """Add products in the order of the list, by one thread."""
    threads = bk.get_num_threads()
    bk.set_num_threads(1)
    try:
        pool, ids = given.host(9, 3, 3), given.integers(9, 300, 3)
        blocks = given.integers(20, 2, 300)
        operator = bk.BatchedKron(pool, ids, *blocks, accumulation="atomic", num_inputs=20)
        return operator.apply(given.host(20, 27))
    finally:
        bk.set_num_threads(threads)


def _validated(given: Inputs) -> Any:
    """Return what comparing with dense products finds."""
    reports = [
        make(given, dtype).validate() for make in (_batch, _grid_operator) for dtype in DTYPES
    ]
    return [[r.samples, r.products, r.max_error, r.max_error_over_bound, r.worst] for r in reports]


def _grid_shapes(dtype: str, given: Inputs) -> Any:
    """Take sparse, full and incomplete grids in one to five dimensions."""
    results: list[Any] = []
    for levels, n, kind in [
        ([5], 3, "sparse"),
        ([3, 2], 1, "full"),
        ([4, 4], 3, "sparse"),
        ([2, 2, 3], 2, "sparse"),
        ([2, 1, 2, 1], 2, "full"),
        ([1, 2, 1, 1, 1], 2, "sparse"),
        ([3, 3], 2, "gaps"),
    ]:
        grid = SparseGrid.full(levels) if kind != "sparse" else SparseGrid.sparse(levels)
        cells = grid.cells[:: 3 if kind == "gaps" else 1]
        modes = [_mode_operator(given, 1 << level, n, dtype) for level in levels]
        terms = [tuple(modes), *_single_terms(modes)]
        operator = given.place(bk.SparseGridOperator(cells, terms, n))
        x = given.array(2, len(cells), n ** len(levels), dtype=dtype)
        results += [
            operator.apply(x),
            operator.T.apply(x[0]),
            operator.accumulate(x[1], x[0].copy()),
        ]
        results += [operator.num_sweeps, operator.multiply_adds, operator.num_added_cells]
    return results


def _single_terms(modes: list[Any]) -> list[tuple[Any, ...]]:
    """Return the terms of the Kronecker sum of 1-D operators."""
    return [tuple(m if k == j else None for k, m in enumerate(modes)) for j in range(len(modes))]


def _on_grid(dtype: str, given: Inputs) -> Any:
    """Move the terms of an operator to finer and coarser grids."""
    modes = [_mode_operator(given, 16, 2, dtype, share=0.2) for _ in range(2)]
    grids = [SparseGrid.sparse([3, 3]), SparseGrid.sparse([4, 4]), SparseGrid.full([2, 3])]
    operator = given.place(bk.SparseGridOperator(grids[0], [tuple(modes), (modes[0], None)], 2))
    results = []
    for grid in grids:
        operator = operator.on_grid(grid)
        x = given.array(grid.num_cells, 4, dtype=dtype)
        results += [operator.apply(x), operator.num_profiles, operator.num_new_profiles]
    return results


def _updates(dtype: str, given: Inputs) -> Any:
    """Put new values into operators and into what is made of them."""
    product, total, batch, grid = (
        make(given, dtype) for make in (_product, _sum, _batch, _grid_operator)
    )
    made = [
        o
        for operator in (product, total, batch, grid)
        for o in (operator, operator.T, 2 * operator.H)
    ]
    for operator in (product, total):
        operator.update([given.host(n, n, dtype=dtype) for n in (4, 3, 5)])
    pool = given.host(9, 3, 3, dtype=dtype)
    pool[2] = np.eye(3)
    batch.update(pool, given.host(300, dtype=dtype))
    results = [operator @ given.array(operator.shape[1], dtype=dtype) for operator in made]
    grid.update(coefficients=given.host(4, dtype=dtype))
    return [
        *results,
        *(operator @ given.array(operator.shape[1], dtype=dtype) for operator in made[9:]),
    ]


def _algebra(dtype: str, given: Inputs) -> Any:
    """Apply sums, multiples, products and powers of operators."""
    product, total, diagonal = (make(given, dtype) for make in (_product, _sum, _diagonal))
    one, alpha = given.place(bk.Identity(60, dtype)), _scalar(dtype)
    made = [
        one + product,
        one - alpha * total,
        total + product + diagonal,
        product @ total,
        (product + total) @ (diagonal - one),
        product @ total @ diagonal @ product,
        (one - 0.25 * total) ** 3,
        total**1,
        total**0,
        alpha * (2 * (product @ one)),
        (product @ total).T,
        (alpha * product @ total + one).H,
        sum([total, product], start=0.5 * one),
        one,
        one * alpha,
    ]
    x, many, y = (
        given.array(60, dtype=dtype),
        given.array(5, 60, dtype=dtype),
        given.array(5, 60, dtype=dtype),
    )
    results = []
    for operator in made:
        results += [
            operator @ x,
            operator.apply(many),
            operator.accumulate(many, y.copy(), alpha=alpha),
        ]
    return results


def _mixed_dtypes(given: Inputs) -> Any:
    """Apply operators of each dtype to vectors of each other one, and sums of several dtypes."""
    results = []
    for make in (_product, _sum, _batch, _grid_operator, _diagonal, _composed):
        for left in DTYPES:
            operator = make(given, left)
            for right in (*DTYPES, "float16", "int64"):
                results.append(operator @ given.array(operator.shape[1], dtype=right))
    mixed = _product(given, "float32") @ _sum(given, "complex64") + _diagonal(given, "float64")
    return [*results, mixed @ given.array(60, 2, dtype="float32")]


def _shifted_solves(dtype: str, given: Inputs) -> Any:
    """Solve with a Hermitian Kronecker sum, factorised once, with shifts."""
    operator = given.place(bk.KroneckerSum([given.definite(n, dtype) for n in (4, 7, 5)]))
    solver = operator.factorise()
    b, many = given.array(140, dtype=dtype), given.array(140, 3, dtype=dtype)
    results = [solver.solve(b), solver.solve(many, 0.5), solver.solve_shifted(b, [0.0, 1.0, 7.5])]
    return [*results, solver.solve_shifted(many, [0.5j, 2.0])]


def _propagator(dtype: str, given: Inputs) -> Any:
    """Apply the exponential and phi functions of a Kronecker sum."""
    results = []
    for scale in (0.01, 1.0):
        factors = [-scale * given.definite(n, dtype) for n in (4, 3, 5)]
        operator = given.place(bk.KroneckerSum(factors))
        vectors = [given.array(60, dtype=dtype) for _ in range(3)]
        results.append(operator.phi_apply(vectors, 0.7))
        results.append(operator.phi_apply([None, vectors[0]], 0.1))
    general = given.place(bk.KroneckerSum([-given.regular(n, dtype) for n in (4, 5)]))
    return [*results, general.phi_apply([given.array(20, dtype=dtype) for _ in range(2)], 0.3)]


def _solve_product(dtype: str, given: Inputs) -> Any:
    operator = bk.KroneckerProduct([given.regular(n, dtype) for n in (4, 3, 5)])
    b = given.host(60, 2, dtype=dtype)
    inverse = operator.inverse() @ b
    return operator.solve(b), operator.solve(b[:, 0]), inverse, operator.logdet()


def _solve_sum(dtype: str, given: Inputs) -> Any:
    """Solve by eigenvectors of Hermitian factors, by Schur forms of others, with shifts."""
    results = []
    for make in (given.definite, given.regular):
        operator = bk.KroneckerSum([make(n, dtype) for n in (4, 3, 5)])
        b = given.host(60, 2, dtype=dtype)
        solver = operator.factorise()
        results += [operator.solve(b), operator.solve(b[:, 0]), operator.logdet()]
        results += [solver.solve(b, 0.5), solver.solve_shifted(b, [1.0, 1.0j])]
    return results


def _solve_many(dtype: str, given: Inputs) -> Any:
    """Take Kronecker sums of many systems."""
    results = []
    for make in (given.definite, given.regular):
        first = np.stack([make(4, dtype) for _ in range(3)])
        operator = bk.KroneckerSum([first, make(5, dtype)])
        b, solver = given.host(3, 20, dtype=dtype), operator.factorise()
        results += [operator.solve(b), solver.solve(b, 0.5), solver.solve_shifted(b, [1.0, 2.0])]
        results += [operator.expm_apply(b, -0.1), operator.logdet()]
    return results


def _eigenpairs(dtype: str, given: Inputs) -> Any:
    results: list[Any] = []
    for kind in (bk.KroneckerProduct, bk.KroneckerSum):
        hermitian = kind([given.definite(n, dtype) for n in (4, 3, 5)])
        general = kind([given.regular(n, dtype) for n in (4, 3)])
        for values, vectors in (hermitian.eigh(), general.eig()):
            results += [values, *vectors.factors]
    left, values, right = _rectangular_product(given, dtype).svd()
    return [*results, *left.factors, values, *right.factors]


def _exponentials(dtype: str, given: Inputs) -> Any:
    factors = [given.definite(n, dtype) for n in (3, 4)]
    b = given.host(12, 2, dtype=dtype)
    results = [bk.KroneckerProduct(factors).expm_apply(b, t) for t in (-0.1, 0.2j)]
    general = bk.KroneckerSum([given.regular(n, dtype) for n in (3, 4)])
    return [*results, *(general.expm_apply(b, t) for t in (-0.1, 0.2j))]


def _terms(dtype: str, given: Inputs) -> Any:
    """Return the Kronecker terms that preconditioners are made from."""
    product, total, grid = (make(given, dtype) for make in (_product, _sum, _grid_operator))
    made = [product, total, grid, -0.5 * total + bk.Identity(60, dtype), product + total]
    return [_content(operator.kronecker_terms()) for operator in made]


def _content(terms: KroneckerTerms) -> Any:
    """Return sizes, cells, coefficients and matrices of terms."""
    factors = [
        [None if f is None else f if isinstance(f, np.ndarray) else f.blocks for f in term.factors]
        for term in terms.terms
    ]
    return terms.sizes, terms.cells, [term.coefficient for term in terms.terms], factors
