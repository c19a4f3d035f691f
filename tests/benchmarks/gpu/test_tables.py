"""The tables of the page of GPU results: figures of the committed run, and of others."""

import json

import pytest
import source_benchmarks

ROOT = source_benchmarks.ROOT
RESULTS = ROOT / "benchmarks" / "results" / "h200-gpu.json"
OF_ANOTHER_RUN = {"atomic": RESULTS.with_name("h100-atomic.json")}
PAGE = ROOT / "docs" / "results" / "gpu.md"
COMMAND = "python -m benchmarks.gpu.tables benchmarks/results/h200-gpu.json docs/results/gpu.md"


@pytest.fixture
def tables(monkeypatch):
    """The benchmarks are found in the source, behind what is installed."""
    return source_benchmarks.module("gpu.tables")


def tables_of(text):
    """The rows of each table by its head, without blanks around their entries."""
    found, rows = {}, []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([entry.strip() for entry in line.strip("|").split("|")])
        elif rows:
            found[", ".join(rows[0])] = rows[2:]
            rows = []
    return found


def test_the_page_has_what_was_measured(tables):
    text = PAGE.read_text()
    report = json.loads(RESULTS.read_text())
    assert tables.with_tables(text, report["cells"]) == text, f"run {COMMAND}"
    assert f"commit {report['machine']['commit']}, {report['seconds']:.0f} s:" in text
    found = tables_of(text)
    for head, part in tables.TABLES.items():
        cells = report["cells"]
        if part in OF_ANOTHER_RUN:
            cells = json.loads(OF_ANOTHER_RUN[part].read_text())["cells"]
            assert tables.with_tables(text, cells) == text, OF_ANOTHER_RUN[part].name
        cases = [one["case"] for one in cells if one["part"] == part]
        assert {row[0] for row in found[head]} == set(cases), f"cases of {part}"
    assert tables.CALLS in found


def test_figures_of_another_run(tables, tmp_path):
    report = json.loads(RESULTS.read_text())
    first = next(one for one in report["cells"] if one["part"] == "kron")
    changed = {**first, "ours": {"microseconds": 12.3456}, "goal": 7, "ours_over_floor": 0.5}
    results, page = tmp_path / "run.json", tmp_path / "page.md"
    others = [one for one in report["cells"] if one["part"] == "kron" and one is not first]
    results.write_text(json.dumps({"cells": [changed, *others]}))
    page.write_text(PAGE.read_text())
    tables.main([str(results), str(page)])
    before, after = tables_of(PAGE.read_text()), tables_of(page.read_text())
    (kron,) = (head for head, part in tables.TABLES.items() if part == "kron")
    old, new = before.pop(kron), after.pop(kron)
    assert new[0] == [first["case"], "12.3", "7.00", *old[0][3:5], "0.50", *old[0][6:]]
    assert new[1:] == old[1:]
    assert before == after, "the others were not run"


def test_cases_that_were_not_measured_are_named(tables):
    report = json.loads(RESULTS.read_text())
    cells = [one for one in report["cells"] if one["case"] != "1024: 8^6"]
    with pytest.raises(SystemExit, match=r"the results have no 1024: 8\^6"):
        tables.with_tables(PAGE.read_text(), cells)
    with pytest.raises(SystemExit, match=r"RESULTS\.json \[PAGE\.md\]"):
        tables.main([])


def test_what_was_profiled_is_printed(tables, capsys):
    tables.main([str(RESULTS)])
    (head, rows), *others = tables_of(capsys.readouterr().out).items()
    assert head.startswith("case, dtype, fma %, fp64 %, tensor %, issue %")
    assert not others
    cells = json.loads(RESULTS.read_text())["cells"]
    assert len(rows) == sum(bool(one.get("profile")) for one in cells) > 100
