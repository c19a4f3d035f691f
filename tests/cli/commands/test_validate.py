"""`batchkron validate`: exit status 0 if the products agree with dense ones, 1 if not."""

import re

import pytest

from batchkron.operators import BatchedKron, KroneckerProduct, SparseGridOperator
from batchkron.problems import gallery, make


@pytest.mark.parametrize("name", gallery.names())
def test_every_problem_is_valid(cli, name):
    output = cli("validate", name, "--level", "2", "--degree", "1", "--samples", "4").stdout
    assert output.endswith("verdict           ok\n")
    assert " 4 compared" in output


def test_all_blocks_by_default(cli, problem, problem_file):
    output = cli("validate", "c2.h5").stdout
    assert f"{problem.grid.num_cells} compared" in output
    report = problem.validate()
    assert f"{report.products} formed densely" in output
    ratio = float(re.search(r"error over bound +(\S+),", output)[1])
    assert 0.0 < ratio <= 1.0
    assert ratio == pytest.approx(report.max_error_over_bound, rel=1e-3)


@pytest.mark.parametrize(
    ("form", "operator", "method"),
    [
        ("batch", BatchedKron, "apply"),
        ("sweep", SparseGridOperator, "apply"),
        ("dense", KroneckerProduct, "matvec"),
    ],
)
def test_a_wrong_product_is_found(cli, monkeypatch, form, operator, method):
    """One block of twenty, or one number, is off by a relative 1e-10."""
    right = getattr(operator, method)

    def wrong(self, x, out=None):
        y = right(self, x, out)
        y[3] *= 1.0 + 1e-10
        return y

    words = ["validate", "continuity-2d", "--level", "3", "--operator", form]
    assert "20 compared" in cli(*words).stdout
    monkeypatch.setattr(operator, method, wrong)
    assert not make("continuity-2d", level=3).with_form(form).validate().ok
    assert cli(*words, expect=1).stdout.endswith("verdict           FAILED\n")


def test_sweeps_are_the_default(cli, monkeypatch):
    def fails(*_):
        raise AssertionError

    monkeypatch.setattr(BatchedKron, "apply", fails)
    cli("validate", "continuity-2d", "--level", "3")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["c2.h5", "--degree", "1"], "--degree"),
        (["continuity-9d"], "neither a file nor a name"),
        (["c2.h5", "--samples", "0"], "--samples"),
        (["c2.h5", "--operator", "tree"], "--operator"),
        (["continuity-2d", "--level", "10", "--operator", "dense"], "at most 8192"),
    ],
)
def test_refusals(refused, problem_file, words, expected):
    assert expected in refused("validate", *words)
