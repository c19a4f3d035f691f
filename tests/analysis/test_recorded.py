"""Quantities over the time of a run: in the history, in pictures and datasets."""

import io
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from batchkron.analysis.recorded import recorded_in
from batchkron.errors import BackendUnavailableError
from batchkron.problems import PDE, Axis, Separable, div, make
from batchkron.solvers import Adapt, Quantity, Recorded, evolve, fit_growth


def turning(omega=2.0):
    """u = (cos ωt, sin ωt)."""

    def rhs(t, u, out):
        out[...] = -omega * u[1], omega * u[0]

    return SimpleNamespace(initial=np.array([1.0, 0.0]), rhs=rhs, units={"t": "s"}, name="turning")


WATCH = {"x": [1.0, 0.0], "square": lambda t, u: float(u @ u)}


def run(until=1.0, **options):
    given = {"method": "rk4", "dt": 0.01, "watch": WATCH, **options}
    return evolve(turning(), until=until, **given)


def test_quantities_are_recorded_at_the_steps():
    result = run()
    recorded = result.recorded
    np.testing.assert_allclose(recorded.t, np.linspace(0.0, 1.0, 101), atol=1e-15)
    np.testing.assert_allclose(recorded["x"], np.cos(2 * recorded.t), atol=1e-8)
    assert recorded.names == ("x", "square")
    assert recorded["x"][-1] == result.watched["x"].last
    assert recorded["x"][0] == result.watched["x"].first
    first, last = result.history[0], result.history[-1]
    assert (first["event"], first["step"], first["quantities"]["x"]) == ("start", 0, 1.0)
    assert (last["event"], last["quantities"]["x"]) == ("completed", recorded["x"][-1])
    json.dumps(result.history, allow_nan=False)
    with pytest.raises(ValueError, match="'y' was not recorded; recorded: x, square"):
        recorded["y"]


def test_runs_without_quantities_record_none():
    result = evolve(turning(), until=0.1, method="rk4", dt=0.01)
    assert result.recorded.names == ()
    assert result.recorded.t.shape == (0,)
    assert result.history[0]["event"] == "step"
    with pytest.raises(ValueError, match=r"no quantities were recorded.*watch="):
        result.plot("x")


@pytest.mark.parametrize("options", [{"dt": 1e-4}, {"rtol": 1e-8}])
def test_long_runs_record_some_two_thousand_steps(options):
    method = "rk4" if "dt" in options else "dormand-prince"
    result = run(
        until=1.0 if "dt" in options else 300.0, **{"dt": None, "method": method, **options}
    )
    assert result.steps > 4000
    assert 1000 < len(result.recorded.t) < 4100
    assert len(result.history) < 4100
    assert np.all(np.diff(result.recorded.t) > 0)
    np.testing.assert_allclose(result.recorded["x"], np.cos(2 * result.recorded.t), atol=1e-4)


def test_values_that_are_not_finite_are_missing():
    watch = {"root": lambda t, u: float(np.sqrt(0.5 - t)) if t < 0.5 else float("nan")}
    result = run(watch=watch)
    assert result.history[-1]["quantities"] == {"root": None}
    json.dumps(result.history, allow_nan=False)
    assert np.isnan(result.recorded["root"][-1])
    assert np.isfinite(result.recorded["root"][0])


def test_a_resumed_run_has_the_quantities_of_the_run_before(tmp_path):
    path = tmp_path / "run.checkpoint.h5"
    evolve(turning(), until=1.0, method="rk4", dt=0.01, watch=WATCH, checkpoint=path,
           callback=lambda state: state.step == 40)  # fmt: skip
    resumed = evolve(turning(), until=1.0, resume=path, watch=WATCH)
    np.testing.assert_array_equal(resumed.recorded.t, run().recorded.t)
    np.testing.assert_array_equal(resumed.recorded["x"], run().recorded["x"])


def test_a_quantity_that_drifts_is_recorded_at_the_end():
    result = run(watch={"x": Quantity([1.0, 0.0], tolerance=0.5)})
    assert str(result.status) == "drifted"
    assert result.recorded["x"][-1] == result.watched["x"].last < 0.5


def test_an_exception_of_a_measure_leaves_a_checkpoint_of_its_step(tmp_path):
    from batchkron.storage import load_checkpoint

    def measure(t, u):
        if t > 0.3:
            raise ZeroDivisionError
        return 1.0

    path = tmp_path / "run.checkpoint.h5"
    with pytest.raises(ZeroDivisionError):
        run(watch={"broken": measure}, checkpoint=path)
    assert load_checkpoint(path).step == 31


