"""The benchmark of ranks: its cells, what is compiled ahead, and how it goes on after a failure."""

import importlib
import importlib.util
import json

import numpy as np
import pytest
import source_benchmarks
from mpi_launcher import MPIEXEC

import batchkron as bk
from batchkron.distributed import distribute, simulate
from batchkron.problems import make

ROOT = source_benchmarks.ROOT
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or MPIEXEC is None,
    reason="mpi4py or mpiexec is not installed: pip install mpi4py mpich",
)


def module(name):
    return source_benchmarks.module(f"distributed.{name}")


class OneRank:
    """A rank alone, as far as cells need it."""

    rank, size = 0, 1

    def __init__(self, seconds=100.0):
        self.records, self.left, self.said = [], seconds, []
        self.host = self

    def broadcast(self, value, root):
        return value

    def has_time(self, needed):
        return needed < self.left

    def elapsed(self):
        return 0.0

    def say(self, *text):
        self.said.append(" ".join(map(str, text)))

    def free(self):
        pass

    def end_all(self):
        self.said.append("ended")


def cell(name, work=lambda ranks: True, seconds=1.0, part="p"):
    return module("parts").Cell(part, name, seconds, work)


def fails(ranks):
    raise ValueError("no such thing")


@needs_mpi
def test_all_cells_of_two_processes(tmp_path):
    path = tmp_path / "ranks.json"
    source_benchmarks.command("distributed --launch 2 --quick --json", path)
    found = json.loads(path.read_text())
    assert (found["ranks"], found["right"], found["finished"]) == (2, True, True)
    assert not found["failed"]
    assert not found["left_out"]
    checks = [each for each in found["cases"] if each["case"] == "correctness"]
    assert len(checks) == 10
    assert all(each["right"] and each["sent_by_plan"] for each in checks)
    (link,) = (each for each in found["cases"] if each["case"] == "link")
    exchanged = [each for each in found["cases"] if each.get("grid") == [1, 2]]
    assert [each["exchange"] for each in exchanged] == ["group", "every"]
    for each in exchanged:
        assert each["bytes_right"]
        assert each["counted_bytes"] == each["planned_bytes"] > 0
        expected = each["most_bytes"] / link["bytes_per_second"]
        assert each["sending_seconds"] == pytest.approx(expected)


def test_a_cell_without_time_is_left_out(tmp_path):
    path, ranks, done = tmp_path / "a.json", OneRank(seconds=5.0), []
    cells = [
        cell("short", lambda ranks: done.append("short")),
        cell("long", lambda ranks: done.append("long"), seconds=6.0),
        cell("wrong", lambda ranks: False),
        cell("other", lambda ranks: done.append("other"), part="q"),
    ]
    assert not module("parts").run_cells(ranks, cells, path, ["p"], {"ranks": 1})
    found = json.loads(path.read_text())
    assert done == ["short"]
    assert found["done"] == ["p: short", "p: wrong"]
    assert found["left_out"] == ["p: long"]
    assert (found["right"], found["finished"], found["ranks"]) == (False, True, 1)


def test_a_failed_cell_ends_all_and_is_known(tmp_path, capsys):
    path, ranks = tmp_path / "a.json", OneRank()

    def measure(ranks):
        ranks.records.append({"case": "kept"})

    cells = [cell("first", measure), cell("second", fails), cell("third", measure)]
    with pytest.raises(ValueError, match="no such thing"):
        module("parts").run_cells(ranks, cells, path, None, {})
    found = json.loads(path.read_text())
    assert ranks.said[-1] == "ended"
    assert found["under_way"] == "p: second"
    assert found["cases"] == [{"case": "kept"}]
    assert "no such thing" in capsys.readouterr().err


def test_ranks_start_again_behind_a_failed_cell(tmp_path, monkeypatch):
    path, turns = tmp_path / "a.json", []

    def measure(ranks):
        ranks.records.append({"case": "kept"})

    def attempt(command, seconds):
        turns.append(command)
        cells = [cell("first", measure), cell("second", fails), cell("third", measure)]
        try:
            module("parts").run_cells(OneRank(), cells, path, None, {})
        except ValueError:
            return "the end of the output"
        return ""

    monkeypatch.setattr(module("launch"), "_run", attempt)
    monkeypatch.setattr(module("launch"), "mpiexec", lambda: "mpiexec")
    assert not module("launch").launch(3, ["--quick"], path, 100.0)
    found = json.loads(path.read_text())
    assert found["done"] == ["p: first", "p: third"]
    assert found["failed"] == {"p: second": "the end of the output"}
    assert found["cases"] == [{"case": "kept"}] * 2
    assert (found["finished"], found["right"]) == (True, False)
    assert [command[:3] for command in turns] == [["mpiexec", "-n", "3"]] * 2


def test_ranks_that_never_begin_are_given_up(tmp_path, monkeypatch):
    turns = []
    monkeypatch.setattr(module("launch"), "_run", lambda command, seconds: turns.append(1) or "")
    monkeypatch.setattr(module("launch"), "mpiexec", lambda: "mpiexec")
    assert not module("launch").launch(2, [], tmp_path / "a.json", 100.0)
    assert len(turns) == 2


