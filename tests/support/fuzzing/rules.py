"""The schema of docs/reference/problem-files.md as plain rules, and what loaded values say.

Written from the schema's words, apart from the package's own checks, which it is to judge.
"""

import json
import math
import re
from itertools import pairwise

import numpy as np

from batchkron.problems.discretization.basis.multiwavelets import filters
from fuzzing.list_rules import check_list

COMMON = {"format": str, "format_version": int}
RESULT = {
    "t": float, "status": str, "steps": int, "dt": float, "method": str,
    "problem_hash": str, "problem_name": str,
}  # fmt: skip
CHECKPOINT = {
    "t0": float, "dt": float, "step": int, "until": float, "method": str, "problem_hash": str,
    "version": str, "instruction_set": str, "threads": int, "dtype": str,
}  # fmt: skip
PROBLEM = {"basis_id": str, "degree": int, "t0": float}
ERRORS = {"l2_error": float, "relative_error": float}
ELEMENTARY = {
    "constant": ("value",), "sin": ("omega", "phase"), "cos": ("omega", "phase"), "exp": ("rate",),
}  # fmt: skip


def is_extreme(document):
    """Whether products of numbers in functions of time may leave float64's range."""
    texts = [t for path, v in document.datasets.items() if path.endswith("/time") for t in v]
    numbers = [number for text in texts for number in re.findall(r"e[+-]?(\d+)", str(text))]
    return any(len(number) > 2 or int(number) > 60 for number in numbers)


class Unsound(Exception):  # noqa: N818 (a verdict)
    """Why a content breaks the schema."""


def fault_of(document, expected):
    """Why a content is not sound as a file of a format, None if it is sound."""
    attributes, datasets = dict(document.attributes), document.datasets
    attributes.pop("content_hash", None)
    try:
        _check_values(attributes, datasets)
        _require(attributes.get("format") == expected, "format")
        is_list = expected == "batchkron-problem" and attributes.get("format_version") == 3
        _require(is_list or attributes.get("format_version") in (1, 2), "format_version")
        if is_list:
            _require(type(attributes["format_version"]) is int, "format_version")
            check_list(attributes, datasets, _require)
            for text in datasets.get("provenance/file", ()):
                _read_json(text, dict)
            for group in ("sources", "exact"):
                for text in datasets.get(f"{group}/time", ()):
                    _check_time(_read_json(text, dict))
        elif expected == "batchkron-problem":
            _check_problem(attributes, datasets)
        else:
            _check_state(attributes, datasets, expected)
    except Unsound as verdict:
        return str(verdict)
    return None


def _require(condition, what):
    if not condition:
        raise Unsound(what)


def _check_values(attributes, datasets):
    for name, value in attributes.items():
        if isinstance(value, str):
            _require(len(value.encode()) <= 4096 and "\0" not in value, f"text {name}")
        elif isinstance(value, float):
            _require(math.isfinite(value), f"number {name}")
    texts = [value for value in datasets.values() if isinstance(value, tuple)]
    for path, value in datasets.items():
        if isinstance(value, tuple):
            _require(len(value) <= 65536, path)
            _require(not any("\0" in text for text in value), path)
        elif value.dtype.kind == "f":
            _require(np.isfinite(value).all(), f"{path} finite")
    _require(sum(len(t.encode()) for value in texts for t in value) <= 1 << 24, "text")
    signs = sum(t.count(s) for value in texts for t in value for s in ",[{")
    _require(signs <= 1 << 17, "signs")


def _check_attributes(attributes, required, optional=None):
    allowed = COMMON | required | (optional or {})
    _require(set(attributes) <= set(allowed), "unknown attribute")
    _require(set(COMMON | required) <= set(attributes), "missing attribute")
    for name, value in attributes.items():
        _require(type(value) is allowed[name], f"type of attribute {name}")


def _check_dataset(datasets, path, kind, shape):
    _require(path in datasets, f"missing {path}")
    value = datasets[path]
    if kind == "text":
        _require(isinstance(value, tuple) and (len(value),) == shape, path)
    else:
        _require(isinstance(value, np.ndarray) and value.dtype == kind, f"{path} kind")
        _require(value.shape == shape, f"{path} shape")


def _check_state(attributes, datasets, expected):
    is_result = expected == "batchkron-result"
    _check_attributes(attributes, RESULT if is_result else CHECKPOINT, ERRORS if is_result else {})
    _require(set(datasets) == {"u", "history", "provenance/file"}, "datasets")
    _check_dataset(datasets, "history", "text", (1,))
    _check_dataset(datasets, "provenance/file", "text", (1,))
    _check_dataset(
        datasets, "u", np.float64, (datasets["u"].size,) if _is_array(datasets["u"]) else ()
    )
    _read_json(datasets["history"][0], list)
    _read_json(datasets["provenance/file"][0], dict)
    if is_result:
        _require(attributes["steps"] >= 0, "steps")
    else:
        _require(attributes["step"] >= 0 and attributes["threads"] >= 0, "step, threads")
        _check_run(attributes)


