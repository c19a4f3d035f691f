"""Time Krylov methods beside SciPy's or CuPy's: `python -m benchmarks.krylov --help`."""

import argparse
import fnmatch
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse.linalg as scipy_linalg

import batchkron as bk
from batchkron import solvers
from benchmarks.core.checks import on_host
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, save
from benchmarks.core.tables import words
from benchmarks.core.timing import Call, waiter
from benchmarks.krylov import cases
from benchmarks.krylov.batches import batch_records
from benchmarks.krylov.cases import ITERATIONS, Case, operator_of, peer_operator, side, times_of

# times the peer's speed
TARGETS = {"cpu": lambda case: 1.0, "cuda": lambda case: 5.0 if case.unknowns <= 100_000 else 1.5}


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of(__doc__, "device", "json")
    parser.add_argument("--case", action="append", help="name or pattern, as --list prints them")
    parser.add_argument("--systems", type=int, help="of the batch; 4096, on the CPU 256")
    parser.add_argument("--list", action="store_true", help="print the cases")
    return parser.parse_args(given)


def cases_on(device: str) -> list[Case]:
    unknowns, operators = cases.UNKNOWNS, cases.OPERATORS
    if device == "cuda":
        unknowns, operators = cases.DEVICE_UNKNOWNS, cases.DEVICE_OPERATORS
    return [Case(m, o, n) for n in unknowns for o in operators for m in cases.METHODS]


def solve_record(case: Case, device: str, module: Any) -> dict[str, Any]:
    A, b = operator_of(case, module), cases.right_hand_side(side(case), module)
    options: dict[str, Any] = {"rtol": 1e-15, "maxiter": ITERATIONS}
    name, library = "SciPy", scipy_linalg
    if device == "cuda":
        import cupyx.scipy.sparse.linalg as library

        name = "CuPy"
    peer = getattr(library, case.method, None)
    if peer is None:  # CuPy has no bicgstab; its cgs has two products an iteration as well
        name, peer = f"{name}'s cgs", library.cgs
    peer_options: dict[str, Any] = {"maxiter": ITERATIONS, cases.tolerance_name(peer): 1e-15}
    made: dict[str, Any] = {}
    if case.method == "gmres":
        restart = ITERATIONS // 2
        options["maxiter"], made = 2, {"restart": restart}
        cycles = 2 if device == "cpu" else ITERATIONS
        peer_options |= {"maxiter": cycles, "restart": restart}
    ours, peers = getattr(solvers, case.method), peer_operator(case, module)
    solver = getattr(solvers, case.method.capitalize())(side(case), like=b, **made)
    contenders: dict[str, Call] = {
        "batchkron, kept": lambda: solver.solve(A, b, **options),
        "batchkron": lambda: ours(A, b, **made, **options),
        name: lambda: peer(peers, b, **peer_options),
    }
    result = contenders["batchkron"]()
    residual = float(np.linalg.norm(on_host(b - A @ result.x)))
    right = abs(residual - result.residual_norm) <= 1e-6 * float(np.linalg.norm(on_host(b)))
    seconds = times_of(contenders, waiter(device))
    ratio = seconds[name] / seconds["batchkron"]
    target = 1.0 if case.method == "gmres" and case.unknowns > 100_000 else TARGETS[device](case)
    found = {"case": case.name, "seconds": seconds, "iterations": int(result.iterations)}
    return {**found, "right": right, "ratio": ratio, "target": target}


def records(options: argparse.Namespace, module: Any) -> Iterator[dict[str, Any]]:
    patterns = options.case or ["*"]
    for case in cases_on(options.device):
        if any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns):
            yield solve_record(case, options.device, module)
    if any(fnmatch.fnmatch("batch", pattern) for pattern in patterns):
        systems = options.systems or (4096 if module is not np else 256)
        yield from batch_records(systems, module)


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(given)
    if options.list:
        print(*[case.name for case in cases_on(options.device)], "batch", sep="\n")
        return 0
    module: Any = np
    if options.device == "cuda":
        import cupy as module
    described = machine(options.device, threads=bk.get_num_threads())
    print(described)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for record in records(options, module):
            found.append(record)
            show(record)
            save(options.json, {"machine": described, "cells": found})
    return int(any(not record["right"] for record in found))


def show(record: dict[str, Any]) -> None:
    pairs = ("ratio", "target"), ("of_floor", "of_floor_target")
    short = [one for one, target in pairs if one in record and record[one] < record[target]]
    short += ["over_lu"] if record.get("over_lu", 1.0) < 1.0 else []
    missed = f" MISSED: {', '.join(short)}" if short else ""
    print(f"{words(record)}{missed}{'' if record['right'] else ' WRONG'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
