"""Identities among factors: ``python -m benchmarks.identity_factors [--device cuda]``."""

import math
import sys
from functools import partial, reduce

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh

import batchkron as bk
from benchmarks.core.checks import relative_error
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, save
from benchmarks.core.tables import words
from benchmarks.core.timing import seconds_of
from benchmarks.kronecker_chains import times_of

DTYPES = ("float32", "float64", "complex64", "complex128")
SIZES = (4, 8, 16, 32, 64)
TERMS, SITES_OF_TERM = 12, 3


def shapes_of(n, elements):
    """The sizes of the identities before and behind a factor n × n, by position."""
    count = elements // n
    half = math.isqrt(count)
    return {"A ⊗ I": (1, count), "I ⊗ A ⊗ I": (half, half), "I ⊗ A": (count, 1)}


def random(rng, shape, dtype):
    values = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def one_factor(position, n, dtype, elements, cuda, rng):
    before, behind = shapes_of(n, elements)[position]
    matrix = random(rng, (n, n), dtype)
    op = bk.KroneckerProduct(bk.Identity(before), matrix, bk.Identity(behind))
    x = random(rng, (before * n * behind,), dtype)
    module = np
    if cuda:
        import cupy

        module, op, x, matrix = cupy, op.to("cuda"), cupy.asarray(x), cupy.asarray(matrix)
    y, other = module.empty_like(x), module.empty_like(x)
    shape = (n, behind) if before == 1 else (before, n, behind)
    if behind == 1:
        right = module.ascontiguousarray(matrix.T)
        target = other.reshape(before, n)
        peer = partial(module.matmul, x.reshape(before, n), right, out=target)
    else:
        peer = partial(module.matmul, matrix, x.reshape(shape), out=other.reshape(shape))
    seconds = times_of({"ours": partial(op.apply, x, out=y), "matmul": peer}, cuda)
    wrong = not relative_error(y, other) <= 100 * n * float(np.finfo(dtype).eps)
    found = {"position": position, "n": n, "dtype": dtype, "elements": x.size, "seconds": seconds}
    return {**found, "ratio": seconds["ours"] / seconds["matmul"], "wrong": wrong}


def spin_chain(sites, rng):
    flip, sign = np.array([[0.0, 1.0], [1.0, 0.0]]), np.diag([1.0, -1.0])
    terms, matrix = [], sp.csr_array((2**sites, 2**sites))
    for term in range(TERMS):
        first = term % (sites - SITES_OF_TERM + 1)
        own = [(1 + rng.random()) * sign, flip, sign]
        factors = [np.eye(2)] * sites
        factors[first : first + SITES_OF_TERM] = own
        terms.append(bk.KroneckerProduct(factors))
        ends = 2**first, 2 ** (sites - first - SITES_OF_TERM)
        middle = sp.kron(sp.eye_array(ends[0]), reduce(np.kron, own))
        matrix = matrix + sp.kron(middle, sp.eye_array(ends[1]), "csr")
    return reduce(lambda a, b: a + b, terms), sp.csr_array(matrix)


def chain(sites, cuda, rng):
    op, matrix = spin_chain(sites, rng)
    found = {
        "terms": TERMS,
        "sites": sites,
        "bytes": {
            "ours": sum(factor.nbytes for term in op.terms for factor in term.factors),
            "CSR": matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes,
        },
    }
    x = rng.standard_normal(2**sites)
    solve = eigsh
    if cuda:
        import cupy
        import cupyx.scipy.sparse
        import cupyx.scipy.sparse.linalg

        op, x = op.to("cuda"), cupy.asarray(x)
        matrix = cupyx.scipy.sparse.csr_matrix(sp.csr_matrix(matrix))
        solve = cupyx.scipy.sparse.linalg.eigsh
    y = x.copy()
    calls = {"ours": partial(op.apply, x, out=y), "CSR": lambda: matrix @ x}
    found["seconds"] = times_of(calls, cuda)
    error, values, found["eigsh"] = float(abs(y - matrix @ x).max()), [], {}
    for name, operator in (("ours", op), ("CSR", matrix)):
        call = partial(solve, operator, k=1, which="SA", v0=x, return_eigenvectors=False)
        found["eigsh"][name] = seconds_of(lambda call=call: values.append(float(call()[0])))
    found["wrong"] = not (error <= 1e-12 and abs(values[0] - values[1]) <= 1e-8 * abs(values[1]))
    return found


def main(arguments=None):
    parser = parser_of(__doc__, "device", "json")
    parser.add_argument("--size", type=int, nargs="+", default=SIZES, metavar="N")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--elements", type=int, help="of a vector; 2^20, on a device 2^26")
    parser.add_argument("--sites", type=int, default=20, help="of the spin chain")
    options = parser.parse_args(arguments)
    cuda = options.device == "cuda"
    elements = options.elements or (1 << 26 if cuda else 1 << 20)
    rng = np.random.default_rng(1)
    cells = [
        one_factor(position, n, dtype, elements, cuda, rng)
        for dtype in options.dtype
        for n in options.size
        for position in shapes_of(n, elements)
    ]
    spins = chain(options.sites, cuda, rng)
    print(*map(words, (*cells, spins)), sep="\n")
    save(options.json, {"machine": machine(options.device), "cells": cells, "chain": spins})
    return int(any(one["wrong"] for one in (*cells, spins)))


if __name__ == "__main__":
    sys.exit(main())