def _check_run(attributes):
    """Whether a checkpoint's numbers are those of a run."""
    t0, dt, until = (attributes[name] for name in ("t0", "dt", "until"))
    _require(dt > 0.0 and until >= t0, "dt, until")
    steps = (until - t0) / dt
    _require(steps < 2.0**53 and attributes["step"] <= steps * (1 + 1e-6) + 1e-6, "steps")
    _require(attributes["dtype"] in ("float32", "float64"), "dtype")


def _is_array(value):
    return isinstance(value, np.ndarray)


def _check_problem(attributes, datasets):
    _check_attributes(attributes, PROBLEM)
    _require(attributes["basis_id"] == "alpert-parity-1", "basis_id")
    _require(0 <= attributes["degree"] <= 32, "degree")
    names = datasets.get("axes/name")
    _require(isinstance(names, tuple) and names, "axes/name")
    n, d = attributes["degree"] + 1, len(names)
    _check_layout(datasets, n, d)
    for name in names:
        _require(name.isidentifier() and name not in ("t", "coefficient"), "axis name")
    _require(len(set(names)) == d, "axis names")
    lower, upper = datasets["axes/lower"].tolist(), datasets["axes/upper"].tolist()
    for a, b in zip(lower, upper, strict=True):
        _require(a < b and math.isfinite(b - a), "axis")
    own = np.stack(filters(attributes["degree"]))
    _require(np.abs(datasets["basis/filters"] - own).max() <= 1e-12, "filters")
    levels = datasets["grid/levels"].tolist()
    _check_grid(datasets, levels, n)
    _check_operators(datasets, levels)
    for group in ("terms", "sources", "exact"):
        for text in datasets.get(f"{group}/time", ()):
            _check_time(_read_json(text, dict))
    _require(datasets["name"][0] != "", "name")
    _require(datasets["stepper/method"][0] != "", "method")
    _require(datasets["stepper/dt"][0] > 0.0, "dt")
    units = _read_json(datasets["units"][0], dict)
    _require(all(isinstance(unit, str) for unit in units.values()), "units")
    _read_json(datasets["provenance/problem"][0], dict)
    _read_json(datasets["provenance/file"][0], dict)


def _check_layout(datasets, n, d):
    """Kinds and shapes of all datasets."""
    table = {
        "name": ("text", (1,)),
        "axes/name": ("text", (d,)),
        "axes/lower": (np.float64, (d,)),
        "axes/upper": (np.float64, (d,)),
        "basis/filters": (np.float64, (4, n, n)),
        "grid/kind": ("text", (1,)),
        "grid/levels": (np.int64, (d,)),
        "grid/cells": (np.int64, (None, d)),
        "operators/level": (np.int64, (None,)),
        "operators/offsets": (np.int64, (None,)),
        "operators/rows": (np.int64, (None,)),
        "operators/columns": (np.int64, (None,)),
        "operators/blocks": (np.float64, (None, n, n)),
        "terms/operators": (np.int64, (None, d)),
        "terms/one_sided": (np.int64, (None,)),
        "terms/time": ("text", (None,)),
        "sources/time": ("text", (None,)),
        "initial": (np.float64, (None,)),
        "stepper/method": ("text", (1,)),
        "stepper/dt": (np.float64, (1,)),
        "stepper/until": (np.float64, (1,)),
        "units": ("text", (1,)),
        "provenance/problem": ("text", (1,)),
        "provenance/file": ("text", (1,)),
    }
    table |= {f"sources/factor_{k}": (np.float64, (None, None)) for k in range(d)}
    exact = {f"exact/factor_{k}": (np.float64, (None, None)) for k in range(d)}
    exact |= {"exact/time": ("text", (None,)), "exact/remainders": (np.float64, (d, None, None))}
    if set(exact) & set(datasets):
        table |= exact
    if "sources/explicit" in datasets:
        table["sources/explicit"] = (np.int64, (None,))
    for k in range(d):
        if f"masses/axis_{k}" in datasets:
            table[f"masses/axis_{k}"] = (np.float64, (None, n, n))
    _require(set(table) == set(datasets), "datasets")
    for path, (kind, shape) in table.items():
        found = np.shape(datasets[path])
        _require(len(found) == len(shape), f"{path} dimensions")
        filled = tuple(f if s is None else s for f, s in zip(found, shape, strict=True))
        _check_dataset(datasets, path, kind, filled)


