"""Changes of what a file says, written the way its writer would: every checksum is right."""

import json

import numpy as np
from crafted_files import unchecked_document

INTEGERS = (0, 1, -1, 2, 3, 7, 8, 30, 31, 63, 64, 255, 1 << 31, 1 << 62, -(1 << 63), (1 << 63) - 1)
REALS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 5e-324, 1e300, -1e308, np.nan, np.inf, -np.inf, 1 + 2**-52,
)  # fmt: skip
NAMES = (
    "u", "initial", "more", "grid/cells", "exact/time", "masses/axis_0", "sources/factor_2",
    "blocks", "list/weights", "list/pool_2", "list/cells", "quantities/name", "plan/groups",
)  # fmt: skip
WORDS = (
    "",
    "x",
    "t",
    "sparse",
    "full",
    "rk4",
    "α",
    "a\0b",
    "a b",
    "1",
    "null",
    "[]",
    "{}",
    "batchkron",
)


def rewrite(document, rng):
    """Return the document with one to three changes, and their names."""
    attributes, datasets = dict(document.attributes), dict(document.datasets)
    names = []
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        change = CHANGES[int(rng.integers(len(CHANGES)))]
        with np.errstate(all="ignore"):
            change(attributes, datasets, rng)
        names.append(change.__name__)
    return unchecked_document(attributes, datasets), "+".join(names)


def change_number(attributes, datasets, rng):
    path, value = _any(datasets, rng, _is_array)
    if path is None:
        return
    value = value.copy()
    place = int(rng.integers(value.size))
    if value.dtype.kind == "f":
        choices = (*REALS, value.flat[place] + 1.0, -value.flat[place], rng.normal())
    else:
        choices = (*INTEGERS, int(value.flat[place]) + 1, int(value.flat[place]) - 1)
        choices = [c for c in choices if -(2**63) <= c < 2**63]
    value.flat[place] = _pick(choices, rng)
    datasets[path] = value


def change_last_bit(attributes, datasets, rng):
    path, value = _any(datasets, rng, _is_array)
    if path is not None:
        value = value.copy()
        value.view(f"i{value.itemsize}").flat[int(rng.integers(value.size))] ^= 1
        datasets[path] = value


def change_rows(attributes, datasets, rng):
    path, value = _any(datasets, rng, lambda v: _is_array(v) or isinstance(v, tuple))
    if path is None:
        return
    count = len(value)
    row = int(rng.integers(count))
    orders = (
        [k for k in range(count) if k != row],
        [*range(count), row],
        [row, *range(count)],
        list(range(count))[::-1],
        rng.permutation(count).tolist(),
        [],
    )
    order = _pick(orders, rng)
    is_array = _is_array(value)
    datasets[path] = (
        value[np.array(order, dtype=int)] if is_array else tuple(value[k] for k in order)
    )


def change_rows_of_a_group(attributes, datasets, rng):
    """Keep a group's tables in step: fewer, more or permuted sources, terms, operators, …."""
    known = ("terms", "sources", "exact", "operators", "list", "quantities", "plan")
    groups = [g for g in known if _in_group(datasets, g)]
    if not groups:
        return change_rows(attributes, datasets, rng)
    group = _pick(groups, rng)
    paths = _in_group(datasets, group)
    count = min(len(datasets[path]) for path in paths)
    if not count:
        return None
    order = rng.integers(count, size=int(rng.integers(0, 2 * count + 1)))
    if rng.random() < 0.5:
        order = rng.permutation(count)
    for path in paths:
        value = datasets[path]
        if path == "exact/remainders":
            continue
        datasets[path] = value[order] if _is_array(value) else tuple(value[k] for k in order)
    return None


def change_shape(attributes, datasets, rng):
    path, value = _any(datasets, rng, _is_array)
    if path is None:
        return
    shapes = (
        value.reshape(-1),
        value[None],
        value[..., None],
        np.ascontiguousarray(value.T),
        value[..., :-1] if value.shape[-1] > 1 else value,
        np.concatenate((value, value), axis=-1),
        value[:0],
        value.reshape(-1, 1),
    )
    datasets[path] = _pick(shapes, rng)