def test_quantities_follow_a_grid_that_changes():
    x, y = Axis("x", -1, 1), Axis("y", -1, 1)
    pulse = Separable(x=lambda s: np.exp(-20 * s**2), y=lambda s: np.exp(-20 * s**2))
    pde = PDE([x, y], [div(x, -1.0), div(y, -1.0)], boundary="periodic", initial=pulse)
    problem = pde.discretize(3, 2)
    result = evolve(
        problem, until=0.05, method="rk4", dt=0.002, adapt=Adapt(3e-3, every=5, max_level=5),
        watch=problem.quantities("mass", "norm"), at=[0.0, 0.05],
    )  # fmt: skip
    assert len({record["unknowns"] for record in result.history}) > 1
    mass = result.recorded["mass"]
    assert len(mass) == 26
    np.testing.assert_allclose(mass, mass[0], rtol=1e-13)
    assert result.recorded["norm"][-1] == pytest.approx(np.linalg.norm(result.u), rel=1e-14)
    data = result.to_xarray("samples")
    assert dict(data.sizes) == {"t": 2, "x": data.sizes["x"], "y": data.sizes["y"]}
    points = np.meshgrid(data["x"], data["y"], indexing="ij", sparse=True)
    np.testing.assert_array_equal(data["f"][1], result.problem.evaluate(result.u, *points))


def test_histories_of_strangers():
    rows = [
        {"event": "step"},
        {"event": "step", "t": 1.0, "quantities": {"a": 3}},
        {"event": "step", "t": 0.5, "quantities": {"a": None, "b": 2.0}},
        {"event": "completed", "t": 1.0, "quantities": {"a": 4.0}},
    ]
    found = recorded_in(rows)
    np.testing.assert_array_equal(found.t, [0.5, 1.0])
    np.testing.assert_array_equal(found["a"], [np.nan, 4.0])
    np.testing.assert_array_equal(found["b"], [2.0, np.nan])
    assert recorded_in([]).names == ()
    assert recorded_in(["odd", 3]).names == ()  # type: ignore[list-item]
    for wrong in ({"t": "now", "quantities": {}}, {"t": 1.0, "quantities": {"a": "x"}},
                  {"t": 1.0, "quantities": [1.0]}, {"quantities": {"a": 1.0}}):  # fmt: skip
        with pytest.raises(ValueError, match="not numbers"):
            recorded_in([wrong])


# pictures


def test_quantities_are_drawn_over_time():
    result = run()
    figure = result.plot(["x", "square"])
    upper, lower = figure.axes
    t, values = upper.get_lines()[0].get_data()
    np.testing.assert_array_equal(t, result.recorded.t)
    np.testing.assert_array_equal(values, result.recorded["x"])
    assert (upper.get_ylabel(), lower.get_ylabel()) == ("x", "square")
    assert lower.get_xlabel() == "t [s]"
    assert figure.get_suptitle() == "turning"
    assert upper.get_yscale() == lower.get_yscale() == "linear"
    content = io.BytesIO()
    figure.savefig(content, format="svg")
    assert b"</svg>" in content.getvalue()


def test_sizes_over_many_decades_have_a_logarithmic_axis_with_the_fit():
    t = np.linspace(0.0, 20.0, 400)
    history = [
        {"t": float(s), "quantities": {"E": float(np.exp(-0.3 * s) * abs(np.cos(1.4 * s)))}}
        for s in t
    ]
    result = run()
    object.__setattr__(result, "history", history)
    fit = fit_growth(t, result.recorded["E"], between=(3.0, 18.0))
    (axes,) = result.plot("E", fit=fit).axes
    curve, line = axes.get_lines()
    assert axes.get_yscale() == "log"
    assert line.get_xdata()[[0, -1]] == pytest.approx(fit.between)
    np.testing.assert_allclose(line.get_ydata(), fit.envelope(line.get_xdata()))
    slope = np.polyfit(line.get_xdata(), np.log(line.get_ydata()), 1)[0]
    assert slope == pytest.approx(-0.3, abs=1e-3)
    assert line.get_label() == f"exp({fit.rate:.5g} t), ω = {fit.frequency:.5g}"
    assert result.plot("E", log=False).axes[0].get_yscale() == "linear"
    mode = fit_growth(t, result.recorded["E"], between=(3.0, 18.0), model="mode")
    line = result.plot("E", fit=mode, log=False).axes[0].get_lines()[1]
    np.testing.assert_array_equal(line.get_ydata(), mode.curve(line.get_xdata()))
    assert curve.get_label() == "E"


