"""The papers' tables without a device: patterns, baselines, runs that go on, shares, energies."""

import importlib
import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import source_benchmarks

PATTERNS = [(1, 3, 5, 2), (2, 4, 6, 1), (3, 8, 4, 5), (1, 6, 6, 1), (2, 1, 3, 4)]


def pattern_module():
    return source_benchmarks.module("patterns")


def baselines_in_torch():
    return source_benchmarks.module("gpu.peers.torch_sparse")


def papers(name):
    return source_benchmarks.module(f"papers.{name}")


def test_patterns_are_those_of_the_paper():
    patterns = pattern_module()
    times = patterns.time_patterns()
    assert len(times) == len(set(times)) == 627
    assert sum(a == 1 for a, *_ in times) == 299
    assert [sum(b == c for _, b, c, _ in times), sum(b == 4 * c for _, b, c, _ in times)] == [
        357,
        135,
    ]
    ratios = {patterns.ratio(one) for one in times}
    assert len(ratios) == 16
    assert (min(ratios), max(ratios)) == pytest.approx((0.00195, 0.04167), rel=0.01)
    assert max(a * max(b, c) * d for a, b, c, d in times) == 73728
    assert len(patterns.energy_patterns()) == 651


def test_the_first_patterns_are_a_fair_sample():
    patterns = pattern_module()
    times = patterns.time_patterns()
    by_ratio = sorted(times, key=patterns.ratio)
    middle = by_ratio[len(times) // 2]
    for part in [(1, 1), (1, 4), (3, 4), (4, 4)]:
        order = patterns.fair_order(times, part)
        assert order == patterns.fair_order(times[::-1], part)
        for count in (16, 50, 100, len(order)):
            few = order[:count]
            low = sum(patterns.ratio(one) < patterns.ratio(middle) for one in few)
            exact = sum(patterns.ratio(one) < patterns.ratio(middle) for one in times)
            assert abs(low / len(few) - exact / len(times)) < 0.05 + 1 / len(few)
        assert len({patterns.ratio(one) for one in order[:60]}) == 16
    parts = [patterns.fair_order(times, (k, 4)) for k in range(1, 5)]
    assert sorted(itertools.chain(*parts)) == sorted(times)
    assert patterns.fair_order([]) == []


def reference(values, x, layout):
    """Row by row of the definition: K[ibd + kd + j, icd + ld + j] = v[i, k, l, j]."""
    a, b, c, d = values.shape
    matrix = np.zeros((a * b * d, a * c * d))
    for i, k, l_, j in np.ndindex(a, b, c, d):
        matrix[(i * b + k) * d + j, (i * c + l_) * d + j] = values[i, k, l_, j]
    return x @ matrix.T if layout == "batch-first" else matrix @ x


def vectors(rng, pattern, layout, batch=7):
    a, _, c, d = pattern
    x = rng.standard_normal((batch, a * c * d))
    return x if layout == "batch-first" else np.ascontiguousarray(x.T)


@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_baselines_compute_the_product(rng, pattern, layout):
    fake, baselines = (
        importlib.import_module("fake_torch"),
        baselines_in_torch(),
    )
    values, x = rng.standard_normal(pattern), vectors(rng, pattern, layout)
    expected = reference(values, x, layout)
    for name, make in baselines.MAKERS.items():
        found = make(fake, fake.Tensor(values), fake.Tensor(x), layout)().array
        if name == "bmm, multiply alone":
            found = baselines.permuted_output(fake.Tensor(values), fake.Tensor(found), layout).array
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.filterwarnings("ignore:Sparse ")  # of invariants that are not checked, of CSR
@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
def test_torch_computes_the_same(rng, layout):
    torch, baselines = (
        pytest.importorskip("torch"),
        baselines_in_torch(),
    )
    for pattern in PATTERNS:
        values, x = rng.standard_normal(pattern), vectors(rng, pattern, layout)
        for name, make in baselines.MAKERS.items():
            if name in ("bsr", "bmm, multiply alone"):
                continue
            found = make(torch, torch.from_numpy(values), torch.from_numpy(x), layout)()
            expected = reference(values, x, layout)
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


class Bench:
    """A device whose contenders take the times that a test gives, in NumPy."""

    def __init__(self, seconds, wrong=(), refused=(), power=200.0):
        self.machine, self.module = {"device": "fake", "commit": "abc"}, np
        self.seconds, self.wrong, self.refused, self.power = seconds, wrong, refused, power
        self.calls, self.compiled, self.lost = [], [], False

    def compile(self, keys):
        self.compiled.append(list(keys))

    def prepare(self, given):
        a, _, c, d = given.key[0]
        x = given.few[given.repeated].reshape(-1, a, c, d)
        y = np.einsum("nacd,abcd->nabd", x, given.values).reshape(len(x), -1)
        y = y if given.key[3] == "batch-first" else y.T

        def make(name):
            if name in self.refused:
                raise RuntimeError("no kernel")
            return SimpleNamespace(name=name, result=y + (name in self.wrong))

        return {name: (lambda name=name: make(name)) for name in self.seconds}

    def run(self, call):
        assert call.result.shape
        return call.result

    def vectors(self, result, given):
        first = given.key[3] == "batch-first"
        return (result[given.sampled] if first else result[:, given.sampled].T).astype(float)

    def once(self, call):
        self.calls.append(("once", call.name))
        return self.seconds[call.name]

    def repeated(self, call):
        self.calls.append(("repeated", call.name))
        return self.seconds[call.name]

    def watts(self, call, seconds):
        assert seconds == self.seconds[call.name]
        return self.power

    def release(self):
        self.calls.append(("release", ""))
        if self.lost:
            raise papers("results").DeviceLostError("an illegal access")


TIMES = {
    "batchkron": 1.0,
    "bmm": 2.0,
    "einsum": 3.0,
    "bsr": 2.5,
    "dense": 9.0,
    "sparse": 2.8,
    "bmm, multiply alone": 1.5,
}


def measured(tmp_path, bench, keys, **options):
    results = papers("results").Results(tmp_path / "cells.json", bench.machine)
    names = options.pop("names", papers("results").NAMES)
    found = list(papers("results").measure_missing(bench, results, keys, names, **options))
    return results, found


def keys_of(dtypes=("float32",)):
    return papers("results").keys_of(PATTERNS[:3], 40, dtypes)


def test_slow_contenders_stop_early_and_wrong_ones_have_no_time(tmp_path):
    bench = Bench(TIMES, wrong=["einsum"], refused=["bsr"])
    _, cells = measured(tmp_path, bench, keys_of(), energy=True)
    assert len(cells) == 6
    for cell in cells:
        assert cell.stopped_early == ["dense"]
        assert cell.commit == "abc"
        assert cell.seconds == {k: v for k, v in TIMES.items() if k not in ("einsum", "bsr")}
        assert cell.failed["einsum"].startswith("ArithmeticError: wrong result")
        assert cell.failed["bsr"] == "RuntimeError: no kernel"
        assert cell.failed["dense energy"] == "not measured: too slow"
        assert cell.joules == {"batchkron": 200.0, "bmm": 400.0, "sparse": 560.0}
    assert ("repeated", "dense") not in bench.calls
    assert bench.calls.count(("once", "dense")) == len(cells)
    first = next(name for kind, name in bench.calls if kind == "once")
    assert first == "batchkron"


def test_runs_append_and_go_on_where_the_last_one_ended(tmp_path):
    ticks = itertools.count()
    bench = Bench(TIMES)
    _, first = measured(tmp_path, bench, keys_of(), seconds=3, clock=lambda: next(ticks))
    assert 0 < len(first) < 6
    assert bench.compiled == [keys_of()]
    _, second = measured(tmp_path, bench, keys_of())
    assert len(first) + len(second) == 6
    assert bench.compiled[1] == keys_of()[len(first) :]
    results, none = measured(tmp_path, Bench({}), keys_of())
    assert not none
    assert len(results.cells) == 6
    _, energies = measured(tmp_path, bench, keys_of(), energy=True)
    assert len(energies) == 6
    assert all(cell.joules["batchkron"] == 200.0 for cell in energies)
    stored = json.loads((tmp_path / "cells.json").read_text())
    assert stored["machine"]["device"] == "fake"
    assert len(stored["cells"]) == 6
    assert not list(tmp_path.glob("*.part"))
    with pytest.raises(SystemExit, match="has times of fake, this is other"):
        papers("results").Results(tmp_path / "cells.json", {"device": "other"})


def test_a_cell_that_cannot_be_prepared_fails_and_the_next_goes_on(tmp_path):
    bench = Bench(TIMES)
    prepare, left = bench.prepare, iter([MemoryError("no room")])

    def prepare_later(given):
        for error in left:
            raise error
        return prepare(given)

    bench.prepare = prepare_later
    _, cells = measured(tmp_path, bench, keys_of())
    assert set(cells[0].failed.values()) == {"MemoryError: no room"}
    assert set(cells[0].failed) == set(TIMES)
    assert all(set(one.seconds) == set(TIMES) for one in cells[1:])


def test_a_lost_device_ends_the_run_and_the_next_one_leaves_out_what_lost_it(tmp_path):
    bench = Bench(TIMES, refused=["einsum"])
    bench.lost = True
    with pytest.raises(papers("results").DeviceLostError):
        measured(tmp_path, bench, keys_of())
    (written,) = json.loads((tmp_path / "cells.json").read_text())["cells"]
    assert set(written["failed"]) == {"einsum"}
    assert set(written["seconds"]) == {"batchkron", "bmm"}
    _, cells = measured(tmp_path, Bench(TIMES), keys_of())
    assert set(cells[0].seconds) == set(TIMES) - {"einsum"}
    assert len(cells) == 6


@pytest.mark.parametrize("batch", [1, 7, 96, 97, 98, 1000, 2048])
def test_compared_vectors_are_those_of_the_batch(batch):
    measuring = papers("results")
    for dtype, layout in itertools.product(("float16", "float32"), ("batch-first", "batch-last")):
        given = measuring.problem(((2, 4, 6, 3), batch, dtype, layout))
        assert given.values.dtype == given.few.dtype == dtype
        assert given.values.shape == (2, 4, 6, 3)
        assert np.abs(given.values).max() <= 1 / np.sqrt(6) * (1 + 2**-10)
        assert batch - 1 in given.sampled
        assert given.sampled.min() >= 0
        np.testing.assert_array_equal(given.repeated[given.sampled], given.chosen)
        x = given.few[given.chosen].astype("f8")
        expected = reference(given.values.astype("f8"), x, "batch-first")
        np.testing.assert_allclose(given.expected, expected, rtol=1e-13, atol=1e-13)
        magnitudes = reference(np.abs(given.values.astype("f8")), np.abs(x), "batch-first")
        assert (given.bound > 2 * measuring.EPS[dtype] * magnitudes).all()
        assert (given.bound < 50 * measuring.EPS[dtype] * (magnitudes + 1)).all()


def test_files_of_earlier_versions_are_read(tmp_path):
    path, (pattern, *_) = tmp_path / "cells.json", PATTERNS
    known = {"pattern": pattern, "batch": 40, "dtype": "float32", "layout": "batch-last"}
    old = {**known, "seconds": {"bmm": 1.0}, "vectors": {"bmm": 2560}, "phases": {"check": 1.0}}
    path.write_text(json.dumps({"machine": {"device": "fake"}, "cells": [old]}))
    (found,) = papers("results").Results(path).cells.values()
    assert (found.pattern, found.seconds) == (pattern, {"bmm": 1.0})


def cell(pattern, layout, seconds, dtype="float32", joules=()):
    made = papers("results").Cell(pattern, 40, dtype, layout)
    made.seconds, made.joules = dict(seconds), dict(joules)
    return made


def test_shares_and_gains_are_those_of_the_papers_definition():
    table = papers("kronecker_sparse")
    one, two, three = PATTERNS[:3]
    cells = [
        cell(one, "batch-first", {"batchkron": 4.0, "bmm": 3.0, "dense": 9.0}),
        cell(one, "batch-last", {"batchkron": 1.0, "bmm": 2.0, "dense": 8.0}),
        cell(two, "batch-first", {"batchkron": 3.0, "bmm": 2.0, "sparse": 12.0}),
        cell(two, "batch-last", {"batchkron": 4.0, "bmm": 5.0}),
        cell(three, "batch-last", {"batchkron": 1.0, "bmm": 5.0}),
    ]
    better = papers("results").least(cells, "float32")
    assert set(better) == {one, two}
    assert better[one] == {"batchkron": 1.0, "bmm": 2.0, "dense": 8.0}
    assert table.outcome(better.values(), ["batchkron"], ["bmm", "dense"]) == (
        2,
        1,
        2.0,
        pytest.approx((2 + 2 / 3) / 2),
    )
    assert table.outcome(better.values(), ["batchkron", "bmm"], ["dense"])[:3] == (1, 1, 8.0)
    count, ahead, gain, _ = table.outcome(
        papers("results").least(cells, "float32", "batch-last").values(), ["batchkron"], ["bmm"]
    )
    assert (count, ahead, gain) == (3, 3, 2.0)
    lines = "\n".join(table.table(cells)).splitlines()
    assert len(lines) == 2 + len(table.CLAIMS)
    assert "| 3 | float32 | the better one | batchkron |" in "\n".join(lines)
    assert any("88.1 | 100.0 | 1.39 | 2.00" in text for text in lines)
    assert all("–" in text for text in lines if "float16" in text)
    (lost, also) = table.lost(cells)
    assert lost.startswith(f"{two} float32 batch-first: 0.67 × bmm")
    assert also.startswith(f"{one} float32 batch-first: 0.75 × bmm")
    assert math.isnan(table.outcome([], ["batchkron"], ["bmm"])[2])


def test_short_calls_are_repeated_though_a_single_one_is_slow(tmp_path):
    bench = Bench({name: 1e-4 * seconds for name, seconds in TIMES.items()})
    _, cells = measured(tmp_path, bench, keys_of()[:1])
    assert cells[0].stopped_early == []
    assert ("repeated", "dense") in bench.calls


def test_rewrites_are_a_share_of_bmm(tmp_path):
    rewrites = papers("rewrites")
    cells = [
        cell(pattern, layout, {"bmm": 4.0, "bmm, multiply alone": alone})
        for pattern, alone in zip(PATTERNS, (3.0, 2.0, 1.0, 3.5, 4.0), strict=True)
        for layout in ("batch-first", "batch-last")
    ]
    once = cell(PATTERNS[0], "batch-first", {"bmm": 40.0, "bmm, multiply alone": 3.0})
    once.stopped_early.append("bmm")
    found = rewrites.shares([*cells, once], "float32", "batch-first")
    assert found[8 / 15] == [25.0]
    assert sorted(itertools.chain(*found.values())) == [0.0, 12.5, 25.0, 50.0, 75.0]
    lines = "\n".join(rewrites.table(cells)).splitlines()
    assert lines[0].count("float32") == 2
    assert lines[-1].endswith("| 75 | 75 |")
    pytest.importorskip("matplotlib")
    rewrites.draw(cells, tmp_path / "rewrites.svg")
    assert "bmm's time" in (tmp_path / "rewrites.svg").read_text()


def test_speedups_by_ratio_size_and_layout(tmp_path):
    speedups = papers("speedups")
    one, two, three = (1, 4, 4, 1), (2, 4, 4, 100), (1, 3, 5, 2)  # M N: 16, 640 000, 60
    first = {"batchkron": 2.0, "bmm": 4.0, "einsum": 8.0, "dense": 3.0, "sparse": 40.0}
    last = {"batchkron": 4.0, "bmm": 3.0, "einsum": 2.0, "dense": 6.0, "sparse": 10.0}
    slow = {"batchkron": 6.0, "bmm": 3.0, "bsr": 6.0, "dense": 1.0}
    cells = [
        cell(one, "batch-first", first),
        cell(one, "batch-last", last),
        cell(two, "batch-first", slow),
        cell(two, "batch-last", slow),
        cell(three, "batch-last", last),
    ]
    times = papers("results").least(cells, "float32")
    assert set(times) == {one, two}  # of the third one a layout is missing
    assert speedups.gains_by_ratio(times) == {0.5: [1.0]}  # of `two` the dense matrix is faster
    sizes = speedups.gains_by_size(times, ("batchkron", "bmm", "einsum"), ("dense", "sparse"))
    assert sizes == {16.0: [1.5], 640_000.0: [1 / 3]}
    assert speedups.gains_by_size(times, ("bmm",), ("einsum", "bsr")) == {
        16.0: [2 / 3],
        640_000.0: [2.0],
    }
    assert speedups.by_decade({2000.0: [1.0], 9000.0: [2.0], 10_000.0: [3.0]}) == {
        1e3: [1.0, 2.0],
        1e4: [3.0],
    }
    ratios = speedups.layout_ratios(cells, "float32")
    assert ratios["batchkron"] == [0.5, 1.0]
    assert ratios["sparse"] == [4.0]
    assert "bmm, multiply alone" not in ratios
    lines = "\n".join(speedups.tables(cells)).splitlines()
    assert "| 0.5000 | 1 | 1.00 | 0 |" in lines
    assert "| float32 | einsum | 1 | 4.00 | 4.00 | 4.00 |" in lines
    pytest.importorskip("matplotlib")
    speedups.draw(cells, tmp_path / "speedups.svg")
    assert "ours over min(bmm, einsum, bsr)" in (tmp_path / "speedups.svg").read_text()


def test_energies_are_compared_with_the_least_of_the_baselines(tmp_path):
    energy = papers("energy")
    one, two = PATTERNS[:2]
    cells = [
        cell(one, "batch-first", {}, joules={"batchkron": 4, "bmm": 6, "einsum": 5, "dense": 1}),
        cell(one, "batch-last", {}, joules={"batchkron": 3, "bmm": 9}),
        cell(two, "batch-first", {}, joules={"batchkron": 4, "bmm": 2}),
        cell(two, "batch-last", {}, joules={"batchkron": 8, "bmm": 2.5}),
        cell(PATTERNS[2], "batch-last", {}, joules={"batchkron": 8, "bmm": 2.5}),
    ]
    found = energy.factors(cells, "float32", ["bmm", "einsum", "bsr"])
    assert found == {one: 3 / 5, two: 2.0}
    assert energy.factors(cells, "float32", ["dense"]) == {one: 3.0}
    assert any("| 1.30 | 0.85 | 50 | 72 |" in text for text in energy.table(cells))
    pytest.importorskip("matplotlib")
    energy.draw(cells, tmp_path / "energy.svg")
    assert "einsum" in (tmp_path / "energy.svg").read_text()


class Products:
    """A device that needs a second for each 100 GB."""

    def __init__(self, wrong=(), memory=10**12):
        self.machine, self.wrong, self.free = {"device": "fake"}, wrong, memory

    def memory(self):
        return self.free

    def product(self, size, rng):
        return (lambda: size), (lambda: size not in self.wrong)

    def seconds(self, call):
        return papers("explicit_product").bytes_of(call()) / 1e11


def test_explicit_products_have_the_columns_of_the_report(tmp_path):
    explicit = papers("explicit_product")
    report = {"ceilings": {"bandwidth": 2e11, "peak": 1e13}, "cells": {}}
    products = Products(wrong=[(64, 32)], memory=2**33)
    said = list(explicit.measure(products, report, 100))
    assert "M = 64, N = 32: wrong result" in said
    assert "M = 1024, N = 64: not measured, it does not fit in memory" in said
    assert len(said) == len(explicit.sizes())
    assert not [one for one in explicit.measure(products, report, 100) if "not measured" not in one]
    rows = {row.split(" |")[0]: row for row in explicit.table(report)}
    seconds = explicit.bytes_of((512, 64)) / 1e11
    assert f"| 1.42 | 50 | 1 | {seconds:.3g} |" in rows["| M = 512, N = 64"]
    assert rows["| M = 64, N = 32"].count("–") == 4
    assert explicit.bytes_of((32, 64)) == 4 * (32**2 + 64**2 + 2048**2)
    for name, given in explicit.CONFIGURATIONS.items():
        found = explicit.points(report, name)
        assert len(found) == len(given)
        assert all(intensity < 0.25 for intensity, _ in found)
        assert all(rate == pytest.approx(100 * one) for one, rate in found)
    pytest.importorskip("matplotlib")
    explicit.draw(report, tmp_path / "roof.svg")
    assert "both grow" in (tmp_path / "roof.svg").read_text()


def test_rows_of_explicit_products_are_compared_to_the_last_bit(rng):
    compare = papers("explicit_product").compare
    a, b = (rng.standard_normal((n, n)).astype("f4") for n in (3, 4))
    product = np.kron(a, b)
    assert compare(a, b, lambda row: product[row])
    for row in (0, 4, 11):
        wrong = product.copy()
        wrong[row, 5] = np.nextafter(wrong[row, 5], np.float32(9))
        assert not compare(a, b, lambda row, wrong=wrong: wrong[row])


def test_parts_are_checked(capsys):
    options = papers("options")
    assert options.parse_part("2/5") == (2, 5)
    parser = options.parser_of("Text")
    for wrong in ("0/3", "4/3", "2", "a/b"):
        with pytest.raises(SystemExit):
            parser.parse_args(["--part", wrong])
        assert "expected I/N" in capsys.readouterr().err
