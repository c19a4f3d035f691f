"""Workspace for calls of functions, which have no operator that could own it."""

from __future__ import annotations

import threading
from typing import Any

from batchkron.backends.cuda.runtime.device import (
    GraphMemory,
    capture_number,
    cupy,
    current_device,
    graph_memory,
    ready_stream,
)

# Workspace of captured graphs that others made, by stream and number of the capture. It is never
# freed: nothing tells when the last graph that uses it is gone.
_captured = GraphMemory()
_changing = threading.Lock()


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