def change_kind(attributes, datasets, rng):
    path = _pick(list(datasets), rng)
    value = datasets[path]
    if isinstance(value, tuple):
        datasets[path] = np.arange(1.0, 1.0 + max(1, len(value)))
        return
    kinds = [k for k in ("f8", "f4", "i8") if np.dtype(k) != value.dtype]
    datasets[path] = value.astype(_pick(kinds, rng)) if rng.random() < 0.8 else ("1", "2")


def swap_datasets(attributes, datasets, rng):
    first, second = _pick(list(datasets), rng), _pick(list(datasets), rng)
    datasets[first], datasets[second] = datasets[second], datasets[first]


def copy_dataset(attributes, datasets, rng):
    datasets[_pick(list(datasets), rng)] = datasets[_pick(list(datasets), rng)]


def remove_dataset(attributes, datasets, rng):
    if len(datasets) > 1:
        del datasets[_pick(list(datasets), rng)]


def rename_dataset(attributes, datasets, rng):
    old, new = _pick(list(datasets), rng), _pick(NAMES, rng)
    if not any(path.startswith(f"{new}/") or new.startswith(f"{path}/") for path in datasets):
        datasets[new] = datasets.pop(old)


def add_dataset(attributes, datasets, rng):
    name = _pick(NAMES, rng)
    datasets[name] = _pick((np.ones(1), ("{}",), np.arange(4), np.ones((4, 2, 2))), rng)


def change_attribute(attributes, datasets, rng):
    name = _pick(list(attributes), rng)
    value = attributes[name]
    if isinstance(value, str):
        formats = ("batchkron-problem", "batchkron-result", "batchkron-checkpoint")
        attributes[name] = _pick((*WORDS, *formats, value + "x", "y" * 4000), rng)
    elif isinstance(value, int):
        attributes[name] = int(_pick((*INTEGERS, value - 1), rng))
    else:
        attributes[name] = float(_pick((*REALS, -value, value + 1e-9), rng))


def retype_attribute(attributes, datasets, rng):
    attributes[_pick(list(attributes), rng)] = _pick((1, 1.0, "1", 0, -1), rng)


def drop_attribute(attributes, datasets, rng):
    del attributes[_pick(list(attributes), rng)]


def add_attribute(attributes, datasets, rng):
    name = _pick(("l2_error", "relative_error", "more", "step", "dtype", "t", "matrix_order"), rng)
    attributes[name] = _pick((1, 0.25, "float64", "column-major"), rng)


def change_text(attributes, datasets, rng):
    path, value = _any(datasets, rng, lambda v: isinstance(v, tuple))
    if path is None:
        return
    row = int(rng.integers(len(value)))
    text = value[row]
    place = int(rng.integers(len(text) + 1))
    texts = (
        _pick(WORDS, rng),
        text[:place] + text[place + 1 :],
        text[:place] + _pick('{}[],:"0e-.\\ \n\t∫', rng) + text[place:],
        text[:place],
        text + text,
        text.replace("e", "ē"),
    )
    datasets[path] = (*value[:row], _pick(texts, rng), *value[row + 1 :])


def change_json(attributes, datasets, rng):
    """Change one place of a JSON text that stays JSON."""
    path, value = _any(datasets, rng, lambda v: isinstance(v, tuple) and v[0][:1] in ("{", "["))
    if path is None:
        return
    row = int(rng.integers(len(value)))
    try:
        data = json.loads(value[row])
    except ValueError:
        return
    text = json.dumps(_changed_json(data, rng), ensure_ascii=bool(rng.integers(2)))
    datasets[path] = (*value[:row], text, *value[row + 1 :])


