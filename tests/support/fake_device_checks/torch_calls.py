"""Gradients of tensors as on a device, on the device of fake_cupy, against those of the CPU."""

import math

import torch

from batchkron.torch import kron

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


def gradients():
    """All dtypes, both forms, all factors and the last one alone, with that of x and without."""
    torch.manual_seed(1)
    torch.Tensor.get_device = lambda _: 0
    kron.launched = lambda _, run: run(0)
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