def test_a_run_goes_on_behind_what_its_file_has(tmp_path):
    path, known_of = tmp_path / "a.json", module("parts").known_of
    found = {"right": False, "failed": {"p: b": "text"}, "done": ["p: a"], "cases": [{"case": "c"}]}
    path.write_text(json.dumps({**found, "ranks": 2, "under_way": "p: c", "left_out": ["p: d"]}))
    begun = {"finished": False, "under_way": None, "left_out": []}
    assert known_of(path) == {**found, **begun}
    assert known_of(tmp_path / "b.json")["cases"] == known_of(None)["cases"] == []


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (1, [(1, 1)]),
        (2, [(2, 1), (1, 2)]),
        (4, [(4, 1), (1, 4), (2, 2)]),
        (8, [(8, 1), (1, 8), (4, 2)]),
    ],
)
def test_grids(ranks, expected):
    assert module("products").grids(ranks) == expected


@pytest.mark.parametrize("grid", [(1, 2), (2, 1), (2, 2), (1, 4)])
@pytest.mark.parametrize("rule", ["group", "every"])
def test_what_ranks_multiply_is_compiled_ahead(monkeypatch, grid, rule):
    """The local multiplies of a product are among those that are compiled."""
    products = module("products")
    case, ranks = products.Case(8, 4, 8, "float32"), grid[0] * grid[1]
    called = set()
    multiply = bk.KroneckerProduct._run

    def noted(self, x, y, outer, inner, *more):
        called.add((8, len(self.factors), "float32", outer, inner))
        multiply(self, x, y, outer, inner, *more)

    monkeypatch.setattr(bk.KroneckerProduct, "_run", noted)

    def program(comm):
        whole = bk.KroneckerProduct(products.factors_of(case))
        op = distribute(whole, comm, grid, rows=case.rows * ranks, exchange=rule)
        rows = op.layout.rows_of(comm.rank)
        op.apply(np.ones((rows.stop - rows.start, op.shape[1]), "float32"))

    simulate(ranks, program)
    assert called
    assert called <= set(module("compiling")._pieces_of(case, ranks, grid))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_what_a_rank_multiplies_alone_is_compiled_ahead(ranks):
    jobs = module("compiling").jobs_of(ranks, False)
    pieces = {job.args for job in jobs if job.func is module("compiling").compile_piece}
    for dtype in ("float32", "float64"):
        assert {(64, 4, dtype, 64, 1), (128, 4, dtype, 4, 1)} < pieces
    assert (64, 5, "float32", 1, 1) in pieces


def test_the_names_of_operators_are_those_that_are_checked():
    correctness = module("correctness")
    made = correctness._operators(np.random.default_rng(0))
    assert tuple(name for name, _, _ in made) == correctness.OPERATORS


@pytest.fixture
def model():
    return module("model")


@pytest.mark.parametrize("P", [64, 128])
def test_the_model_without_exchanges_is_one_device(model, P):
    case = next(one for one in model.CASES if one.P == P and not one.total)
    for devices in (1, 2, 16, 1024):
        found = model.best(model.Machine(), case, devices)
        assert found.grid == (devices, 1)
        assert (found.sending, found.rounds, found.efficiency) == (0, 0, 1)


def test_the_model_sends_what_the_formula_says(model):
    """V = G_M ceil(N / N_local) TG_M (K - TG_K): FastKron's section 5, for all devices."""
    machine, case = model.Machine(), model.Product(64, 4, 64)
    for g_m, g_k in ((1, 2), (2, 2), (4, 2), (1, 8)):
        devices, K = g_m * g_k, 64**4
        rows = 64 * devices / g_m
        for rule, rounds in (("group", 2), ("every", 4)):
            volume = g_m * rounds * rows * (K - K / g_k)
            for transport, rate in (("stores", machine.stores), ("nccl", machine.inside)):
                found = model.estimate(machine, case, (g_m, g_k), rule, transport)
                assert found.rounds == rounds
                assert found.sending == pytest.approx(4 * volume / devices / rate)


def test_the_model_stores_inside_of_a_host_and_sends_between_hosts(model):
    machine, case = model.Machine(), model.Product(64, 5, 1, total=True)
    for parts in (2, 8, 16, 64):
        found = model.estimate(machine, case, (1, parts))
        transport = "stores" if parts <= machine.host else "nccl"
        assert found == model.estimate(machine, case, (1, parts), "group", transport)
        every = model.estimate(machine, case, (1, parts), "every")
        assert every == model.estimate(machine, case, (1, parts), "every", "nccl")
        assert every.seconds > found.seconds > max(found.alone, found.sending)


def results_of(name):
    path = ROOT / "benchmarks" / "results" / name
    return path, json.loads(path.read_text())


RUNS = ["h200-two-gpus.json", "h200-four-gpus.json"]