def test_quantities_share_axes_that_are_given():
    result = run()
    axes = Figure().subplots()
    assert result.plot(ax=axes, quantities=["x", "square"]) is axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["x", "square"]


def test_a_result_draws_its_last_state():
    problem = make("continuity-2d", 3, 1)
    result = evolve(problem, until=0.1, method="rk4", dt=0.05)
    assert result.plot().get_suptitle().startswith("continuity-2d,  t = 0.1,  L2 error")
    axes = Figure().subplots()
    assert result.plot(ax=axes, slice={"y": 0.5}) is axes
    x, values = axes.get_lines()[-1].get_data()
    expected = problem.evaluate(result.u, np.column_stack([x, np.full_like(x, 0.5)]))
    np.testing.assert_allclose(values, expected, atol=1e-13)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda r: r.plot("y"), ValueError, "'y' was not recorded; recorded: x, square"),
        (lambda r: r.plot("x", slice={}), TypeError, "slice belong to a state"),
        (lambda r: r.plot(log=True), TypeError, "log and fit belong to quantities"),
        (lambda r: r.plot(), TypeError, r"SimpleNamespace without plot\(u, t\)"),
        (lambda r: r.to_xarray(), TypeError, r"SimpleNamespace without to_xarray\(u, t\)"),
        (lambda r: r.to_xarray("all"), ValueError, "what is 'all'; expected 'state'"),
        (lambda r: r.to_xarray("samples"), ValueError, "there are no samples"),
        (lambda r: r.to_xarray("quantities", points=3), TypeError, "points belong to states"),
    ],
)
def test_what_a_result_cannot_show(call, error, words):
    with pytest.raises(error, match=words):
        call(run(until=0.1))


def test_a_fit_belongs_to_one_quantity():
    result = run()
    fit = fit_growth(result.recorded.t, result.recorded["square"])
    with pytest.raises(ValueError, match="fit belongs to one quantity, and 2 are drawn"):
        result.plot(["x", "square"], fit=fit)


# datasets


def test_quantities_are_datasets_over_time():
    result = run()
    data = result.to_xarray("quantities")
    assert dict(data.sizes) == {"t": 101}
    np.testing.assert_array_equal(data["x"], result.recorded["x"])
    assert data["t"].attrs == {"long_name": "time", "units": "s"}
    assert data["x"].attrs == {"long_name": "x"}
    assert data.attrs == {"title": "turning", "status": "completed", "method": "rk4"}


def test_labels_and_units_come_from_the_problem():
    pde_units = {"t": "s", "mass": "kg", "f": "K"}
    x = Axis("x", 0, 1)
    pde = PDE([x], div(x, -1.0), boundary="periodic", initial=2.0, units=pde_units, name="flow")
    problem = pde.discretize(2, 1)
    result = evolve(
        problem, until=0.1, method="rk4", dt=0.01, watch=problem.quantities("mass", "norm")
    )
    assert (result.watched["mass"].label, result.watched["mass"].unit) == ("∫ f", "kg")
    data = result.to_xarray("quantities")
    assert data["mass"].attrs == {"long_name": "∫ f", "units": "kg"}
    assert data["norm"].attrs == {"long_name": "‖f‖"}
    assert result.plot("mass").axes[0].get_ylabel() == "mass  ∫ f [kg]"
    state = result.to_xarray(points=3)
    assert state["f"].attrs == {"long_name": "f", "units": "K"}
    assert state.attrs["status"] == "completed"
    assert float(state["t"]) == 0.1


@pytest.mark.parametrize("what", ["state", "quantities"])
def test_without_xarray_it_says_what_to_install(monkeypatch, what):
    problem = make("continuity-1d", 2, 1)
    result = evolve(problem, until=0.0, method="rk4", dt=0.1, watch=problem.quantities("mass"))
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(BackendUnavailableError, match=r"'batchkron\[xarray\]'"):
        result.to_xarray(what)


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    result = run(until=0.1)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BackendUnavailableError, match=r"'batchkron\[plot\]'"):
        result.plot("x")


def test_recorded_can_be_made_by_hand():
    recorded = Recorded(np.arange(3.0), {"a": np.ones(3)})
    assert recorded["a"] is recorded.values["a"]
