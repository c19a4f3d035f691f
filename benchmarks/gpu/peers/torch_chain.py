"""Chains of torch's multiplies, on the memory of CuPy's arrays. torch need not be installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from benchmarks.gpu.peers.chains import FORMS, Multiply, chain
from benchmarks.shapes import KronMatmul

try:
    import torch
except ImportError:
    torch = None

Tensor = Any
Call = Callable[[], object]


@cache
def missing() -> str:
    """Why torch cannot be measured; empty if it can."""
    if torch is None:
        return "not measured: torch is not installed"
    if not torch.cuda.is_available():
        return "not measured: this torch sees no device"
    torch.backends.cuda.matmul.allow_tf32 = False
    return ""


def version() -> str:
    """Its release."""
    return str(torch.__version__) if torch is not None else ""


def on(stream: Any) -> Any:
    """Run on a CuPy stream."""
    return torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr))


def tensor(array: Any) -> Tensor:
    return torch.as_tensor(array, device="cuda")


def multiply(step: Multiply, factor: Tensor, x: Tensor, y: Tensor) -> Call:
    """A multiply, ready to be called, between flat tensors; ``factor`` is A (K, C)."""
    source, target = x[: step.batch * step.C * step.others], y[: step.elements]
    if step.form == "left":
        return partial(
            torch.bmm,
            factor.expand(step.batch, step.K, step.C),
            source.view(step.batch, step.C, step.others),
            out=target.view(step.batch, step.K, step.others),
        )
    if step.form == "right":
        return partial(
            torch.mm,
            source.view(step.others, step.C),
            factor.t(),
            out=target.view(step.others, step.K),
        )
    return partial(
        torch.bmm,
        source.view(step.batch, step.C, step.others).transpose(1, 2),
        factor.mT.expand(step.batch, step.C, step.K),
        out=target.view(step.batch, step.others, step.K),
    )


def bound(
    steps: Sequence[Multiply],
    factors: Sequence[Tensor],
    x: Tensor,
    out: Tensor,
    buffers: Sequence[Tensor],
) -> Call:
    """A chain from x to ``out``, with results between them in two buffers; all flat."""
    calls, source = [], x
    for number, step in enumerate(steps):
        target = out if number == len(steps) - 1 else buffers[number % 2]
        calls.append(multiply(step, factors[step.mode], source, target))
        source = target

    def run() -> None:
        for call in calls:
            call()

    return run


def kron_calls(
    shape: KronMatmul,
    factors: Sequence[Any],
    pairs: Sequence[tuple[Any, Any]],
    buffers: Sequence[Any],
) -> dict[str, list[Call]]:
    matrices = [tensor(factor) for factor in factors]
    between = [tensor(buffer) for buffer in buffers]
    vectors = [(tensor(x).view(-1), tensor(out).view(-1)) for x, out in pairs]
    return {
        form: [bound(chain(shape, form), matrices, x, out, between) for x, out in vectors]
        for form in FORMS
    }
