"""Problems on the device: the gallery's errors are those of the CPU, from Python and by command."""

import json
import pickle

import numpy as np
import pytest
from click.testing import CliRunner

from batchkron.cli import main
from batchkron.operators import BatchedKron, SparseGridOperator
from batchkron.problems import gallery, load_problem, make, save_problem
from batchkron.solvers import EvolveStatus, ResumeWarning, evolve

pytestmark = pytest.mark.gpu

STEPS = 8


@pytest.mark.parametrize("name", gallery.names())
def test_the_gallery_has_the_errors_of_the_cpu(cupy, name):
    problem = make(name, level=2, degree=1)
    device = problem.to("cuda")
    until = problem.t0 + STEPS * problem.stepper.dt
    expected, result = evolve(problem, until=until), evolve(device, until=until)
    assert isinstance(result.u, cupy.ndarray)
    if expected.status is EvolveStatus.NOT_PHYSICAL:  # a device does not look for the place
        assert result.status is EvolveStatus.NOT_FINITE
        return
    assert result.status is expected.status
    scale = np.abs(expected.u).max()
    np.testing.assert_allclose(result.u.get(), expected.u, rtol=0, atol=1e-11 * scale)
    if problem.exact is not None:
        error = problem.l2_error(expected.u, until)
        assert device.l2_error(result.u, until) == pytest.approx(error, rel=1e-9, abs=1e-13)


def test_moving_keeps_the_content(cupy):
    problem = make("continuity-2d", level=3, degree=2)
    device = problem.to("cuda")
    assert device.to("cuda") is device
    assert (device.device, problem.device) == ("cuda", "cpu")
    assert isinstance(device.initial, cupy.ndarray)
    assert device.content_hash == problem.content_hash
    back = device.to("cpu")
    np.testing.assert_array_equal(back.initial, problem.initial)
    copy = pickle.loads(pickle.dumps(device))
    np.testing.assert_array_equal(copy.initial.get(), problem.initial)
    assert device.validate(samples=5).ok
    u = cupy.asarray(problem.exact_coefficients(0.1))
    np.testing.assert_array_equal(device.exact_coefficients(0.1).get(), u.get())
    points = [[0.1, 0.2], [-0.7, 1.5]]
    np.testing.assert_array_equal(device.evaluate(u, points), problem.evaluate(u.get(), points))


def test_operators_that_were_built_already_are_shared(cupy, rng):
    problem = make("continuity-2d", level=2, degree=1).with_form("batch")
    assert problem.operator.to("cuda") is problem.to("cuda").operator


def test_ways_to_apply_the_operator(cupy, rng):
    problem = make("continuity-2d", level=2, degree=1)
    operator = problem.operator
    device = problem.to("cuda")
    assert isinstance(device.operator, SparseGridOperator)
    assert device.operator is operator.to("cuda")
    assert device.to("cpu").operator.device == "cpu"
    listed = device.with_form("batch").operator
    assert isinstance(listed, BatchedKron)
    u = cupy.asarray(rng.standard_normal(problem.unknowns))
    np.testing.assert_allclose((listed @ u).get(), (device.operator @ u).get(), atol=1e-11)
    with pytest.raises(ValueError, match="on cuda use 'sweep'"):
        problem.with_form("dense").to("cuda")


def test_vectors_elsewhere_are_refused(cupy):
    problem = make("continuity-2d", level=2, degree=1)
    host = np.zeros(problem.unknowns)
    with pytest.raises(TypeError, match=r"u is numpy\.ndarray; expected a cupy array of shape"):
        problem.to("cuda").rhs(0.0, host, cupy.asarray(host))
    with pytest.raises(TypeError, match=r"expected a numpy array of shape"):
        problem.rhs(0.0, host, cupy.asarray(host))


def test_files_are_loaded_to_the_device(cupy, tmp_path):
    path = tmp_path / "c2.h5"
    problem = make("continuity-2d", level=2, degree=1)
    save_problem(path, problem.to("cuda"))
    loaded = load_problem(path, device="cuda", trusted=True)
    assert (loaded.device, loaded.content_hash) == ("cuda", problem.content_hash)


def test_a_run_goes_on_elsewhere_with_a_warning(cupy, tmp_path):
    problem = make("continuity-2d", level=2, degree=1)
    path = tmp_path / "half.h5"
    dt = problem.stepper.dt
    evolve(
        problem.to("cuda"),
        until=10 * dt,
        checkpoint=path,
        callback=lambda state: state.step == 5,
    )
    with pytest.warns(ResumeWarning, match="instruction_set 'cuda sm_"):
        result = evolve(problem, until=10 * dt, resume=path)
    expected = evolve(problem, until=10 * dt)
    np.testing.assert_allclose(result.u, expected.u, rtol=0, atol=1e-12)


@pytest.mark.parametrize("stepper", ["ssp-rk3", "crank-nicolson"])
def test_the_command_runs_on_the_device(cupy, tmp_path, monkeypatch, stepper):
    monkeypatch.chdir(tmp_path)
    words = ["continuity-2d", "--level", "3", "--degree", "2", "--until", "0.05", "--json"]
    words += ["--stepper", stepper, "--dt", "0.005"]
    reports = []
    for device in ("cpu", "cuda"):
        result = CliRunner().invoke(main, ["run", *words, "--device", device, "-o", f"{device}.h5"])
        assert result.exit_code == 0, result.output
        reports.append(json.loads(result.stdout))
    on_cpu, on_device = reports
    assert on_device["device"] == "cuda"
    assert on_device["instruction_set"].startswith("cuda sm_")
    assert 0.0 < on_device["kernel_share"] <= 1.0
    assert on_device["steps"] == on_cpu["steps"]
    assert on_device["l2_error"] == pytest.approx(on_cpu["l2_error"], rel=1e-8)
