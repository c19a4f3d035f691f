"""What NumPy, SciPy and opt_einsum offer: chains of multiplies, a contraction, stored products."""

import math
from functools import partial, reduce
from importlib import import_module

import numpy as np
import scipy
import scipy.sparse

from benchmarks.core.records import version_of
from benchmarks.core.timing import Contender
from benchmarks.cpu.contenders import Peer

BOUND = "NumPy, bound"
MAX_BLOCK_SIZE = 16  # elements of a vector's block, the side of a stored product


class NumPy(Peer):
    """Chains of `numpy.matmul`.

    The bound chains are a peer of their own: the views that they multiply are made outside of the
    time. A function of x cannot do that, and it saves half of a tiny call.
    """

    name = "NumPy"

    def version(self):
        return np.__version__

    def kron_matmul(self, data):
        """The rotating chain; and chains whose views and buffers are bound to x and ``out``."""
        rotating = [partial(rotate, data.factors[::-1], x) for x in data.inputs]
        yield Contender(self.name, "rotating", rotating, returns=True)
        pairs = list(zip(data.inputs, data.outputs, strict=True))
        for variant, steps in (("rotating", rotating_steps), ("mode by mode", mode_steps)):
            calls = [partial(run, steps(data, x, out)) for x, out in pairs]
            yield Contender(BOUND, variant, calls)

    def batch(self, data):
        """Gather, one batched multiply for each mode, sum over the contributions."""
        if data.shape.only is not None:
            return
        matrices = [pool[ids] for pool, ids in zip(data.pools, data.ids.T, strict=True)]
        pairs = list(zip(data.inputs, data.outputs, strict=True))
        ways = {  # (B, n, n) times (B, L, n, R)
            "batched matmul": lambda a, z: np.matmul(a[:, None], z),
            "batched einsum": partial(np.einsum, "bkc,blcr->blkr"),
        }
        for variant, multiply in ways.items():
            calls = [partial(gathered, data, matrices, multiply, x, out) for x, out in pairs]
            yield Contender(self.name, variant, calls)


def rotate(reversed_factors, x):
    """Multiply the last mode and bring it to the front, once for each factor."""
    z = x
    for factor in reversed_factors:
        z = np.matmul(factor.T, z.reshape(-1, len(factor)).T)
    # the rows of x come last now, which makes no difference for one row
    return z if len(x) == 1 else np.ascontiguousarray(z.reshape(-1, len(x)).T)


def run(steps):
    for step in steps:
        step()


def rotating_steps(data, x, out):
    rows, steps, z = len(x), [], x.reshape(-1)
    for count, factor in enumerate(reversed(data.factors)):
        p, q = factor.shape
        size = z.size // p * q
        straight = count == len(data.factors) - 1 and rows == 1
        target = out.reshape(-1) if straight else data.scratch[count % 2][:size]
        into = target.reshape(q, size // q)
        steps.append(partial(np.matmul, factor.T, z.reshape(-1, p).T, out=into))
        z = target
    if rows > 1:
        steps.append(partial(np.copyto, out, z.reshape(-1, rows).T))
    return steps


def mode_steps(data, x, out):
    """Multiplies (L, P, R) to (L, Q, R) in the order of least work, on the data's buffers."""
    sizes, steps, z = [p for p, _ in data.shape.factors], [], x.reshape(-1)
    order = data.shape.cheapest_order
    for count, mode in enumerate(order):
        factor = data.factors[mode]
        before, after = len(x) * math.prod(sizes[:mode]), math.prod(sizes[mode + 1 :])
        sizes[mode] = factor.shape[1]
        size = before * factor.shape[1] * after
        target = out.reshape(-1) if count == len(order) - 1 else data.scratch[count % 2][:size]
        shape = (before, -1) if after == 1 else (before, -1, after)
        source, result = z.reshape(shape), target.reshape(shape)
        operands = (source, factor) if after == 1 else (factor.T, source)
        steps.append(partial(np.matmul, *operands, out=result))
        z = target
    return steps


def gathered(data, matrices, multiply, x, out):
    """Compute all products, then add those of one output, which stand side by side."""
    products, n = data.shape.products, data.shape.size
    z = x[data.sources]
    for mode, chosen in enumerate(matrices):
        z = multiply(chosen, z.reshape(products, n**mode, n, -1))
    z.reshape(data.shape.blocks, data.shape.contributions, -1).sum(axis=1, out=out)


class NumPyKron(Peer):
    """`numpy.kron`, and the same as one broadcast multiply into memory that is there already."""

    name = "numpy.kron"

    def version(self):
        return np.__version__

    def explicit(self, data):
        # as many calls as others have outputs to rotate through, though this one allocates its own
        calls = [partial(reduce, np.kron, data.factors) for _ in data.outputs]
        yield Contender(self.name, "function", calls, returns=True)
        if len(data.factors) == 2:
            a, b = data.factors
            writes = [partial(broadcast, a, b, out) for out in data.outputs]
            yield Contender("numpy.multiply", "broadcast, out", writes)


def broadcast(a, b, out):
    blocks = out.reshape(len(a), len(b), a.shape[1], b.shape[1])
    np.multiply(a[:, None, :, None], b[None, :, None, :], out=blocks)


class OptEinsum(Peer):
    """`opt_einsum.contract_expression` over all factors at once."""

    name = "opt_einsum"

    def missing(self):
        return None if self.version() else "not installed"

    def version(self):
        return version_of("opt_einsum")

    def kron_matmul(self, data):
        opt_einsum = import_module("opt_einsum")
        modes = range(1, 1 + len(data.factors))
        read, written = [f"i{k}" for k in modes], [f"o{k}" for k in modes]
        symbols = {
            name: opt_einsum.get_symbol(count)
            for count, name in enumerate(["row", *read, *written])
        }
        terms = [["row", *read], *map(list, zip(read, written, strict=True)), ["row", *written]]
        *operands, result = ["".join(symbols[name] for name in term) for term in terms]
        tensor = (data.shape.rows, *(p for p, _ in data.shape.factors))
        expression = opt_einsum.contract_expression(
            f"{','.join(operands)}->{result}", tensor, *data.shape.factors
        )
        calls = [partial(expression, x.reshape(tensor), *data.factors) for x in data.inputs]
        yield Contender(self.name, "cached path", calls, returns=True)


class SciPyBlocks(Peer):
    """Every product written out as a block of a BSR matrix, outside of the time."""

    name = "SciPy"

    def version(self):
        return str(scipy.__version__)

    def batch(self, data):
        shape = data.shape
        if shape.block > MAX_BLOCK_SIZE or shape.only is not None:
            return
        blocks = np.ones((shape.products, 1, 1), data.dtype)
        for pool, ids in zip(data.pools, data.ids.T, strict=True):
            size = blocks.shape[1] * shape.size
            blocks = np.einsum("bij,bkl->bikjl", blocks, pool[ids]).reshape(-1, size, size)
        starts = np.arange(shape.blocks + 1) * shape.contributions
        length = shape.blocks * shape.block
        matrix = scipy.sparse.bsr_matrix((blocks, data.sources, starts), shape=(length, length))
        calls = [partial(matrix.dot, x.reshape(-1)) for x in data.inputs]
        yield Contender(self.name, "BSR", calls, returns=True)
