"""Chains of torch's multiplies, on the memory of CuPy's arrays. torch need not be installed."""

from functools import cache, partial

from benchmarks.gpu.peers import chains

try:
    import torch
except ImportError:
    torch = None


@cache
def missing():
    """Why torch cannot be measured; empty if it can."""
    if torch is None:
        return "not measured: torch is not installed"
    if not torch.cuda.is_available():
        return "not measured: this torch sees no device"
    torch.backends.cuda.matmul.allow_tf32 = False
    return ""


def on(stream):
    return torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr))


def tensor(array):
    return torch.as_tensor(array, device="cuda")


def multiply(step, factor, x, y):
    """A multiply, ready to be called, between flat tensors; ``factor`` is A (K, C)."""
    batch, C, K, others = step.batch, step.C, step.K, step.others
    source, target = x[: batch * C * others], y[: step.elements]
    if step.form == "right":
        return partial(torch.mm, source.view(others, C), factor.t(), out=target.view(others, K))
    vectors = source.view(batch, C, others)
    if step.form == "left":
        out = target.view(batch, K, others)
        return partial(torch.bmm, factor.expand(batch, K, C), vectors, out=out)
    matrices = factor.mT.expand(batch, C, K)
    out = target.view(batch, others, K)
    return partial(torch.bmm, vectors.transpose(1, 2), matrices, out=out)


def kron_calls(shape, factors, pairs, buffers):
    matrices, between = ([tensor(one) for one in arrays] for arrays in (factors, buffers))
    vectors = [[tensor(one).view(-1) for one in pair] for pair in pairs]
    return chains.kron_calls(shape, matrices, vectors, between, multiply)
