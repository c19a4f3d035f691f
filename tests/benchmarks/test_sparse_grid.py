"""The sparse-grid benchmark runs without its peer, and says so; its cases are the gallery's."""

import json

import numpy as np
import pytest
import source_benchmarks

from batchkron.problems import gallery

NAMES = ["continuity-2d", "continuity-3d", "continuity-6d"]


@pytest.fixture(scope="module")
def boxes():
    return source_benchmarks.module("sparse_grid.cases").BOXES


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """What a quick run prints and writes."""
    folder = tmp_path_factory.mktemp("benchmark")
    files = "--json", folder / "times.json", "--plot", folder / "growth.svg"
    run = source_benchmarks.command("sparse_grid --quick --threads 1 --rounds 1", *files)
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
        assert abs(case["memory"]["batchkron"]) < 1 << 28  # of a process, which may have shrunk
    assert {entry["name"] for entry in record["growth"]} == set(NAMES)
    for entry in record["growth"]:
        threads = [one["threads"] for one in entry["products"]]
        assert threads == [one["threads"] for one in record["growth"][0]["products"]]
        assert all(one["seconds"] > 0 for one in entry["products"])
    assert plot.read_text().startswith("<?xml")


def test_implicit_steps_are_measured_without_the_peer(tmp_path):
    small = "sparse_grid.implicit --levels 3 --rounds 1 --json"
    run = source_benchmarks.command(small, tmp_path / "steps.json")
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
