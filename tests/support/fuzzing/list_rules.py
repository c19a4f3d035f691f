"""The schema of batch lists in problem files as plain rules, and what loaded lists say."""

import math
from collections import Counter

import numpy as np


def check_list(attributes, datasets, require):
    """Rules of the section on lists; ``require(condition, what)`` raises.

    Functions of time and JSON have rules of their own.
    """
    require(set(attributes) <= {"format", "format_version", "t0", "matrix_order"}, "attributes")
    require(type(attributes.get("t0", 0.0)) is float, "t0")
    order = attributes.get("matrix_order", "row-major")
    require(order in ("row-major", "column-major"), "matrix_order")
    ids = datasets.get("list/factor_ids")
    require(_has_kind(ids, np.int64) and ids.ndim == 2, "factor_ids")
    products, modes = ids.shape
    require(1 <= modes <= 31, "modes")
    _check_names(datasets, modes, require)
    sides = [1, 1]
    for k in range(modes):
        pool = datasets.get(f"list/pool_{k}")
        require(_is_numbers(pool, 3), f"pool_{k}")
        require(min(pool.shape[1:3]) >= 1, "sides of matrices")
        sides[0] *= pool.shape[1 if order == "row-major" else 2]
        sides[1] *= pool.shape[2 if order == "row-major" else 1]
        require(((ids[:, k] >= 0) & (ids[:, k] < len(pool))).all(), "factor_ids in range")
    initial = datasets.get("initial")
    require(_is_numbers(initial, 1), "initial")
    unknowns, blocks = len(initial), 0
    require(unknowns > 0, "unknowns")
    for name, size in (("outputs", sides[0]), ("inputs", sides[1])):
        places = datasets.get(f"list/{name}")
        require(_has_kind(places, np.int64) and places.shape == (products,), name)
        require(unknowns % size == 0, "whole blocks")
        blocks = unknowns // size
        require(((places >= 0) & (places < blocks)).all(), f"{name} in range")
    if "list/weights" in datasets:
        weights = datasets["list/weights"]
        require(_is_numbers(weights, 1) and len(weights) == products, "weights")
    _check_optional(datasets, unknowns, blocks, require)
    _check_states(datasets, modes, require)
    if "plan/groups" in datasets:
        _check_plan(datasets, modes, order == "column-major", require)


def _check_names(datasets, modes, require):
    allowed = {f"list/pool_{k}" for k in range(modes)}
    allowed |= {"list/factor_ids", "list/inputs", "list/outputs", "list/weights", "list/levels"}
    allowed |= {"list/cells", "initial", "blocks", "name", "provenance/file"}
    for group in (
        {"sources/time", "sources/vectors"},
        {"exact/time", "exact/vectors"},
        {"quantities/name", "quantities/weights"},
        {"stepper/method", "stepper/dt", "stepper/until"},
        {"plan/groups", "plan/partial", "plan/results"},
    ):
        allowed |= group
        require(len(group & set(datasets)) in (0, len(group)), "a group is whole")
    if "plan/groups" in datasets:
        allowed |= {"plan/weights"}
    require(set(datasets) <= allowed, "unknown dataset")


def _check_optional(datasets, unknowns, blocks, require):
    if "name" in datasets:
        require(_is_text(datasets["name"], 1) and datasets["name"][0] != "", "name")
    if "provenance/file" in datasets:
        require(_is_text(datasets["provenance/file"], 1), "provenance")
    if "blocks" in datasets:
        shape = datasets["blocks"]
        require(_has_kind(shape, np.int64) and shape.ndim == 1 and 1 <= len(shape) <= 32, "blocks")
        sizes = shape.tolist()
        require(min(sizes) >= 1 and math.prod(sizes) == unknowns, "blocks")
    levels, cells = datasets.get("list/levels"), datasets.get("list/cells")
    if levels is not None:
        require(_has_kind(levels, np.int64) and levels.ndim == 1, "levels")
        require(((levels >= 0) & (levels <= 30)).all(), "levels")
    if cells is not None:
        require(_has_kind(cells, np.int64) and cells.ndim == 2 and len(cells) == blocks, "cells")
        require(((cells >= 0) & (cells < 1 << 30)).all(), "cells")
        require(levels is None or cells.shape[1] == len(levels), "axes")
    for group in ("sources", "exact"):
        if f"{group}/time" in datasets:
            times, vectors = datasets[f"{group}/time"], datasets[f"{group}/vectors"]
            require(isinstance(times, tuple) and len(times) >= 1, group)
            require(_is_numbers(vectors, 2), group)
            require(vectors.shape[:2] == (len(times), unknowns), group)
    if "quantities/name" in datasets:
        names, weights = datasets["quantities/name"], datasets["quantities/weights"]
        require(isinstance(names, tuple) and len(names) >= 1, "quantities")
        require(len(set(names)) == len(names), "quantities")
        require(not {"", "norm", "error"} & set(names), "names of quantities")
        require(_is_real(weights) and weights.shape == (len(names), unknowns), "quantities")
    if "stepper/method" in datasets:
        require(_is_text(datasets["stepper/method"], 1), "method")
        require(datasets["stepper/method"][0] != "", "method")
        for name in ("dt", "until"):
            value = datasets[f"stepper/{name}"]
            require(_has_kind(value, np.float64) and value.shape == (1,), name)
        require(datasets["stepper/dt"][0] > 0.0, "dt")