@pytest.mark.parametrize("name", RUNS)
def test_the_model_takes_rates_of_a_run(model, name):
    """Multiplies, the link, and exchanges after each multiply, whose passes are as measured."""
    path, content = results_of(name)
    machine = model.measured(model.Machine(), path)
    grid = 1, content["ranks"]
    for case in (one for one in model.CASES if not one.total):
        (run,) = (
            one
            for one in content["cases"]
            if one["case"] == f"{case.rows}: {case.P}^{case.N} float32"
            and (one["grid"], one["exchange"]) == (list(grid), "every")
            and one["transport"] == "nccl"
            and not one["transpose"]
        )
        found = model.estimate(machine, case, grid, "every")
        assert found.alone == pytest.approx(run["alone_seconds"])
        assert found.sending == pytest.approx(run["sending_seconds"])
        assert found.seconds == pytest.approx(run["seconds"], rel=0.07)


def test_the_model_of_stores_on_four_devices(model):
    """All grids and cases of the run, with two numbers that are fitted to them."""
    path, content = results_of("h200-four-gpus.json")
    machine = model.measured(model.Machine(), path)
    stored = [one for one in content["cases"] if one.get("transport") == "peer" and "grid" in one]
    known = [one for one in stored if one["case"].endswith("float32")]
    assert len(known) == 5
    for one in known:
        case = next(
            each
            for each in model.CASES
            if one["case"].startswith(f"{each.rows}: {each.P}^{each.N} ")
        )
        found = model.estimate(machine, case, tuple(one["grid"]))
        assert found.seconds == pytest.approx(one["seconds"], rel=0.1)
    lines = model.comparison(machine, path)
    assert len(lines) == 2 + 3 * len(known)
    assert sum("| stores |" in line for line in lines) == len(known)


def test_the_model_draws(model, tmp_path):
    pytest.importorskip("matplotlib")
    path, _ = results_of("h200-four-gpus.json")
    model.draw(model.Machine(), tmp_path / "model.svg", run=path)
    text = (tmp_path / "model.svg").read_text()
    assert "FastKron's grid" in text
    assert "measured" in text


@pytest.mark.parametrize(
    ("number", "grids"), [(0, [(4, 1), (2, 2)]), (1, [(4, 1), (2, 2)]), (2, [(1, 4)])]
)
def test_the_picture_shows_the_grids_of_the_model(model, number, grids):
    path, content = results_of("h200-four-gpus.json")
    case = model.CASES[number]
    known = model.measured_efficiencies(path, case)
    expected = [
        one["efficiency"]
        for one in content["cases"]
        if one["case"] == f"{case.rows}: {case.P}^{case.N} float32"
        and tuple(one["grid"]) in grids
        and one["exchange"] == "group"
        and one["transport"] == ("nccl" if one["grid"][1] == 1 else "peer")
    ]
    assert known == [(4, share) for share in expected]
    assert len(known) == len(grids)


def test_the_table_has_all_numbers_of_devices(model):
    lines = model.table(model.Machine())
    assert len(lines) == 2 + len(model.CASES) * len(model.COUNTS)
    assert len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize("level", [7, 8])
@pytest.mark.parametrize("name", RUNS)
def test_the_model_of_sweeps_takes_the_times_of_a_run(model, name, level):
    """The line through one device's times, and what several devices needed of each level."""
    path, content = results_of(name)
    machine = model.measured(model.Machine(), path)
    sweeps = f"sweeps, continuity-6d, level {level}, degree 1"
    (one,) = (each for each in content["cases"] if each["case"] == sweeps)
    alone, several = (
        model.estimate(machine, model.Sweeps(level, 1, total=True), (1, parts))
        for parts in (1, content["ranks"])
    )
    assert alone.seconds == pytest.approx(one["alone_seconds"], rel=0.1)
    assert (alone.rounds, alone.efficiency) == (0, 1)
    # the run counts what ranks send, the model what they get, too
    assert one["sending_seconds"] <= several.sending * (1 + 1e-6) <= 1.2 * one["sending_seconds"]
    assert several.seconds == pytest.approx(one["graph_seconds"], rel=0.2)


def test_the_model_of_sweeps_counts_what_ranks_send():
    """Inside of hosts and between them, as the plan of `distribute` says for all ranks."""
    traffic = module("model").traffic
    whole = make("continuity-6d", level=3, degree=1).operator
    _, _, near, far, exchanges = traffic(3, 4, 8)
    volumes = simulate(4, lambda comm: distribute(whole, comm, (1, 4)).volume())
    assert far == 0
    assert max(volume.own_elements for volume in volumes) <= near <= volumes[0].elements
    assert exchanges == volumes[0].exchanges
    assert traffic(3, 4, 1)[2:4] == (0, near)
    _, _, inside, outside, _ = traffic(3, 4, 2)
    assert max(inside, outside) <= near <= inside + outside


@pytest.mark.parametrize("devices", [2, 16, 64])
def test_several_runs_are_dealt_out_and_one_is_spread(model, devices):
    machine = model.Machine()
    many = model.best(machine, model.Sweeps(3, 1), devices)
    assert many.grid == (devices, 1)
    assert many.efficiency == pytest.approx(1)
    one = model.best(machine, model.Sweeps(3, 1, total=True), devices)
    assert one.grid == (1, devices)
    assert one.efficiency < 1
    assert one.sending > 0
