"""The sparse-grid benchmark runs without its peer, and says so; its cases are the gallery's."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from batchkron.problems import gallery

ROOT = Path(__file__).parents[2]
NAMES = ["continuity-2d", "continuity-3d", "continuity-6d"]


@pytest.fixture(scope="module")
def boxes():
    """The benchmarks are found in the source, behind what is installed."""
    sys.path.append(str(ROOT))
    yield importlib.import_module("benchmarks.sparse_grid.cases").BOXES
    sys.path.remove(str(ROOT))


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """What a quick run prints and writes."""
    folder = tmp_path_factory.mktemp("benchmark")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    command = [sys.executable, "-m", "benchmarks.sparse_grid", "--quick", "--threads", "1"]
    command += ["--rounds", "1", "--json", str(folder / "times.json")]
    command += ["--plot", str(folder / "growth.svg")]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout, json.loads((folder / "times.json").read_text()), folder / "growth.svg"


def test_ours_is_measured_and_the_peer_is_missed(quick_run):
    printed, record, plot = quick_run
    assert "ASGarD was not measured: no --asgard BUILD" in printed
    assert "not measured" in printed
    for case in record["cases"]:
        assert [entry["work"] for entry in case["times"]] == ["right-hand side", "step"]
        for entry in case["times"]:
            assert 0 < entry["batchkron"]["least"] <= entry["batchkron"]["median"] < 1
            assert entry["ASGarD"] is None
            assert entry["ratio"] is None
        assert case["memory"]["ASGarD"] is None
        assert 0 <= case["memory"]["batchkron"] < 1 << 28
    assert {entry["name"] for entry in record["growth"]} == set(NAMES)
    for entry in record["growth"]:
        threads = [one["threads"] for one in entry["products"]]
        assert threads == [one["threads"] for one in record["growth"][0]["products"]]
        assert all(one["seconds"] > 0 for one in entry["products"])
    assert plot.read_text().startswith("<?xml")


def test_implicit_steps_are_measured_without_the_peer(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    command = [sys.executable, "-m", "benchmarks.sparse_grid.implicit", "--levels", "3"]
    command += ["--rounds", "1", "--json", str(tmp_path / "steps.json")]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "ASGarD was not measured: no --asgard BUILD" in run.stdout
    (level,) = json.loads((tmp_path / "steps.json").read_text())["levels"]
    assert (level["level"], level["ratio"], level["ASGarD"]) == (3, None, [])
    assert len(level["batchkron"]) == 3
    for entry in level["batchkron"]:
        assert 0 < entry["error"] <= 1e-6
        assert 0 < entry["least_step"] <= entry["step"] < 1


@pytest.mark.parametrize("name", NAMES)
def test_a_case_in_numbers_is_the_gallerys(boxes, name):
    """Axes, waves and velocities, as the driver gives them to ASGarD."""
    assert list(boxes) == NAMES
    box, pde = boxes[name], gallery.get(name).pde
    assert [(axis.lower, axis.upper) for axis in pde.axes] == [(-h, h) for h in box.half_widths]
    points = [np.linspace(-h, h, 7)[1:-1] for h in box.half_widths]
    (exact,) = pde.exact
    for axis, number, is_sine, at in zip(pde.axes, box.numbers, box.sines, points, strict=True):
        wave = np.sin(number * at) if is_sine else np.cos(number * at)
        np.testing.assert_allclose(exact.factor(axis)(at), wave, rtol=1e-14)
    assert exact.time(0.3) == pytest.approx(np.sin(box.omega * 0.3))
    for k, velocity in enumerate(box.velocities):
        assert pde.terms[k].factors[0].coefficient == -velocity
