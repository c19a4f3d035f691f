"""The baselines of Gonon et al. (2024) in torch, written down from their appendix D.1.

Each function takes torch, the values (a, b, c, d) and x of a layout, and returns a call without
arguments that returns the product. torch need not be installed.
"""

import math


def einsum(torch, values, x, layout):
    a, b, c, d = values.shape
    first = layout == "batch-first"
    formula = "nacd,abcd->nabd" if first else "acdn,abcd->abdn"
    blocks = x.view(-1, a, c, d) if first else x.view(a, c, d, -1)
    shape = (x.shape[0], a * b * d) if first else (a * b * d, x.shape[1])
    return lambda: torch.einsum(formula, blocks, values).reshape(*shape)


def permuted_input(values, x, layout):
    """Line 3 of algorithm 1: (batch, a d, c), or (a d, c, batch)."""
    a, _, c, d = values.shape
    if layout == "batch-first":
        return x.view(-1, a, c, d).transpose(-1, -2).reshape(-1, a * d, c).contiguous()
    return x.view(a, c, d, -1).transpose(1, 2).reshape(a * d, c, -1).contiguous()


def permuted_output(values, y, layout):
    """Line 1 of algorithm 1, of (batch, a d, b) or (a d, b, batch)."""
    a, b, _, d = values.shape
    if layout == "batch-first":
        return y.reshape(-1, a, d, b).transpose(-1, -2).reshape(-1, a * b * d)
    return y.reshape(a, d, b, -1).transpose(1, 2).reshape(a * b * d, -1)


def block_values(values):
    """The blocks of the block-diagonal matrix, (a d, b, c)."""
    a, b, c, d = values.shape
    return values.permute(0, 3, 1, 2).reshape(a * d, b, c).contiguous()


def _multiply(torch, blocks, x, layout):
    if layout == "batch-first":
        return torch.bmm(x.transpose(0, 1), blocks.transpose(-1, -2)).transpose(0, 1)
    return torch.bmm(blocks, x)


def bmm(torch, values, x, layout):
    blocks = block_values(values)

    def call():
        permuted = permuted_input(values, x, layout)
        return permuted_output(values, _multiply(torch, blocks, permuted, layout), layout)

    return call


def bmm_alone(torch, values, x, layout):
    """Line 2 of algorithm 1 alone, on permuted data; its result is permuted, too."""
    blocks, permuted = block_values(values), permuted_input(values, x, layout)
    return lambda: _multiply(torch, blocks, permuted, layout)


def block_sparse(torch, values):
    """The block-diagonal matrix as BSR, of square blocks of gcd(b, c)."""
    a, b, c, d = values.shape
    side, count = math.gcd(b, c), a * d
    down, across = b // side, c // side
    blocks = block_values(values).view(count, down, side, across, side).transpose(2, 3)
    index = {"dtype": torch.int32, "device": values.device}
    starts = torch.arange(count * down + 1, **index) * across
    columns = torch.arange(count, **index)[:, None, None] * across
    columns = columns + torch.arange(across, **index).view(1, 1, across)
    columns = columns.expand(count, down, across).reshape(-1)
    return torch.sparse_bsr_tensor(
        starts, columns, blocks.reshape(-1, side, side), size=(count * b, count * c)
    )


def bsr(torch, values, x, layout):
    """A block-sparse multiply between two permutations."""
    matrix = block_sparse(torch, values)
    a, b, c, d = values.shape

    def call():
        permuted = permuted_input(values, x, layout)
        if layout == "batch-first":
            y = torch.nn.functional.linear(permuted.reshape(-1, a * d * c), matrix)
            return permuted_output(values, y.reshape(-1, a * d, b), layout)
        y = torch.matmul(matrix, permuted.reshape(a * d * c, -1))
        return permuted_output(values, y.reshape(a * d, b, -1), layout)

    return call


def dense_matrix(torch, values):
    a, b, c, d = values.shape
    matrix = torch.zeros((a, b, d, a, c, d), dtype=values.dtype, device=values.device)
    i = torch.arange(a, device=values.device)[:, None]
    j = torch.arange(d, device=values.device)[None, :]
    matrix[i, :, j, i, :, j] = values.permute(0, 3, 1, 2)
    return matrix.view(a * b * d, a * c * d)


def _by_matrix(torch, matrix, x, layout):
    if layout == "batch-first":
        return lambda: torch.nn.functional.linear(x, matrix)
    return lambda: torch.matmul(matrix, x)


def dense(torch, values, x, layout):
    return _by_matrix(torch, dense_matrix(torch, values), x, layout)


def compressed_rows(torch, values):
    a, b, c, d = values.shape
    index = {"dtype": torch.int32, "device": values.device}
    starts = torch.arange(a * b * d + 1, **index) * c
    i = torch.arange(a, **index).view(a, 1, 1, 1)
    j = torch.arange(d, **index).view(1, 1, d, 1)
    columns = i * (c * d) + j + torch.arange(c, **index).view(1, 1, 1, c) * d
    columns = columns.expand(a, b, d, c).reshape(-1)
    entries = values.permute(0, 1, 3, 2).reshape(-1)
    return torch.sparse_csr_tensor(starts, columns, entries, size=(a * b * d, a * c * d))


def sparse(torch, values, x, layout):
    return _by_matrix(torch, compressed_rows(torch, values), x, layout)


MAKERS = {
    "bmm": bmm,
    "einsum": einsum,
    "bsr": bsr,
    "dense": dense,
    "sparse": sparse,
    "bmm, multiply alone": bmm_alone,
}
