"""Whether a loaded value is, bit by bit, what a content says."""

import json
import math
from functools import partial

import numpy as np
from scipy.interpolate import CubicSpline

from batchkron.problems import LinearProblem, Problem
from fuzzing.list_rules import list_pairs


def disagreement(loaded, document, *, provenance):
    """Name the first place where a loaded value is not what a content says, None if it is.

    `provenance`: whether that has to agree, too; it is outside the hash.
    """
    pairs = _problem_pairs if isinstance(loaded, Problem) else _state_pairs
    if isinstance(loaded, LinearProblem):
        pairs = partial(list_pairs, time_pairs=_time_pairs)
    for place, found, said in pairs(loaded, document.attributes, document.datasets):
        if place.startswith("provenance") and not provenance:
            continue
        if not _same(found, said):
            return f"{place} is {found!r}, and the file says {said!r}"
    return None


def _same(found, said):
    if isinstance(said, np.ndarray):
        same_kind = isinstance(found, np.ndarray) and found.dtype == said.dtype
        return same_kind and found.shape == said.shape and found.tobytes() == said.tobytes()
    if isinstance(said, float) and isinstance(found, float):
        return np.float64(said).tobytes() == np.float64(found).tobytes()
    return type(found) is type(said) and found == said


def _state_pairs(loaded, attributes, datasets):
    yield "u", loaded.u, datasets["u"]
    yield "history", loaded.history, json.loads(datasets["history"][0])
    for name, value in attributes.items():
        if name not in ("format", "format_version", "content_hash"):
            yield name, getattr(loaded, name), value
    for name in ("l2_error", "relative_error"):
        if hasattr(loaded, name) and name not in attributes:
            yield name, getattr(loaded, name), None


def _problem_pairs(loaded, attributes, datasets):
    yield "name", loaded.name, datasets["name"][0]
    yield "degree", loaded.degree, attributes["degree"]
    yield "t0", loaded.t0, attributes["t0"]
    names = [axis.name for axis in loaded.axes]
    yield "axes/name", names, list(datasets["axes/name"])
    for end in ("lower", "upper"):
        yield (
            f"axes/{end}",
            np.array([getattr(a, end) for a in loaded.axes]),
            datasets[f"axes/{end}"],
        )
    yield "grid/kind", loaded.grid.kind, datasets["grid/kind"][0]
    yield "grid/levels", list(loaded.grid.levels), datasets["grid/levels"].tolist()
    yield "grid/cells", loaded.grid.cells, datasets["grid/cells"]
    yield "initial", loaded.initial, datasets["initial"]
    stepper = loaded.stepper
    yield "stepper/method", stepper.method, datasets["stepper/method"][0]
    yield "stepper/dt", stepper.dt, float(datasets["stepper/dt"][0])
    yield "stepper/until", stepper.until, float(datasets["stepper/until"][0])
    yield "units", dict(loaded.units), json.loads(datasets["units"][0])
    provenance = json.loads(datasets["provenance/problem"][0])
    yield "provenance", dict(loaded.provenance), provenance
    for k, mass in enumerate(loaded.masses):
        yield f"masses/axis_{k}", mass, datasets.get(f"masses/axis_{k}")
    yield from _term_pairs(loaded.terms, datasets)
    yield from _vector_pairs("sources", loaded.sources, datasets)
    explicit = datasets.get("sources/explicit", np.zeros(len(loaded.sources)))
    for i, (source, said) in enumerate(zip(loaded.sources, explicit, strict=True)):
        yield f"sources/explicit[{i}]", source.explicit, bool(said)
    yield "exact", loaded.exact is None, "exact/time" not in datasets
    if loaded.exact is not None:
        yield "exact/remainders", loaded.exact.remainders, datasets["exact/remainders"]
        yield from _vector_pairs("exact", loaded.exact.parts, datasets)


def _term_pairs(terms, datasets):
    table, offsets = datasets["terms/operators"], datasets["operators/offsets"]
    yield "terms", len(terms), len(table)
    for t, (term, row) in enumerate(zip(terms, table.tolist(), strict=True)):
        yield from _time_pairs(f"terms/time[{t}]", term.time, datasets["terms/time"][t])
        side = datasets["terms/one_sided"][t]
        yield f"terms/one_sided[{t}]", (term.one_sided, term.keeps_sign), (side == 1, side == 2)
        for k, operator in enumerate(row):
            mode, place = term.modes[k], f"terms[{t}], axis {k}"
            yield place, mode is None, operator < 0
            if mode is not None:
                piece = slice(offsets[operator], offsets[operator + 1])
                yield f"{place}: level", mode.level, int(datasets["operators/level"][operator])
                for name in ("rows", "columns", "blocks"):
                    said = datasets[f"operators/{name}"][piece]
                    yield f"{place}: {name}", getattr(mode, name), said


def _vector_pairs(group, vectors, datasets):
    yield group, len(vectors), len(datasets[f"{group}/time"])
    for i, vector in enumerate(vectors):
        yield from _time_pairs(f"{group}/time[{i}]", vector.time, datasets[f"{group}/time"][i])
        for k, factor in enumerate(vector.factors):
            yield f"{group}/factor_{k}[{i}]", factor, datasets[f"{group}/factor_{k}"][i]


def _time_pairs(place, function, text):
    """The function's own description, or else its values: others are brought into normal form."""
    data = json.loads(text)
    if function.to_json() == data:
        yield place, function.to_json(), data
        return
    for t in (0.3, 0.9):
        try:
            found = function(t)
        except ValueError:
            found = math.nan  # outside a table
        said = _value(data, t)
        close = np.isclose(found, said, rtol=1e-9, atol=1e-12, equal_nan=True)
        is_extreme = not math.isfinite(said) or abs(said) > 1e100
        yield f"{place} at {t}", bool(close or is_extreme), True


def _value(data, t):
    """The function's value, by the schema's table."""
    kind = data["kind"]
    with np.errstate(all="ignore"):
        match kind:
            case "constant":
                value = data["value"]
            case "polynomial":
                value = sum(np.float64(c) * t**k for k, c in enumerate(data["coefficients"]))
            case "sin" | "cos":
                phase = np.float64(data["omega"]) * t + data["phase"]
                value = (np.sin if kind == "sin" else np.cos)(phase)
            case "exp":
                value = np.exp(np.float64(data["rate"]) * t)
            case "spline":
                times = data["times"]
                spline = CubicSpline(times, data["values"]).derivative(data["order"])
                value = spline(t) if times[0] <= t <= times[-1] else math.nan
            case "product":
                value = np.prod([_value(f, t) for f in data["factors"]]) * data["coefficient"]
            case "sum":
                value = sum(_value(f, t) for f in data["terms"])
    return float(value)
