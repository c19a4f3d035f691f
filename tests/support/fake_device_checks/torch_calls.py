"""Gradients of tensors as on a device, on the device of fake_cupy, against those of the CPU."""

import math

import torch

from batchkron.backends.cuda.kernel_family import without
from batchkron.torch import kron, sparse

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
SHAPES = ([(3, 4)], [(2, 3), (4, 2), (1, 3)], [(2, 70), (3, 2)])


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
    for module in (kron, sparse):
        module.launched = lambda _, run: run(0)


def gradients_of_values():
    """Gradients of Kronecker-sparse values, of one part and of several, in both layouts."""
    replace_launches()
    for pattern in ((1, 1, 1, 1), (2, 12, 7, 3), (1, 3, 40, 1)):
        a, b, c, d = pattern
        for count in (1, 5, 700):
            x, gradient = torch.randn(count, a * c * d), torch.randn(count, a * b * d)
            for last in (False, True):
                if last:
                    x, gradient = x.mT.contiguous(), gradient.mT.contiguous()
                for dtype in (torch.float32, torch.float64):
                    given = x.to(dtype), gradient.to(dtype)
                    found = sparse._sums_on_device(*given, pattern, last)
                    wide = [one.double() for one in given]
                    if last:
                        expected = sparse.contract_last(*wide, pattern, 1)
                    else:
                        expected = sparse.contract_first(*wide, pattern, 1, False)
                    bound = 10 * count * torch.finfo(dtype).eps
                    assert found.shape == pattern
                    assert float((found - expected).abs().max()) <= bound
    with without("kron_sparse.gradients"):
        assert sparse._sums_on_device(*given, pattern, last) is None
    assert sparse._sums_on_device(x.to(torch.complex64), gradient, pattern, last) is None


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