def another_time(attributes, datasets, rng):
    """Put any function of time, sound or not, in place of one."""
    times = {path: datasets[path] for path in datasets if path.endswith("/time")}
    path, value = _any(times, rng, lambda v: isinstance(v, tuple))
    if path is None:
        return
    row = int(rng.integers(len(value)))
    data = _random_time(rng, int(_pick((1, 2, 3, 12, 30), rng)))
    if rng.random() < 0.4:
        data = _changed_json(data, rng)
    datasets[path] = (*value[:row], json.dumps(data), *value[row + 1 :])


CHANGES = (
    change_number, change_number, change_number, change_last_bit, change_rows,
    change_rows_of_a_group, change_shape, change_kind, swap_datasets, copy_dataset,
    remove_dataset, rename_dataset, add_dataset, change_attribute, change_attribute,
    retype_attribute, drop_attribute, add_attribute, change_text, change_json, change_json,
    another_time, another_time,
)  # fmt: skip


def _pick(choices, rng):
    return choices[int(rng.integers(len(choices)))]


def _is_array(value):
    return isinstance(value, np.ndarray)


def _any(datasets, rng, condition):
    """Any dataset that has elements and fulfils a condition."""
    paths = [path for path, value in datasets.items() if np.size(value) and condition(value)]
    path = _pick(paths, rng) if paths else None
    return path, datasets.get(path)


def _in_group(datasets, group):
    if group == "operators":
        return [
            p for p in ("operators/rows", "operators/columns", "operators/blocks") if p in datasets
        ]
    return [path for path in datasets if path.startswith(f"{group}/")]


def _random_number(rng):
    return _pick((0, 1, -1, 2.0, 0.0, 1e300, 1e-300, 12345678901234567890, rng.normal()), rng)


def _random_time(rng, depth):
    kind = _pick(("constant", "polynomial", "sin", "cos", "exp", "spline", "product", "sum"), rng)
    if depth > 3:
        kind = _pick(("product", "sum"), rng)
    if kind in ("product", "sum"):
        count = 1 if depth > 3 else int(rng.integers(0 if rng.random() < 0.1 else 1, 4))
        children = [_random_time(rng, depth - 1) for _ in range(count)] if depth > 1 else []
        children = children or [{"kind": "exp", "rate": -1.0}]
        if kind == "sum":
            return {"kind": kind, "terms": children}
        return {"kind": kind, "coefficient": _random_number(rng), "factors": children}
    if kind == "spline":
        times = np.cumsum(rng.random(int(rng.integers(1, 6)))).tolist()
        values = rng.normal(size=len(times)).tolist()
        return {"kind": kind, "times": times, "values": values, "order": int(rng.integers(5))}
    if kind == "polynomial":
        coefficients = [_random_number(rng) for _ in range(int(rng.integers(4)))]
        return {"kind": kind, "coefficients": coefficients}
    entries = {"constant": ("value",), "exp": ("rate",)}.get(kind, ("omega", "phase"))
    return {"kind": kind, **{name: _random_number(rng) for name in entries}}


def _changed_json(data, rng):
    """Change one entry somewhere inside."""
    odd = (None, True, False, 0, -1, 1.5, 1e308, 10**400, "x", "", [], {}, [[]], {"kind": "sin"})
    if isinstance(data, dict) and data and rng.random() < 0.8:
        name = _pick(list(data), rng)
        action = rng.random()
        if action < 0.15:
            return {key: entry for key, entry in data.items() if key != name}
        if action < 0.25:
            return {**data, _pick(("more", "kind", "value", ""), rng): _pick(odd, rng)}
        return {**data, name: _changed_json(data[name], rng)}
    if isinstance(data, list) and data and rng.random() < 0.8:
        place = int(rng.integers(len(data)))
        if rng.random() < 0.3:
            return data[:place] + data[place + 1 :]
        return [*data[:place], _changed_json(data[place], rng), *data[place + 1 :]]
    return _pick(odd, rng)