def _check_states(datasets, modes, require):
    """Other vectors are complex, or as large as doubles may be, only where states are."""
    numbers = [("initial", 1), ("list/weights", 1), *((f"list/pool_{k}", 3) for k in range(modes))]
    given = [(datasets[path], axes) for path, axes in numbers if path in datasets]
    is_complex = any(_is_complex(value, axes) for value, axes in given)
    is_single = all(value.dtype == np.float32 for value, _ in given)
    for path in ("sources/vectors", "exact/vectors", "quantities/weights"):
        if path in datasets:
            require(is_complex or not _is_complex(datasets[path], 2), f"real {path}")
            largest = np.abs(datasets[path]).max(initial=0.0)
            require(not is_single or largest < 3.40282357e38, f"single {path}")


def _follow(edges, layers, blocks, counts, numbers, found, used, require):
    """Add the paths of a group to the products that were found, and its matrices to those used."""
    require(len(layers) < len(counts), "layers")
    require(sum(layers) <= len(edges[0]), "every partial product has an edge")
    layer = [k for k, count in enumerate([blocks, *layers]) for _ in range(count)]
    paths = {node: [(node, ())] for node in range(blocks)}
    for target, source, mode, matrix in sorted(edges[0]):
        require(blocks <= target < len(layer) and 0 <= source < len(layer), "nodes")
        require(0 <= mode < len(counts) and 0 <= matrix < counts[mode], "matrices")
        require(layer[source] == layer[target] - 1, "layer by layer")
        paths.setdefault(target, []).extend(
            (x, (*w, (mode, matrix))) for x, w in paths.get(source, ())
        )
        used.add((mode, matrix))
    require(len(paths) == len(layer), "every partial product has an edge")
    for output, source, mode, matrix, weight in edges[1]:
        require(0 <= output < blocks and 0 <= source < len(layer), "nodes of results")
        require(-1 <= mode < len(counts), "modes of results")
        require(0 <= matrix < (1 if mode < 0 else counts[mode]), "matrices of results")
        require(0 <= weight <= numbers.max(initial=0), "weights of results")
        last = () if mode < 0 else ((mode, matrix),)
        used.update(last)
        for x, word in paths[source]:
            found[x, output, tuple(sorted(word + last)), weight] += 1


def _check_plan(datasets, modes, turned, require):
    """A plan's paths are the list's products, each as often as the list has it."""
    groups, partial, results = (datasets[f"plan/{k}"] for k in ("groups", "partial", "results"))
    for table, columns in ((groups, None), (partial, 4), (results, 5)):
        require(_has_kind(table, np.int64) and table.ndim == 2, "tables of a plan")
        require(columns is None or table.shape[1] == columns, "columns of edges")
    require(groups.shape[1] >= 2 and len(groups) >= 1 and (groups >= 0).all(), "groups")
    for column, table in enumerate((partial, results)):
        require(sum(groups[:, column].tolist()) == len(table), "all edges are of a group")
    ids = datasets["list/factor_ids"]
    products = len(ids)
    numbers = datasets.get("plan/weights", np.zeros(products, np.int64))
    require(_has_kind(numbers, np.int64) and numbers.shape == (products,), "numbers of weights")
    require(((numbers >= 0) & (numbers < products)).all(), "numbers of weights")
    pools = [_numbers(datasets[f"list/pool_{k}"], 3) for k in range(modes)]
    require(all(pool.shape[1] == pool.shape[2] for pool in pools), "square factors")
    blocks = len(datasets["initial"]) // math.prod(pool.shape[1] for pool in pools)
    found, used = Counter(), set()
    for group in groups.tolist():
        own = partial[: group[0]].tolist(), results[: group[1]].tolist()
        partial, results = partial[group[0] :], results[group[1] :]
        _follow(
            own, group[2:], blocks, [len(pool) for pool in pools], numbers, found, used, require
        )
    given = datasets.get("list/weights")
    weights = np.ones(products) if given is None else _numbers(given, 1)
    dtype = np.result_type(*pools, *(() if given is None else (weights,)))
    expected, totals = Counter(), {}
    for b, row in enumerate(ids.tolist()):
        word, total = [], weights[b : b + 1].astype(dtype)
        for letter in enumerate(row):
            own = pools[letter[0]][letter[1]].astype(dtype)
            is_multiple = own[0, 0] != 0 and (own == own[0, 0] * np.eye(len(own))).all()
            if letter in used or not is_multiple:
                word.append(letter)
            else:
                total = total * own[0, 0]
        require(totals.setdefault(numbers[b], total) == total, "equal weights")
        places = datasets["list/inputs"][b], datasets["list/outputs"][b]
        expected[(*map(int, places), tuple(word), int(numbers[b]))] += 1
    require(found == expected, "the list's products")


