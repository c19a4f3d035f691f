"""The fit of predicted times of Kronecker-sparse products: files, known rates, what is named."""

import json

import numpy as np
import pytest
import source_benchmarks

from batchkron.kronecker_sparse.costs import WAYS, Rates, parsed, work_of
from batchkron.spec.kron_sparse import Pattern

TRUE = {
    "batchkron": Rates(3e-6, 4e-13, 2e-14, 5e-14),
    "bmm": Rates(9e-6, 8e-13, 3e-14, 6e-13),
    "dense": Rates(4e-6, 4e-13, 1.5e-14, 0.0),
}
PATTERNS = [
    (1, 192, 48, 2), (2, 48, 192, 1), (6, 64, 64, 1), (1, 48, 48, 64), (1, 2, 2, 512),
    (4, 128, 128, 4), (1, 1024, 1024, 1), (64, 2, 4, 1), (1, 16, 8, 8), (2, 512, 128, 1),
]  # fmt: skip


def advice():
    return source_benchmarks.module("papers.advice")


def cells(batch=25_088, noise=0.0):
    """Cells of a device that takes exactly, or about, the times of the true rates."""
    rng = np.random.default_rng(3)
    for pattern in map(Pattern._make, PATTERNS):
        times = {
            way: TRUE[way].seconds(work_of(way, pattern, batch, 4)) * np.exp(noise * rng.normal())
            for way in WAYS
        }
        yield advice().Measured(pattern, batch, "float32", "batch-last", times)


def test_known_rates_are_found():
    table = advice().fitted(list(cells()), "a card", "cuda")
    assert list(table.rates) == ["float32 batch-last"]
    for way, rates in table.rates["float32 batch-last"].items():
        np.testing.assert_allclose(rates, TRUE[way], rtol=0.03, err_msg=way)
    again = parsed(json.loads(advice().written(table)))
    assert (again.machine, again.rates) == ("a card", table.rates)


def test_a_wrong_cell_does_not_spoil_the_rest():
    own = list(cells(noise=0.02))
    own[3].seconds["batchkron"] *= 5
    table = advice().fitted(own, "", "cuda")
    missed = [
        advice().predicted(table, cell, "cpu")["batchkron"] / cell.seconds["batchkron"]
        for k, cell in enumerate(own)
        if k != 3
    ]
    np.testing.assert_allclose(missed, 1, rtol=0.25)


def test_ways_that_were_not_measured_leave_a_dtype_out():
    own = [
        advice().Measured(one.pattern, one.batch, "float16", one.layout, {"dense": 1e-5})
        for one in cells()
    ]
    table = advice().fitted([*cells(), *own], "", "cuda")
    assert list(table.rates) == ["float32 batch-last"]
    pairs = [(cell, advice().predicted(table, cell, "cpu")) for cell in (*cells(), *own)]
    assert advice().named(pairs, WAYS) == (len(PATTERNS), len(PATTERNS))
    wrong = [(cell, dict.fromkeys(WAYS, 1.0) | {"dense": 0.5}) for cell in cells()]
    dense = sum(min(one.seconds, key=one.seconds.get) == "dense" for one in cells())
    assert advice().named(wrong, WAYS) == (dense, len(PATTERNS))
    assert 0 < dense < len(PATTERNS)


def test_held_out_patterns_do_not_contribute():
    own = list(cells(noise=0.1))
    found = list(advice().held_out(own, "cpu"))
    assert [cell for cell, _ in found] == own
    whole = advice().fitted(own, "", "cpu")
    for cell, times in found:
        others = [one for one in own if one.pattern != cell.pattern]
        assert times == advice().predicted(advice().fitted(others, "", "cpu"), cell, "cpu")
        assert times != advice().predicted(whole, cell, "cpu")


def test_files_of_three_kinds():
    common = {"pattern": [1, 2, 3, 4], "dtype": "float32", "layout": "batch-last"}
    cpu = {**common, "batch": 7, "seconds": {"batchkron": 1.0, "permuted matmul": 2.0, "einsum": 3}}
    papers = {**common, "batch": 9, "seconds": {"batchkron": 1.0, "bmm": 2.0}}
    papers["stopped_early"] = ["bmm"]
    peers = {"dense": {"microseconds": 5e6}, "bmm": {"reason": "not measured"}}
    device = {**common, "ours": {"microseconds": 4e6}, "peers": peers}
    given = [{**cpu, "threads": 1}, {**cpu, "threads": 2}, papers, device]
    found = list(advice().cells_of({"cells": given}))
    assert [one.seconds for one in found] == [
        {"batchkron": 1.0, "bmm": 2.0},
        {"batchkron": 1.0},
        {"batchkron": 4.0, "dense": 5.0},
    ]
    assert [one.stopped for one in found] == [{}, {"bmm": 2.0}, {}]
    pairs = [(one, {"batchkron": 0.5, "bmm": 1.0}) for one in found]
    assert advice().named(pairs, ("batchkron", "bmm")) == (2, 2)  # what was stopped is slower
    assert [one.batch for one in found] == [7, 9, 25_088]
    assert {one.pattern for one in found} == {(1, 2, 3, 4)}


def test_later_files_are_for_other_dtypes():
    common = {"pattern": [1, 2, 3, 4], "batch": 7, "layout": "batch-last"}

    def report(seconds, *dtypes):
        cells = [{**common, "dtype": one, "seconds": {"dense": seconds}} for one in dtypes]
        return {"cells": cells}

    found = advice().first_of_each_dtype(
        [report(1.0, "float32", "float32"), report(2.0, "float64", "float32")]
    )
    assert [(one.dtype, one.seconds["dense"]) for one in found] == [
        ("float32", 1.0),
        ("float32", 1.0),
        ("float64", 2.0),
    ]


def test_the_command_writes_a_table(tmp_path, monkeypatch, capsys):
    rows = [
        {**cell._asdict(), "pattern": list(cell.pattern), "seconds": dict(cell.seconds)}
        for cell in cells()
    ]
    path = tmp_path / "card.json"
    path.write_text(json.dumps({"machine": {"device": "a card"}, "cells": rows}))
    monkeypatch.setattr(advice().package, "__file__", str(tmp_path / "__init__.py"))
    advice().main([str(path), "--device", "cuda", "--write"])
    text = capsys.readouterr().out
    # of a dense matrix ours is taken to be no slower, but these times were made otherwise
    assert "fitted: the faster one of batchkron, dense in 9 of 10, 90.0%" in text
    assert "pattern held out: the faster one of batchkron, bmm, dense in" in text
    assert json.loads((tmp_path / "cuda.json").read_text())["machine"] == "a card"
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"machine": {"device": "another"}, "cells": rows}))
    with pytest.raises(SystemExit, match="several machines: a card, another"):
        advice().main([str(path), str(other), "--device", "cuda"])
