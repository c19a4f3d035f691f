"""What calls of functions need: workspace, which no operator owns, and checks of given arrays."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from batchkron.backends.cuda.kernel_family import forget_by
from batchkron.backends.cuda.runtime.device import (
    GraphMemory,
    capture_number,
    cupy,
    current_device,
    device_errors,
    graph_memory,
    ready_stream,
)
from batchkron.backends.cuda.runtime.launch import BoundedCache

_MAX_KNOWN = 256  # layouts of calls that are cached; chosen by hand

_MAX_PLANS = 256  # of a kind that are kept; chosen by hand
# Workspace of captured graphs that others made, by stream and number of the capture. It is never
# freed: nothing tells when the last graph that uses it is gone.
_captured = GraphMemory()
_changing = threading.Lock()


class KnownCalls(BoundedCache[Hashable, Any]):
    """What calls launch, by layouts, forgotten with all plans; who makes one holds ``making``."""

    def __init__(self) -> None:
        super().__init__(_MAX_KNOWN)
        self.making = threading.Lock()
        forget_by(self.clear)


def call_workspace(size: int) -> tuple[int, Any]:
    """Return the address of ``size`` bytes for one call on the current stream, and their owner.

    The caller holds the owner until its launches are queued. CuPy's pool gives freed memory only
    to later work of the same stream. What a captured graph uses is kept until the process ends:
    the calls of one capture on one stream share it, no other call and no other graph does.
    """
    capturing = cupy.cuda.get_current_stream().is_capturing()
    memory = _of_graph(size) if capturing else cupy.cuda.alloc(size)
    return int(memory.ptr), memory


def _of_graph(size: int) -> Any:
    """Return memory for a call that the current stream captures."""
    stream = ready_stream(current_device())
    key = stream, capture_number(stream)
    kept = graph_memory() or _captured
    with _changing:
        memory = kept.get(key, size)
        if memory is None:
            memory = cupy.cuda.alloc(size)
            kept.put(key, memory)
        return memory


Arguments = ParamSpec("Arguments")
Plan = TypeVar("Plan")


def kept_plans(make: Callable[Arguments, Plan]) -> Callable[Arguments, Plan]:
    """Return a function that keeps what ``make`` returns by its arguments, the last a device."""
    plans: BoundedCache[Any, Plan] = BoundedCache(_MAX_PLANS)
    forget_by(plans.clear)

    def plan(*arguments: Arguments.args, **named: Arguments.kwargs) -> Plan:
        key = (*arguments, *named.values())
        known = plans.get(key)
        if known is None:
            with device_errors(), cupy.cuda.Device(key[-1]):
                known = plans[key] = make(*arguments, **named)
        return known

    return plan


def result_check(
    shape: tuple[int, ...], dtype: np.dtype[Any], device: int
) -> Callable[[Any], bool]:
    """Return a function that says if a thing is such a C-contiguous array of CuPy."""
    # The check runs in each call, and a closure's names are found faster than attributes.
    kind = cupy.ndarray
    strides = tuple(dtype.itemsize * math.prod(shape[k + 1 :]) for k in range(len(shape)))

    def fits(array: Any) -> bool:
        return (
            type(array) is kind
            and array.dtype == dtype
            and array.shape == shape
            and array.strides == strides
            and array.data.device_id == device
        )

    return fits
