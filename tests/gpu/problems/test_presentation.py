"""Pictures, datasets and recorded quantities of states on a device are those of the CPU."""

import numpy as np
import pytest

from batchkron.problems import make
from batchkron.solvers import evolve

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def pair():
    problem = make("landau-1x1v", (3, 4), 2, "full", amplitude=0.1)
    return problem, problem.to("cuda")


def test_quantities_are_recorded_alike(pair):
    recorded = []
    for problem in pair:
        watch = problem.quantities()
        result = evolve(problem, until=0.2, method="rk4", dt=0.02, watch=watch)
        recorded.append(result.recorded)
    assert recorded[0].names == recorded[1].names
    for name in recorded[0].names:
        np.testing.assert_allclose(recorded[1][name], recorded[0][name], rtol=1e-11, atol=1e-12)


def test_states_are_shown_alike(pair):
    host, device = pair
    for options in ({}, {"slice": {"v": 0.5}}, {"marginal": "x"}):
        panels = [own.plot(own.initial, **options).axes[0] for own in (host, device)]
        if options:
            values = [panel.get_lines()[0].get_ydata() for panel in panels]
        else:
            values = [np.asarray(panel.get_images()[0].get_array()) for panel in panels]
        np.testing.assert_allclose(values[1], values[0], rtol=1e-12, atol=1e-13)
        data = [own.to_xarray(own.initial, points=8, **options) for own in (host, device)]
        np.testing.assert_allclose(data[1]["f"], data[0]["f"], rtol=1e-12, atol=1e-13)
    mesh = np.meshgrid([1.0, 2.0], [0.0, 0.5, 1.0], indexing="ij", sparse=True)
    found = device.evaluate(device.initial, *mesh)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, host.evaluate(host.initial, *mesh), rtol=1e-13)


def test_the_exact_solution_is_drawn_on_a_device():
    problem = make("continuity-2d", 3, 1).to("cuda")
    figure = problem.plot(problem.exact_coefficients(0.2), 0.2)
    error = np.asarray(figure.axes[2].get_images()[0].get_array())
    assert np.abs(error).max() == 0.0


def test_runs_begin_at_states_of_the_device(pair):
    import cupy

    host, device = pair
    u0 = 1.5 * host.initial
    steps = {"until": 0.1, "method": "rk4", "dt": 0.02}
    expected = evolve(host, u0=u0, **steps)
    result = evolve(device, u0=cupy.asarray(u0), **steps)
    np.testing.assert_allclose(result.u.get(), expected.u, rtol=1e-11, atol=1e-13)
    with pytest.raises(TypeError, match="u0 is a ndarray; expected a cupy array"):
        evolve(device, u0=u0, **steps)
