"""Gradients of tensors as on a device, on the device of fake_cupy, against those of the CPU."""

import math

import torch
from transposed_products import always_transposed

from batchkron.backends.cuda.kernel_family import without
from batchkron.torch import kron, sparse_chain

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
SHAPES = (
    [(3, 4)],
    [(2, 3), (4, 2), (1, 3)],
    [(2, 70), (3, 2)],
    [(2, 3), (70, 66)],
    [(70, 2), (80, 80)],
)


def tensors(dtype, shapes, left):
    """Vectors, the gradient of the result, and factors, some of which lie in memory as adjoints."""
    rows, columns = (math.prod(side) for side in zip(*shapes, strict=True))
    sizes = ((2, columns, 3), (2, rows, 3)) if left else ((2, 3, rows), (2, 3, columns))
    x, gradient = (torch.randn(size, dtype=dtype) for size in sizes)
    factors = [
        torch.randn(shape, dtype=dtype) if k % 2 else torch.randn(shape[::-1], dtype=dtype).mH
        for k, shape in enumerate(shapes)
    ]
    return x, gradient, factors


def replace_launches():
    """Take tensors of main memory for those of the device, and launch at once."""
    torch.manual_seed(1)
    torch.Tensor.get_device = lambda _: 0
    for module in (kron, sparse_chain):
        module.launched = lambda _, run: run(0)


CHAINS = [  # patterns from the left
    [(1, 1, 1, 1)],
    [(2, 12, 7, 3)],
    [(1, 6, 5, 4), (2, 10, 3, 1)],
    [(3, 2, 4, 2), (1, 6, 5, 4), (2, 10, 3, 1)],
]


def chain_of(patterns, dtype):
    """Values of which some lie as those of a transposed matrix, or at odd places, do."""
    chain = []
    for k, (a, b, c, d) in enumerate(patterns):
        if k % 3 == 0:
            chain.append(torch.randn(a, c, b, d, dtype=dtype).transpose(1, 2))
        elif k % 3 == 1:
            chain.append(torch.randn(a * b * c * d + 1, dtype=dtype)[1:].view(a, b, c, d))
        else:
            chain.append(torch.randn(a, b, c, d, dtype=dtype))
    return chain


def sparse_chains():
    """Chains on the device against those on the CPU: products, what is kept, all gradients."""
    replace_launches()
    for patterns in CHAINS:
        for dtype in (torch.float32, torch.float64):
            for count in (1, 5, 700):
                for last in (False, True):
                    chain = chain_of(patterns, dtype)
                    check_chain(chain, count, last)
                    with without("kron_sparse.gradients"):
                        check_chain(chain, count, last)
    with always_transposed(vectors=8):
        for patterns in CHAINS:
            check_chain(chain_of(patterns, torch.float32), 21, False)
    for last in (False, True):
        halfs(last)


def vectors(count, features, last, dtype):
    shape = (features, count) if last else (count, features)
    return torch.randn(shape, dtype=dtype)


def check_chain(chain, count, last):
    dtype = chain[0].dtype
    (a, b, _, d), (of_x, _, c, e) = chain[0].shape, chain[-1].shape
    x, gradient = (vectors(count, n, last, dtype) for n in (of_x * c * e, a * b * d))
    shape, length = gradient.shape, len(chain)
    expected, found = torch.empty(shape, dtype=dtype), torch.full(shape, math.nan, dtype=dtype)
    others = sparse_chain.multiply_chain(x, chain, last, expected, keep=True)
    odd = torch.empty(x.numel() + 1, dtype=dtype)[1:].view(x.shape).copy_(x)
    for given in (x, odd):
        found.fill_(math.nan)
        assert not sparse_chain._multiply_on_device(given, chain, last, found, keep=False)
        assert_close(found, expected)
    found.fill_(math.nan)
    kept = sparse_chain._multiply_on_device(x, chain, last, found, keep=True)
    assert_close(found, expected)
    for needed in ([True] * length, [k == length - 1 for k in range(length)], [False] * length):
        for with_x in (True, False):
            if not (with_x or any(needed)):
                continue
            given = x, gradient, chain, needed, last
            one = sparse_chain.chain_gradients(*given, with_x=with_x, kept=others)
            for again in (kept, []):
                other = sparse_chain._gradients_on_device(*given, with_x, again)
                for left, right in zip(flat(*other), flat(*one), strict=True):
                    assert left.shape == right.shape
                    assert left.is_contiguous()
                    assert_close(left, right)
            fresh = sparse_chain.chain_gradients(*given, with_x=with_x, kept=[])
            for left, right in zip(flat(*fresh), flat(*one), strict=True):
                assert torch.equal(left, right)