def _check_grid(datasets, levels, n):
    d, cells = len(levels), datasets["grid/cells"].tolist()
    _require(datasets["grid/kind"][0] in ("sparse", "full", "mixed", "custom"), "grid/kind")
    _require(all(0 <= level <= 30 for level in levels), "grid/levels")
    _require(len(cells) >= 1, "grid/cells")
    _require(all(a < b for a, b in pairwise(cells)), "cells sorted")
    for row in cells:
        _require(all(0 <= c < 2**lv for c, lv in zip(row, levels, strict=True)), "cells in range")
    _require(datasets["initial"].size == len(cells) * n**d, "initial")
    groups = {"sources": len(datasets["sources/time"]), "terms": len(datasets["terms/time"])}
    _require(len(datasets["terms/operators"]) == groups["terms"], "terms")
    _require(len(datasets["terms/one_sided"]) == groups["terms"], "one_sided")
    _require(set(datasets["terms/one_sided"].tolist()) <= {0, 1, 2}, "one_sided is 0, 1 or 2")
    explicit = datasets.get("sources/explicit", np.zeros(groups["sources"]))
    _require(len(explicit) == groups["sources"], "explicit")
    _require(set(explicit.tolist()) <= {0, 1}, "explicit is 0 or 1")
    if "exact/time" in datasets:
        groups["exact"] = parts = len(datasets["exact/time"])
        _require(parts >= 1, "parts")
        _require(datasets["exact/remainders"].shape == (d, parts, parts), "remainders")
    _require(all(count * d <= 1 << 15 for count in groups.values()), "factors")
    for group in set(groups) - {"terms"}:
        for k, level in enumerate(levels):
            shape = datasets[f"{group}/factor_{k}"].shape
            _require(shape == (groups[group], n * 2**level), f"{group} factors")
    for k, level in enumerate(levels):
        if f"masses/axis_{k}" in datasets:
            _check_masses(datasets[f"masses/axis_{k}"], 2**level)


def _check_masses(blocks, cells):
    _require(len(blocks) == cells, "masses")
    for block in blocks:
        _require(np.abs(block - block.T).max() <= 1e-12 * np.abs(block).max(), "symmetric")
        _require(np.linalg.eigvalsh(block)[0] > 0.0, "positive definite")


def _check_operators(datasets, levels):
    table = datasets["terms/operators"]
    own, offsets = datasets["operators/level"].tolist(), datasets["operators/offsets"].tolist()
    rows, columns = datasets["operators/rows"].tolist(), datasets["operators/columns"].tolist()
    _require(len(rows) == len(columns) == len(datasets["operators/blocks"]), "pairs")
    _require(len(offsets) == len(own) + 1, "offsets")
    _require(offsets == sorted(offsets), "offsets rise")
    _require((offsets[0], offsets[-1]) == (0, len(rows)), "offsets ends")
    _require(set(table.ravel().tolist()) - {-1} == set(range(len(own))), "every operator occurs")
    for row in table.tolist():
        for operator, level in zip(row, levels, strict=True):
            _require(operator < 0 or own[operator] == level, "level of the axis")
    for first, last, level in zip(offsets, offsets[1:], own, strict=False):
        pairs = list(zip(rows[first:last], columns[first:last], strict=True))
        _require(all(a < b for a, b in pairwise(pairs)), "pairs sorted")
        _require(all(0 <= i < 2**level for pair in pairs for i in pair), "pairs in range")


def _read_json(text, kind):
    def pairs(entries):
        _require(len(dict(entries)) == len(entries), "repeated key")
        return dict(entries)

    def constant(name):
        raise Unsound(name)

    try:
        data = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except (ValueError, RecursionError):
        raise Unsound("JSON") from None
    _check_depth(data, 100)
    _require(isinstance(data, kind), "JSON kind")
    return data


def _check_depth(data, depth):
    _require(depth > 0, "JSON depth")
    if isinstance(data, float):
        _require(math.isfinite(data), "JSON number")
    entries = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    for entry in entries:
        _check_depth(entry, depth - 1)


def _check_time(data, depth=24):
    _require(depth > 0 and isinstance(data, dict), "time")
    kind, entries = data.get("kind"), set(data) - {"kind"}
    _require(isinstance(kind, str), "time kind")
    if kind in ELEMENTARY:
        _require(entries == set(ELEMENTARY[kind]), "time entries")
        _check_numbers([data[name] for name in entries])
    elif kind == "polynomial":
        _require(entries == {"coefficients"}, "time entries")
        _check_numbers(data["coefficients"])
    elif kind == "spline":
        _require(entries == {"times", "values", "order"}, "time entries")
        _check_numbers(data["times"])
        _check_numbers(data["values"])
        _require(len(data["times"]) == len(data["values"]) >= 2, "spline")
        times = [float(t) for t in data["times"]]
        _require(all(a < b for a, b in pairwise(times)), "times rise")
        _require(type(data["order"]) is int and 0 <= data["order"] <= 3, "order")
    elif kind == "product":
        _require(entries == {"coefficient", "factors"}, "time entries")
        _check_numbers([data["coefficient"]])
        _check_functions(data["factors"], depth)
    else:
        _require(kind == "sum" and entries == {"terms"}, "time kind or entries")
        _check_functions(data["terms"], depth)


def _check_functions(data, depth):
    _require(isinstance(data, list) and data, "time list")
    for child in data:
        _check_time(child, depth - 1)


def _check_numbers(data):
    _require(isinstance(data, list), "list of numbers")
    for number in data:
        _require(type(number) in (int, float), "number")
        try:
            _require(math.isfinite(float(number)), "finite")
        except OverflowError:
            raise Unsound("finite") from None
