"""Problems of one operator on the device: where their vectors are, and their right-hand sides."""

import cupy
import numpy as np
import pytest

import batchkron as bk
from batchkron.problems import LinearProblem, time
from fake_device_checks.common import close


def _problem(rng, **more):
    factors = [rng.standard_normal((n, n)) for n in (3, 4)]
    given = {
        "source": [(time.cos(2.0), rng.standard_normal((3, 4)))],
        "exact": rng.standard_normal(12),
        "quantities": {"mass": np.ones(12)},
        **more,
    }
    return LinearProblem(bk.KroneckerProduct(factors), rng.standard_normal((3, 4)), **given)


def on_a_device():
    """All checks, in one process."""
    rng = np.random.default_rng(3)
    _moved(rng)
    _in_parts(rng)
    _not_finite(rng)


def _moved(rng):
    """A problem that is moved has its vectors there, and the same values and content."""
    problem = _problem(rng)
    device = problem.to("cuda")
    assert device.to("cuda") is device
    assert (problem.device, device.device) == ("cpu", "cuda")
    vectors = [device.initial, device.quantities("mass")["mass"], device.exact_at(0.0)]
    vectors += [vector for _, vector in device.time_parts().sources]
    assert all(isinstance(vector, cupy.ndarray) for vector in vectors)
    u = rng.standard_normal(12)
    expected, out = np.empty(12), cupy.asarray(np.full(12, np.nan))
    problem.rhs(0.3, u, expected)
    device.rhs(0.3, cupy.asarray(u), out)
    close(out, expected)
    error = problem.l2_error(u, 0.3)
    assert device.l2_error(cupy.asarray(u), 0.3) == pytest.approx(error, rel=1e-14)
    assert device.l2_error(u, 0.3) == pytest.approx(error, rel=1e-14)
    back = device.to("cpu")
    assert back.operator is problem.operator
    np.testing.assert_array_equal(back.initial, problem.initial)


def _in_parts(rng):
    """Explicit methods get the product and the vectors of the source, on the device."""
    problem = _problem(rng)
    device = problem.to("cuda")
    split = device.split_rhs()
    assert split.is_repeatable
    ((factor, product),), ((function, vector),) = split.products, split.sources
    assert (factor, function(0.0)) == (None, 1.0)
    u, out = rng.standard_normal(12), cupy.asarray(np.full(12, np.nan))
    product(0.0, cupy.asarray(u), out)
    close(out, problem.operator @ u)
    assert isinstance(vector, cupy.ndarray)
    assert _problem(rng, source=lambda t: vector).to("cuda").split_rhs() is None


def _not_finite(rng):
    """Values that are not finite are named, wherever they are."""
    problem = _problem(rng).to("cuda")
    u = rng.standard_normal(12)
    u[7] = np.inf
    with pytest.raises(ValueError, match="u0 is inf at 7"):
        problem.beginning_at(cupy.asarray(u))
    with pytest.raises(ValueError, match=r"u has shape \(5,\)"):
        problem.rhs(0.0, cupy.asarray(u)[:5], cupy.asarray(u))
