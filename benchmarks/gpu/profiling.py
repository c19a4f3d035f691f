"""What limits the cells that missed their goal, by Nsight Compute: one process for each part."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.core.records import ROOT
from benchmarks.core.tables import head, row

PARTS = ("kron", "precision", "pde", "batches", "atomic", "lists", "sweeps", "explicit")
STOP_SECONDS = 65  # that a profiler may take beyond its time before it is killed
MARKER = "cell_marker"  # the kernel before those of a cell
MAX_BYTES = 512 << 20  # of a vector that is profiled
SECTIONS = (
    *("SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables"),
    *("SchedulerStats", "WarpStateStats", "Occupancy"),
)
PERCENTAGES = {
    "memory": r"(gpu__dram|dram)__?throughput\.avg\.pct_of_peak_sustained_elapsed",
    "second-level cache": r"lts__throughput\.avg\.pct_of_peak_sustained_elapsed",
    "shared memory, L1": r"l1tex__data_pipe_lsu_wavefronts(_mem_shared)?\.\w+\.pct_of_peak_\w+",
    "issue": r"(?:sm|smsp)__issue_active\.avg\.(pct_of_peak_sustained_active|per_cycle_active)",
    "occupancy": r"sm__warps_active\.avg\.pct_of_peak_sustained_active",
}
PIPE = re.compile(
    r"sm__(?:inst_executed_)?pipe_(\w+?)(?:_cycles_active)?\.avg\.pct_of_peak_sustained_active"
)
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)_per_issue_active\.ratio")
UNITS = ("fma", "fp64", "tensor")
USES = (*UNITS, "issue", "memory", "second-level cache", "shared memory, L1")  # columns of tables
WARPS = ("issue", "occupancy")  # percentages that are not of a resource
BOUND = 75  # percent of its peak from which a resource is called the limit


def reason_of(percent, stalls):
    """What limits a kernel, in words."""
    limits = {name: share for name, share in percent.items() if name not in WARPS}
    if not limits:
        return "no figures"
    name, maximum = max(limits.items(), key=lambda pair: pair[1])
    if maximum >= BOUND:
        return f"{name} at {maximum:.0f} %"
    waits = ", ".join(f"{stall} {cycles:.1f}" for stall, cycles in stalls.items())
    return f"latency: {name} at {maximum:.0f} %; waits for {waits}"


def _numbers(row):
    found = {}
    for name, text in row.items():
        with suppress(AttributeError, ValueError):
            found[name] = float(text.replace(",", ""))
    return found


def profile_of(rows):
    """The longest of a cell's kernels: percentages of peaks, and what warps wait for.

    "stalls" are cycles per instruction of the two most frequent reasons, "share" is the part of the
    cell's time that is the kernel's.
    """
    kernels = [(_numbers(row), row["Kernel Name"]) for row in rows]
    if not kernels:
        return None
    times = [numbers.get("gpu__time_duration.sum", 0.0) for numbers, _ in kernels]
    longest = max(range(len(times)), key=times.__getitem__)
    numbers, kernel = kernels[longest]
    percent = {}
    stalls = {}
    for metric, value in numbers.items():
        if pipe := PIPE.fullmatch(metric):
            for unit in UNITS:
                if pipe[1].startswith(unit) or (unit == "tensor" and "dmma" in pipe[1]):
                    percent[unit] = max(percent.get(unit, 0.0), value)
        elif stall := STALL.fullmatch(metric):
            stalls[stall[1]] = value
        for name, pattern in PERCENTAGES.items():
            if re.fullmatch(pattern, metric):
                per_cycle = metric.endswith("per_cycle_active")
                percent[name] = max(percent.get(name, 0.0), 100 * value if per_cycle else value)
    stalls.pop("selected", None)  # these have been issued
    top = sorted(stalls, key=stalls.__getitem__, reverse=True)[:2]
    share = times[longest] / sum(times) if sum(times) else 1.0
    short = re.split(r"[<(]", kernel.removeprefix("void "), maxsplit=1)[0]
    found = {"kernel": short, "share": share, "percent": percent}
    waits = {name: stalls[name] for name in top}
    return {**found, "stalls": waits, "reason": reason_of(percent, waits)}


def profiles_of(log):
    """The profiles of all cells, from a table of raw metrics with a marker before each cell."""
    lines = list(log)
    first = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = list(csv.DictReader(lines[first:]))[1:]  # the first one has units
    cells = []
    for kernel in rows:
        if kernel["Kernel Name"].startswith(MARKER):
            cells.append([])
        elif cells:
            cells[-1].append(kernel)
    return [profile_of(cell) for cell in cells]


def profile_part(part, cells, ncu, seconds):
    """Profile cells of one part, none begun after ``seconds``; return what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        log, chosen = Path(folder) / "log.csv", Path(folder) / "cells.json"
        chosen.write_text(json.dumps([[part, cell["case"], cell["dtype"]] for cell in cells]))
        command = [ncu, "--csv", "--page", "raw", "--log-file", str(log)]
        command += ["--profile-from-start", "off"]
        command += ["--clock-control", "none"]  # the device's settings are not ours to change
        command += [word for section in SECTIONS for word in ("--section", section)]
        command += [sys.executable, "-m", "benchmarks.gpu.profiling"]
        command += [str(chosen), str(seconds)]
        said = _run(command, seconds + STOP_SECONDS)
        lines = log.read_text().splitlines() if log.exists() else []
    found = profiles_of(lines)
    for cell, profile in zip(cells, found, strict=False):
        if profile is not None:
            cell["profile"] = profile
    if len(found) < len(cells):
        said += f" {len(found)} of {len(cells)} cells profiled in {seconds:.0f} s"
    return f"{part}: {said.strip()}" if said else ""


