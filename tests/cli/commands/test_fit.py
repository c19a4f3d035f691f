"""`batchkron fit`: rates of recorded quantities."""

import json

import numpy as np
import pytest

from batchkron.solvers import fit_growth
from batchkron.storage import ResultFile, load_checkpoint, save_checkpoint, save_result

T = np.linspace(0.0, 20.0, 300)


def write(path, quantities, **more):
    history = [
        {"event": "step", "step": k, "t": float(t), "seconds": 0.0,
         "quantities": {name: float(values[k]) for name, values in quantities.items()}}
        for k, t in enumerate(T)
    ]  # fmt: skip
    content = ResultFile(
        u=np.ones(3), t=20.0, status="completed", steps=299, dt=0.1, method="rk4",
        problem_hash="0" * 64, problem_name="waves", history=history, **more,
    )  # fmt: skip
    save_result(path, content)
    return path


WAVE = np.exp(-0.153 * T) * np.abs(np.cos(1.4 * T))


@pytest.fixture
def result(folder):
    return write(folder / "r.h5", {"field": WAVE, "growing": np.exp(0.2 * T)})


def test_it_prints_what_python_fits(cli, result):
    expected = fit_growth(T, WAVE, between=(4.0, 20.0))
    words = ["fit", "r.h5", "--quantity", "field", "--between", "4", "20"]
    lines = cli(*words).stdout.splitlines()
    table = {line[:11].strip(): line[11:] for line in lines}
    assert table["quantity"] == "field"
    assert table["fit"].startswith(f"maxima, {expected.points} maxima from t = ")
    assert table["rate"].startswith(f"{expected.rate:.6g} ± ")
    assert table["frequency"].startswith(f"{expected.frequency:.6g} ± ")
    report = json.loads(cli(*words, "--json").stdout)
    assert report["rate"] == expected.rate
    assert report["frequency"] == expected.frequency
    assert report["rate_scatter"] == expected.rate_scatter
    assert report["residual"] == expected.residual
    assert float(table["residual"]) == pytest.approx(expected.residual, rel=0.1)
    assert report["between"] == list(expected.between)
    assert (report["model"], report["plot"]) == ("maxima", None)


def test_info_names_what_was_recorded(cli, result):
    assert "recorded        field, growing at 300 times" in cli("info", "r.h5").stdout


def test_growth_has_no_frequency(cli, result):
    table = cli("fit", "r.h5", "--quantity", "growing").stdout
    assert "rate      0.2 ± " in table
    assert "frequency" not in table


def test_the_only_quantity_needs_no_name(cli, folder):
    write(folder / "one.h5", {"field": WAVE})
    assert "quantity   field" in cli("fit", "one.h5").stdout


def test_it_draws_the_fit(cli, folder, result, refused):
    words = ["fit", "r.h5", "--quantity", "field", "--plot", "f.svg"]
    assert "plot       f.svg" in cli(*words).stdout
    assert "</svg>" in (folder / "f.svg").read_text()
    assert "f.svg exists" in refused(*words)
    cli(*words, "--force")


def test_a_run_is_fitted_from_start_to_end(cli, folder):
    """Landau damping, on a grid that is fine enough, from the command line alone."""
    cli("run", "landau-1x1v", "--level", "2,5", "--grid", "full", "--until", "12", "--dt", "0.06",
        "--record", "field", "--quiet", "-o", "landau.h5")  # fmt: skip
    report = json.loads(cli("fit", "landau.h5", "--between", "3", "12", "--json").stdout)
    assert report["rate"] == pytest.approx(-0.15336, rel=0.03)
    assert report["frequency"] == pytest.approx(1.41566, rel=0.01)


def test_checkpoints_are_fitted_too(cli, folder, problem):
    from batchkron.solvers import evolve

    watch = {"growing": lambda t, u: float(np.exp(0.2 * t))}
    evolve(problem, until=0.1, dt=0.01, watch=watch, checkpoint="c.h5")
    assert "rate      0.2 ± " in cli("fit", "c.h5").stdout
    broken = load_checkpoint("c.h5")
    broken.history.append({"t": 1.0, "quantities": {"growing": "fast"}})
    save_checkpoint("d.h5", broken)
    assert "not numbers" in cli("fit", "d.h5", expect=2).stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nothing.h5"], ["nothing.h5 does not exist"]),
        (["r.h5"], ["--quantity is missing; r.h5 has field, growing"]),
        (["r.h5", "--quantity", "mass"], ["'mass' was not recorded; r.h5 has field, growing"]),
        (["r.h5", "--quantity", "field", "--between", "5", "3"], ["no two ascending times"]),
        (["r.h5", "--quantity", "field", "--between", "30", "40"], ["0 values"]),
        (["r.h5", "--quantity", "growing", "--model", "maxima"], ["0 maxima"]),
        (["r.h5", "--quantity", "field", "--model", "line"], ["--model"]),
        (["r.h5", "--quantity", "field", "--plot", "a.xyz"], ["a.xyz", ".png"]),
        (["r.h5", "--quantity", "field", "--plot", "r.h5", "--force"], ["the result"]),
        (["c2.h5"], ["c2.h5 is a problem", "--record"]),
        (["empty.h5"], ["empty.h5 has no quantities over time", "--record field"]),
    ],
)
def test_what_cannot_be_fitted_is_refused(refused, result, problem_file, folder, words, expected):
    write(folder / "empty.h5", {})
    error = refused("fit", *words)
    for text in expected:
        assert text in error
