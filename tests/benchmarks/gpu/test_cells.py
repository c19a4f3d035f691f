"""Cells of the GPU benchmark on a device that is NumPy: what is multiplied, checked and written."""

import json
import sys

import numpy as np
import pytest
import source_benchmarks
from numpy_device import numpy_device

import batchkron as bk

SMALL = {
    "kron": ("4: 8^3", "float32"),
    "precision": ("16: 128^3", "tf32x3"),
    "pde": ("64: 2^3", "float64"),
    "batches": ("(2,4) 4k", "float64"),
    "lists": ("(2,5)", "float32"),
    "sweeps": ("2-D level 8", "float64"),
    "explicit": ("8² ⊗ 8² ⊗ 8² ⊗ 8²", "float32"),
}


@pytest.fixture
def gpu(monkeypatch):
    """The modules of the benchmarks, loaded with NumPy in the place of CuPy."""
    known = [name for name in sys.modules if name.startswith("benchmarks.")]
    for name in known:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cupy", numpy_device())
    for kind in (bk.KroneckerProduct, bk.BatchedKron, bk.SparseGridOperator):
        monkeypatch.setattr(kind, "to", lambda self, device: self)
    yield lambda name: source_benchmarks.module(name)
    for name in [name for name in sys.modules if name.startswith("benchmarks.")]:
        del sys.modules[name]


def chosen(gpu, part):
    name, dtype = SMALL[part]
    choices = gpu("gpu.options").all_choices()
    (found,) = (one for one in choices if (one.part, one.name, one.dtype) == (part, name, dtype))
    return found


@pytest.mark.parametrize("part", ["kron", "pde", "batches", "explicit"])
def test_cells_have_right_results_and_times(gpu, part):
    (cell,) = gpu("gpu.__main__").cells_of(chosen(gpu, part), 1.0)
    assert cell.ours.get("relative_error", 1.0) < 1e-5, cell.ours
    assert cell.microseconds > 0
    assert cell.floor > 0
    assert cell.peers["torch"] == {"reason": "not measured: torch is not installed"}
    assert json.dumps(cell.record())


def test_random_cells_are_called_in_both_ways(gpu):
    draw = gpu("random_shapes").draws(1, 3, 1 << 20)[0]
    choice = gpu("gpu.options").Choice("random", draw.shape.name, draw.dtype, draw)
    (cell,) = gpu("gpu.__main__").cells_of(choice, 1.0)
    for found in (cell.ours, cell.more["function"]):
        assert found["eager_microseconds"] > 0
    assert "reason" in cell.peers["cuBLAS"]


def test_a_wrong_result_has_no_time(gpu, monkeypatch):
    def zeros(self, x, out):
        out.fill(0)

    monkeypatch.setattr(gpu("gpu.data").KronSubject, "expected", np.ones(512))
    monkeypatch.setattr(bk.KroneckerProduct, "apply", zeros)
    (cell,) = gpu("gpu.__main__").cells_of(chosen(gpu, "kron"), 1.0)
    assert cell.ours == {"reason": "wrong result, relative error 1.0e+00"}


@pytest.mark.parametrize("part", SMALL)
def test_subjects_write_what_is_expected(gpu, part):
    """The calls that an ablation and the profiler make, too."""
    choice = chosen(gpu, part)
    subject = gpu("gpu.data").subject_of(choice, 1 << 20)
    if part == "precision":
        subject.precision = None  # NumPy has no matrix units
    subject.out.fill(np.nan)
    subject.calls()[-1]()
    assert subject.error() < 1e-5
    if part in ("kron", "batches"):
        make, out = gpu("gpu.ablate").subject_of(choice)
        out.fill(np.nan)
        make()[-1]()
        assert np.isfinite(out).all()
