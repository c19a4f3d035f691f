"""What a run writes: its figures as JSON, and the machine, versions and commit that they are of."""

import json
import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

import batchkron as bk
from benchmarks.core.tables import words

ROOT = Path(__file__).resolve().parents[2]
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNKNOWN_CACHE = 32 << 20  # bytes, assumed where the system does not tell


def save(path, record):
    """Write a record as JSON, whole or not at all, if there shall be a file."""
    if path is not None:
        save_text(path, json.dumps(record, indent=1, ensure_ascii=False))


def recorded(rows, path=None, about=MappingProxyType({}), name="cells"):
    """All rows; each is printed as it comes, and all so far are written behind ``about``."""
    found = []
    for row in rows:
        found.append(row)
        print(words(row), flush=True)
        save(path, {**about, name: found})
    return found


def save_text(path, text):
    """Write a file whole or not at all."""
    temporary = path.with_suffix(path.suffix + ".part")
    temporary.write_text(text + "\n")
    os.replace(temporary, path)


def earlier(path, here, *same):
    """What a file has to which a run appends; of its machine ``same`` must be that of ``here``."""
    if path is None or not path.exists():
        return {}
    record = json.loads(path.read_text())
    for what in same:
        before = record["machine"].get(what)
        if before != here.get(what):
            sys.exit(
                f"{path} has times of {before}, this is {here.get(what)}: give another file by "
                "--json"
            )
    return record


def processors():
    return len(os.sched_getaffinity(0))


def default_processes():
    """How many compile kernels, where none are asked for."""
    return min(14, processors())


def last_level_cache():
    units = {"K": 1 << 10, "M": 1 << 20}
    sizes = [path.read_text().strip() for path in CACHES.glob("index*/size")]
    return max((int(size[:-1]) * units[size[-1]] for size in sizes), default=UNKNOWN_CACHE)


def bytes_in(path, name):
    found = re.search(rf"{name}:\s+(\d+) kB", Path(path).read_text())
    assert found
    return int(found[1]) << 10


def available_memory():
    return bytes_in("/proc/meminfo", "MemAvailable")


def output_of(*command):
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return run.stdout.partition("\n")[0]


def version_of(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def machine(device="cpu", commit=None, **more):
    """What figures belong to; ``commit``: of the source, where it is no checkout."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **(_cuda_device() if device == "cuda" else _host()),
        "python": platform.python_version(),
        "numpy": version_of("numpy"),
        "scipy": version_of("scipy"),
        "batchkron": bk.__version__,
        "commit": commit or output_of("git", "rev-parse", "HEAD"),
        "uncommitted_changes": bool(output_of("git", "status", "--porcelain")),
        **more,
    }


def _host():
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return {
        "processor": model[1] if model else platform.machine(),
        "processors": processors(),
        "last_level_cache": last_level_cache(),
        "available_memory": available_memory(),
        "load_average": os.getloadavg(),
        "kernel": platform.release(),
        "compiler": output_of(os.environ.get("CC", "cc"), "--version"),
        "instruction_set": bk.instruction_set(),
    }


def _cuda_device():
    import cupy

    runtime, cublas = cupy.cuda.runtime, None
    with suppress(Exception):
        handle = cupy.cuda.device.get_cublas_handle()
        cublas = str(int(cupy.cuda.cublas.getVersion(handle)))
    return {
        "device": runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode(),
        "memory_bytes": runtime.memGetInfo()[1],
        "driver": runtime.driverGetVersion(),
        "nvrtc": ".".join(map(str, cupy.cuda.nvrtc.getVersion())),
        "cublas": cublas,
        "cupy": cupy.__version__,
        "torch": version_of("torch"),
        "jax": version_of("jax"),
    }