def sparse_endings():
    """Biases and activations in the last kernel, or behind it, against those of the CPU."""
    replace_launches()
    for patterns in CHAINS:
        for dtype in (torch.float32, torch.float64):
            for last in (False, True):
                check_endings(chain_of(patterns, dtype), 5, last)
    with always_transposed(vectors=8):
        check_endings(chain_of(CHAINS[2], torch.float32), 21, False)


def check_endings(chain, count, last):
    dtype = chain[0].dtype
    (a, b, _, d), (of_x, _, c, e) = chain[0].shape, chain[-1].shape
    x = vectors(count, of_x * c * e, last, dtype)
    shape = (a * b * d, count) if last else (count, a * b * d)
    for bias in (torch.randn(a * b * d + 1, dtype=dtype)[1:], None):
        for activation in (None, "gelu", "gelu-tanh"):
            for with_z in (False, True):
                if bias is None and activation is None:
                    continue
                results = []
                for run in (sparse_chain.multiply_chain, sparse_chain._multiply_on_device):
                    y, z = (torch.full(shape, math.nan, dtype=dtype) for _ in range(2))
                    z = z if with_z and activation else None
                    end = sparse_chain.LayerEnd(bias, activation, z)
                    run(x, chain, last, y, keep=False, end=end)
                    results.append([y] if z is None else [y, z])
                for found, expected in zip(*results[::-1], strict=True):
                    assert_close(found, expected)


def halfs(last):
    """Numbers of 16 bits, whose gradients of values are the caller's."""
    chain = [one.half() / 4 for one in chain_of(CHAINS[2], torch.float32)]
    wide = [one.float() for one in chain]
    x, gradient = (vectors(9, n, last, torch.float32).half() for n in (6, 24))
    out, exact = torch.empty_like(gradient), torch.empty(gradient.shape)
    kept = sparse_chain._multiply_on_device(x, chain, last, out, keep=True)
    others = sparse_chain.multiply_chain(x.float(), wide, last, exact, keep=True)
    given = [True, True], last
    found = sparse_chain._gradients_on_device(x, gradient, chain, *given, True, kept)
    pair = x.float(), gradient.float()
    expected = sparse_chain.chain_gradients(*pair, wide, *given, with_x=True, kept=others)
    for one, other in zip([out, *flat(*found)], [exact, *flat(*expected)], strict=True):
        assert one.dtype == torch.float16
        assert float((one.float() - other).abs().max()) <= 0.01 * float(other.abs().max())


def assert_close(found, expected):
    bound = 1e4 * torch.finfo(found.dtype).eps * float(expected.abs().max())
    assert float((found - expected).abs().max()) <= bound


def gradients():
    """All dtypes, both forms, all factors and the last one alone, with that of x and without."""
    replace_launches()
    for dtype in DTYPES:
        for shapes in SHAPES:
            for left in (False, True):
                x, gradient, factors = tensors(dtype, shapes, left)
                numbers = [1] if left else []
                for needed in ([True] * len(shapes), [False] * (len(shapes) - 1) + [True]):
                    for with_x in (False, True):
                        given = x, gradient, factors, needed
                        expected = kron._found(*given, numbers, with_x=with_x)
                        found = kron._on_device(*given, left, with_x)
                        for one, other in zip(flat(*found), flat(*expected), strict=True):
                            assert one.shape == other.shape
                            assert one.is_contiguous()
                            error = (one - other).abs().max() / other.abs().max()
                            assert error <= 100 * torch.finfo(dtype).eps


def flat(of_x, of_factors):
    return [*([] if of_x is None else [of_x]), *of_factors]
