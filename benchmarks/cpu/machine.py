"""What the figures belong to: the machine, the versions, the commit."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import batchkron as bk
from benchmarks.cpu.contenders import Peer

ROOT = Path(__file__).resolve().parents[2]
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNKNOWN_CACHE = 32 << 20  # bytes, assumed where the system does not tell


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def last_level_cache() -> int:
    """Bytes of the largest cache."""
    units = {"K": 1 << 10, "M": 1 << 20}
    sizes = [path.read_text().strip() for path in CACHES.glob("index*/size")]
    return max((int(size[:-1]) * units[size[-1]] for size in sizes), default=UNKNOWN_CACHE)


def available_memory() -> int:
    """Bytes that can be used without swapping."""
    found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    assert found
    return int(found[1]) << 10


def processor_name() -> str:
    """The processor's name, as the system gives it."""
    found = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


def output_of(*command: str) -> str:
    """The first line that a command prints, or nothing."""
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return run.stdout.partition("\n")[0]


def describe_machine(
    peers: Sequence[Peer], missing: dict[str, str], libraries: list[dict[str, Any]]
) -> dict[str, Any]:
    """Collect what the figures belong to, for the report and for the file."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": processor_name(),
        "processors": processors(),
        "last_level_cache": last_level_cache(),
        "available_memory": available_memory(),
        "load_average": os.getloadavg(),
        "kernel": platform.release(),
        "compiler": output_of(os.environ.get("CC", "cc"), "--version"),
        "python": platform.python_version(),
        "batchkron": bk.__version__,
        "instruction_set": bk.instruction_set(),
        "commit": output_of("git", "rev-parse", "HEAD"),
        "uncommitted_changes": bool(output_of("git", "status", "--porcelain")),
        "peers": {peer.name: peer.version() for peer in peers if peer.name not in missing},
        "missing_peers": missing,
        "libraries": libraries,
    }
