"""The benchmarks that count run, and count about what the documentation says."""

import importlib.util

import pytest


@pytest.fixture
def table(pytestconfig, capsys):
    """Runs a benchmark and returns the cells of its table's rows."""

    def run(module, *options):
        path = pytestconfig.rootpath / "benchmarks" / f"{module}.py"
        spec = importlib.util.spec_from_file_location(module, path)
        found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
        found.main(list(options))
        rows = capsys.readouterr().out.splitlines()[3:]
        return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]

    return run


def test_the_combination_technique_takes_few_iterations(table):
    rows = table("preconditioners", "--most", "4")
    assert [row[0] for row in rows].count("diffusion") == 1
    assert len(rows) == 9
    assert all(int(row[-1]) <= 15 for row in rows)


def test_chosen_steps_take_fewer_products_than_equal_ones(table):
    rows = table("steppers", "--quick")
    assert [row[0] for row in rows] == ["continuity-1d", "diffusion-2d"]
    assert float(rows[0][-1]) > 1.0
