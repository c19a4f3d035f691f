"""What torch offers for a Kronecker-sparse matrix, on the memory of CuPy's arrays.

Each function takes values (a, b, c, d) and pairs of x and y as tensors, and returns the calls of
each of its variants. float32 is multiplied in full precision (`torch_chain.missing` says so to
torch).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.gpu.peers import torch_chain

Tensor = Any
Call = Callable[[], object]
Pairs = Sequence[tuple[Tensor, Tensor]]


def blocks_of(values: Tensor) -> Tensor:
    """The dense matrices, (a d, b, c)."""
    a, b, c, d = values.shape
    return values.permute(0, 3, 1, 2).reshape(a * d, b, c).contiguous()


def bmm(values: Tensor, pairs: Pairs, first: bool) -> dict[str, list[Call]]:
    """Copies of x and of y around a batched multiply; and with views in the place of copies."""
    torch = torch_chain.torch
    a, b, c, d = values.shape
    matrices = blocks_of(values)
    turned = matrices.transpose(1, 2).contiguous()
    x, y = pairs[0]
    given, product = torch.empty_like(x).view(-1), torch.empty_like(y).view(-1)

    def bound(x: Tensor, y: Tensor, copies: bool) -> Call:
        if first:
            source = x.view(-1, a, c, d).permute(1, 3, 0, 2)  # (a, d, n, c)
            target = y.view(-1, a, b, d).permute(1, 3, 0, 2)
            left, right = None, turned
        else:
            source = x.view(a, c, d, -1).permute(0, 2, 1, 3)  # (a, d, c, n)
            target = y.view(a, b, d, -1).permute(0, 2, 1, 3)
            left, right = matrices, None
        held = given.view(source.shape)
        result = product.view(a * d, *target.shape[2:])

        def run() -> None:
            if copies:
                held.copy_(source)
            vectors = (held if copies else source).reshape(a * d, *source.shape[2:])
            if left is None:
                torch.bmm(vectors, right, out=result)
            else:
                torch.bmm(left, vectors, out=result)
            target.copy_(result.view(target.shape))

        return run

    found = {"copies": [bound(x, y, True) for x, y in pairs]}
    if d == 1:  # rows of x and y then have strides that cuBLAS takes
        found["views"] = [bound(x, y, False) for x, y in pairs]
        if not first:
            found["in place"] = [
                lambda x=x, y=y: torch.bmm(matrices, x.view(a, c, -1), out=y.view(a, b, -1))
                for x, y in pairs
            ]
    return found


def einsum(values: Tensor, pairs: Pairs, first: bool) -> dict[str, list[Call]]:
    """The one line that defines the product."""
    torch = torch_chain.torch
    a, b, c, d = values.shape

    def bound(x: Tensor, y: Tensor) -> Call:
        if first:
            blocks, target = x.view(-1, a, c, d), y.view(-1, a, b, d)
            return lambda: target.copy_(torch.einsum("nacd,abcd->nabd", blocks, values))
        blocks, target = x.view(a, c, d, -1), y.view(a, b, d, -1)
        return lambda: target.copy_(torch.einsum("acdn,abcd->abdn", blocks, values))

    return {"": [bound(x, y) for x, y in pairs]}


def dense_matrix(values: Tensor) -> Tensor:
    """The whole matrix, (a b d, a c d)."""
    torch = torch_chain.torch
    a, b, c, d = values.shape
    matrix = torch.zeros(a, b, d, a, c, d, dtype=values.dtype, device=values.device)
    i = torch.arange(a, device=values.device)[:, None]
    j = torch.arange(d, device=values.device)[None, :]
    matrix[i, :, j, i, :, j] = values.permute(0, 3, 1, 2)
    return matrix.view(a * b * d, a * c * d)


def dense(values: Tensor, pairs: Pairs, first: bool) -> dict[str, list[Call]]:
    """A multiply by the whole matrix."""
    torch = torch_chain.torch
    matrix = dense_matrix(values)
    if first:
        return {"": [lambda x=x, y=y: torch.mm(x, matrix.t(), out=y) for x, y in pairs]}
    return {"": [lambda x=x, y=y: torch.mm(matrix, x, out=y) for x, y in pairs]}


def csr_matrix(values: Tensor) -> Tensor:
    """The matrix in CSR: row (i, k, j) has its c entries in the columns (i, l, j)."""
    torch = torch_chain.torch
    a, b, c, d = values.shape
    rows, device = a * b * d, values.device
    i = torch.arange(a, device=device)[:, None, None, None]
    entry = torch.arange(c, device=device)[None, None, None, :]
    j = torch.arange(d, device=device)[None, None, :, None]
    columns = ((i * c + entry) * d + j).expand(a, b, d, c).reshape(-1)
    starts = torch.arange(rows + 1, device=device) * c
    entries = values.permute(0, 1, 3, 2).reshape(-1)
    return torch.sparse_csr_tensor(starts, columns, entries, (rows, a * c * d))


def csr(values: Tensor, pairs: Pairs, first: bool) -> dict[str, list[Call]]:
    """A multiply by the matrix in CSR."""
    return {"": _by_sparse(csr_matrix(values), pairs, first)}


def bsr(values: Tensor, pairs: Pairs, first: bool) -> dict[str, list[Call]]:
    """Copies of x and of y around a multiply by the block-diagonal matrix, in square blocks."""
    torch = torch_chain.torch
    a, b, c, d = values.shape
    size = math.gcd(b, c)
    matrices = blocks_of(values).view(a * d, b // size, size, c // size, size)
    entries = matrices.transpose(2, 3).reshape(-1, size, size)
    down, across, device = b // size, c // size, values.device
    starts = torch.arange(a * d * down + 1, device=device) * across
    block = torch.arange(a * d, device=device)[:, None, None]
    columns = (block * across + torch.arange(across, device=device)).expand(-1, down, -1)
    matrix = torch.sparse_bsr_tensor(starts, columns.reshape(-1), entries, (a * b * d, a * c * d))
    if d == 1:
        return {"": _by_sparse(matrix, pairs, first)}
    x, y = pairs[0]
    given, product = torch.empty_like(x), torch.empty_like(y)
    (multiply,) = _by_sparse(matrix, [(given, product)], first)

    def bound(x: Tensor, y: Tensor) -> Call:
        if first:
            source, target = x.view(-1, a, c, d).mT, y.view(-1, a, b, d)
            held, result = given.view(source.shape), product.view(-1, a, d, b).mT
        else:
            source, target = x.view(a, c, d, -1).transpose(1, 2), y.view(a, b, d, -1)
            held, result = given.view(source.shape), product.view(a, d, b, -1).transpose(1, 2)

        def run() -> None:
            held.copy_(source)
            multiply()
            target.copy_(result)

        return run

    return {"": [bound(x, y) for x, y in pairs]}


def _by_sparse(matrix: Tensor, pairs: Pairs, first: bool) -> list[Call]:
    torch = torch_chain.torch
    if first:
        linear = torch.nn.functional.linear
        return [lambda x=x, y=y: y.copy_(linear(x, matrix)) for x, y in pairs]
    return [lambda x=x, y=y: y.copy_(matrix @ x) for x, y in pairs]


PEERS = {"bmm": bmm, "einsum": einsum, "dense": dense, "CSR": csr, "BSR": bsr}