def _is_complex(value, axes):
    return isinstance(value, np.ndarray) and value.ndim == axes + 1


def _has_kind(value, kind):
    return isinstance(value, np.ndarray) and value.dtype == kind


def _is_real(value):
    return isinstance(value, np.ndarray) and value.dtype in (np.float32, np.float64)


def _is_numbers(value, axes):
    """Whether a dataset has real numbers along so many axes, or pairs for complex ones."""
    if not _is_real(value):
        return False
    return value.ndim == axes or (value.ndim == axes + 1 and value.shape[-1] == 2)


def _is_text(value, count):
    return isinstance(value, tuple) and len(value) == count


def list_pairs(loaded, attributes, datasets, time_pairs):
    """Places of a loaded list, each with what was found and what the file says."""
    yield "name", loaded.name, datasets.get("name", ("list",))[0]
    yield "t0", loaded.t0, attributes.get("t0", 0.0)
    spec = loaded.operator._spec
    yield "factor_ids", spec.factor_ids, datasets["list/factor_ids"]
    yield "inputs", spec.inputs, datasets["list/inputs"]
    yield "outputs", spec.outputs, datasets["list/outputs"]
    turned = attributes.get("matrix_order") == "column-major"
    for k, pool in enumerate(spec.pools):
        said = _numbers(datasets[f"list/pool_{k}"], 3)
        said = said.swapaxes(1, 2) if turned else said
        yield f"pool_{k}", pool[0], np.ascontiguousarray(said, pool.dtype)
    count = len(spec.inputs)
    weights = _numbers(datasets.get("list/weights", np.ones(count)), 1)
    yield "weights", spec.weights[0], weights.astype(spec.dtype)
    dtype = loaded.initial.dtype
    yield "initial", loaded.initial, _numbers(datasets["initial"], 1).astype(dtype)
    if "blocks" in datasets:
        yield "blocks", list(loaded.blocks), datasets["blocks"].tolist()
    for name in ("levels", "cells"):
        yield name, getattr(loaded, name), datasets.get(f"list/{name}")
    for group, given in (("sources", loaded._source), ("exact", loaded._exact)):
        texts = datasets.get(f"{group}/time", ())
        yield group, len(given.parts), len(texts)
        for k, ((function, vector), text) in enumerate(zip(given.parts, texts, strict=True)):
            yield from time_pairs(f"{group}/time[{k}]", function, text)
            said = _numbers(datasets[f"{group}/vectors"], 2)[k].astype(dtype)
            yield f"{group}/vectors[{k}]", vector, said
    names = datasets.get("quantities/name", ())
    yield "quantities", list(loaded._weights), list(names)
    for k, name in enumerate(names):
        said = datasets["quantities/weights"][k].astype(loaded.initial.real.dtype)
        yield f"quantities[{name}]", loaded._weights[name], said
    yield "stepper", loaded.stepper is None, "stepper/method" not in datasets
    if loaded.stepper is not None:
        yield "method", loaded.stepper.method, datasets["stepper/method"][0]
        yield "dt", loaded.stepper.dt, float(datasets["stepper/dt"][0])
        yield "until", loaded.stepper.until, float(datasets["stepper/until"][0])


def _numbers(array, axes):
    if array.ndim == axes:
        return array
    kind = np.complex64 if array.dtype == np.float32 else np.complex128
    return np.ascontiguousarray(array).view(kind)[..., 0]