def _run(command, seconds):
    """Run a command and all that it starts; return its last words where it fails."""
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, **how)
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"stopped after {seconds:g} s"
    return said.strip()[-300:] if process.returncode else ""


def profile_missed(cells, seconds):
    """Profile cells of a file that missed something and have no profile; return what went wrong."""
    ncu = shutil.which("ncu")
    if ncu is None:
        return ["ncu is not installed"]

    def excess(cell):
        if cell["goal"]:
            return cell["ours"]["microseconds"] / cell["goal"]
        return cell["ours_over_best_peer"] or 1.0

    timed = (cell for cell in cells if cell["choice"] in PARTS and "microseconds" in cell["ours"])
    missed = [cell for cell in timed if cell["shortfalls"] and "profile" not in cell]
    missed.sort(key=excess, reverse=True)
    said, end, left = [], time.monotonic() + seconds, len(missed)
    for part in PARTS:
        own = [cell for cell in missed if cell["choice"] == part]
        if own:
            share = max(0.0, end - time.monotonic()) * len(own) / left
            left -= len(own)
            said.append(profile_part(part, own, ncu, share))
    return [text for text in said if text]


def profile_table(cells):
    names, lines = (*USES, "occupancy"), []
    for cell in cells:
        if profile := cell.get("profile"):
            shown = [f"{profile['percent'].get(name, 0):.0f}" for name in names]
            texts = [f"{cell['part']} {cell['case']}", cell["dtype"], *shown, profile["reason"]]
            lines.append(row(texts))
    heads = ["case", "dtype", *(f"{name} %" for name in names), "reason"]
    return [*head(heads).splitlines(), *lines] if lines else []


def main():
    """Call each of some cells once, of CELLS.json, none begun after SECONDS: under ``ncu``.

    Only what lies between CuPy's `profiler.start` and `stop` is profiled: for each cell a marker
    kernel and a call that is not the first. Large vectors have fewer rows: a profiler repeats each
    kernel.
    """
    import cupy
    import numpy as np

    from benchmarks.gpu.data import free_memory, subject_of
    from benchmarks.gpu.options import all_choices

    end = time.monotonic() + float(sys.argv[2])
    known = {(one.part, one.name, one.dtype): one for one in all_choices()}
    marker = cupy.RawKernel(f'extern "C" __global__ void {MARKER}(int* x) {{}}', MARKER)
    nothing = cupy.zeros(1, np.int32)
    marker((1,), (1,), (nothing,))
    for cell in json.loads(Path(sys.argv[1]).read_text()):
        if time.monotonic() > end:
            break
        subject = subject_of(known[tuple(cell)], MAX_BYTES)
        call = subject.calls()[-1]
        call()
        cupy.cuda.Device().synchronize()
        cupy.cuda.profiler.start()
        marker((1,), (1,), (nothing,))
        call()
        cupy.cuda.Device().synchronize()
        cupy.cuda.profiler.stop()
        del subject, call
        free_memory()


if __name__ == "__main__":
    main()
