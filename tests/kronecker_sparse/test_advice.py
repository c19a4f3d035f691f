"""Advice on ways to multiply: predicted times by the formula, the fastest way, measured cells."""

import itertools
import json
import math
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from batchkron import kronecker_sparse as ks

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
PATTERNS = [(1, 192, 48, 2), (6, 64, 64, 1), (1, 2, 2, 512), (3, 5, 7, 2), (1, 1, 1, 1)]
KINDS = [("cpu", "float32"), ("cpu", "float64"), ("cuda", "float16"), ("cuda", "float32")]


def table(device):
    package = resources.files("batchkron.kronecker_sparse.costs")
    return json.loads((package / f"{device}.json").read_text())


def times_by_hand(pattern, batch, dtype, layout, device):
    """The three times, written out from the documented formula."""
    a, b, c, d = pattern
    size = np.dtype(dtype).itemsize
    x, y = batch * a * c * d, batch * a * b * d
    work = {
        "batchkron": (size * (x + y + a * b * c * d), 2 * y * c, size * (x + y) * math.log2(d)),
        "bmm": (size * (x + y + a * b * c * d), 2 * y * c, size * (x + y) * (d > 1)),
        "dense": (size * (x + y + a * b * d * a * c * d), 2 * y * a * c * d, 0),
    }
    found = {}
    for way, (moved, flops, apart) in work.items():
        rates = table(device)["rates"][f"{dtype} {layout}"][way]
        memory = rates["byte"] * moved + rates["interleaved"] * apart
        found[way] = rates["start"] + (memory**4 + (rates["flop"] * flops) ** 4) ** 0.25
    if device == "cuda" and a == 1 and (d == 1 or layout == "batch-first"):
        found["batchkron"] = min(found["batchkron"], found["dense"])  # it may be the dense one
    return found


@pytest.mark.parametrize(("device", "dtype"), KINDS)
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_times_are_those_of_the_table(pattern, device, dtype):
    for layout, batch in itertools.product(("batch-first", "batch-last"), (1, 256, 25_088)):
        expected = times_by_hand(pattern, batch, dtype, layout, device)
        found = ks.advise(pattern, batch, dtype, layout, device)
        for way, seconds in expected.items():
            assert getattr(found, way) == pytest.approx(seconds, rel=1e-12)
        assert found.use == min(expected, key=expected.get)
        _, b, c, d = pattern
        assert found.ratio == pytest.approx(1 / b + 1 / c)
        assert found.interleaved_ratio == pytest.approx(d / b + d / c)


@pytest.mark.parametrize(("device", "dtype"), KINDS)
def test_from_a_number_of_vectors_on_ours_is_fastest(device, dtype):
    known = []
    for pattern, layout in itertools.product(PATTERNS, ("batch-first", "batch-last")):

        def use(batch, pattern=pattern, layout=layout):
            return ks.advise(pattern, batch, dtype, layout, device).use

        first = ks.advise(pattern, 7, dtype, layout, device).from_batch
        known.append(first)
        if first is None:
            assert use(2**40) != "batchkron"
            continue
        later = [first, first + 1, *(2**k for k in range(41) if 2**k > first)]
        assert {use(batch) for batch in later} == {"batchkron"}
        assert first == 1 or use(first - 1) != "batchkron"
    assert any(known)


def measured(name):
    """Cells of a file in which both times are known: arguments of advise, ours, dense."""
    for cell in json.loads((RESULTS / name).read_text())["cells"]:
        seconds = cell.get("seconds")
        if seconds is None:
            ways = {"batchkron": cell["ours"], **cell["peers"]}
            seconds = {k: v["microseconds"] for k, v in ways.items() if "microseconds" in v}
        if cell.get("threads", 1) == 1 and {"batchkron", "dense"} <= seconds.keys():
            arguments = (cell["pattern"], cell.get("batch", 25_088), cell["dtype"], cell["layout"])
            yield arguments, seconds["batchkron"], seconds["dense"]


@pytest.mark.parametrize(
    ("device", "names", "share"),
    [
        ("cpu", ["xeon-kronecker-sparse.json"], 0.97),
        ("cuda", ["h100-papers.json"], 0.965),
    ],
)
def test_the_faster_one_of_ours_and_dense_is_named(device, names, share):
    """In most cells of the files that the table was fitted to, up to 3 %; the aim is 97 %."""
    right = []
    for arguments, ours, dense in itertools.chain(*map(measured, names)):
        found = ks.advise(*arguments, device)
        named, other = (ours, dense) if found.batchkron <= found.dense else (dense, ours)
        right.append(named <= 1.03 * other)
    assert len(right) >= 40
    assert np.mean(right) >= share


def test_the_text_has_all_of_it():
    found = ks.advise((1, 48, 48, 64), 25_088, "float32", "batch-last", "cuda")
    lines = str(found).splitlines()
    assert lines[0] == (
        "3072×3072, pattern (1, 48, 48, 64), 25088 vectors, float32, batch-last, cuda"
    )
    assert f"batchkron {1e6 * found.batchkron:.3g}, bmm" in lines[1]
    assert table("cuda")["machine"] in lines[1]
    assert lines[2] == "  (b+c)/(bc) = 0.0417, d(b+c)/(bc) = 2.67"
    assert lines[3].startswith("  use batchkron; batchkron is fastest from ")
    never = ks.advise((1, 1024, 1024, 1), 25_088, "float32")
    assert never.from_batch is None
    assert str(never).endswith("fastest for no large number of vectors")
    with pytest.raises(AttributeError):
        found.use = "dense"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((1, 2, 3), 5), ValueError, "expected four integers"),
        (((1, 2, 3, 0), 5), ValueError, "each 1 or more"),
        (((1, 2, 3, 4.0), 5), TypeError, "expected four integers"),
        (((1, 2, 3, 4), 0), ValueError, "batch is 0; expected 1 or more"),
        (((1, 2, 3, 4), True), TypeError, "batch is True; expected an integer"),
        (((1, 2, 3, 4), 5, "float16"), TypeError, "float16; expected one of float32, float64 on c"),
        (((1, 2, 3, 4), 5, "complex64", "batch-last", "cuda"), TypeError, "one of float16, floa"),
        (((1, 2, 3, 4), 5, "bfloat16", "batch-last", "cuda"), TypeError, "dtype is bfloat16; exp"),
        (((1, 2, 3, 4), 5, "float32", "last"), ValueError, "layout is 'last'; expected 'batch-fi"),
        (((1, 2, 3, 4), 5, "float32", "batch-last", "gpu"), ValueError, "device is 'gpu'; expecte"),
    ],
)
def test_errors(arguments, error, message):
    with pytest.raises(error, match=message):
        ks.advise(*arguments)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_chains_are_listed_fastest_first(device):
    how = {"batch": 25_088, "dtype": "float32", "layout": "batch-last", "device": device}
    chains = ks.patterns(48, 64, (200, 900), **how)
    assert len(chains) > 20
    times = [
        sum(ks.advise(pattern, *how.values()).batchkron for pattern in chain) for chain in chains
    ]
    assert times == sorted(times)
    assert times[0] < 0.8 * times[-1]
    with pytest.raises(TypeError, match="dtype is complex128"):
        ks.patterns(4, 4, 8, dtype="complex128")
