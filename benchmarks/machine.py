"""What the figures of a run belong to, on the CPU or on a CUDA device."""

from __future__ import annotations

from typing import Any


def machine(device: str) -> dict[str, Any]:
    """Return the machine, the versions, the commit and the time; ``device`` is "cpu" or "cuda"."""
    if device == "cuda":
        from benchmarks.gpu.__main__ import machine as on_device

        return on_device(None)
    from benchmarks.cpu.machine import describe_machine

    return describe_machine((), {}, [])
