"""Random shapes of the benchmarks: what is drawn, how it is judged, and a run on the CPU."""

import json
import pickle
import time
from collections import Counter
from functools import partial

import numpy as np
import psutil
import pytest
import source_benchmarks
from dense_oracle import dense_kron

import batchkron as bk

ROOT = source_benchmarks.ROOT
MIB = 1 << 20


def module(name):
    return source_benchmarks.module(name)


@pytest.fixture(scope="module")
def many(source_root):
    return module("random_shapes").draws(3000, 1, 64 * MIB)


def test_every_d_kind_dtype_and_size_is_drawn(many):
    modes = Counter(len(draw.shape.factors) for draw in many)
    assert sorted(modes) == list(range(1, 11))
    assert min(modes.values()) > 200  # of 300 that are expected
    assert min(Counter(draw.dtype for draw in many).values()) > 1300
    sizes = {size for draw in many for factor in draw.shape.factors for size in factor}
    assert sizes == set(range(1, 129))
    for kind, is_kind in {
        "equal": lambda own: len(set(own)) == 1,
        "mixed": lambda own: len(set(own)) > 1 and all(p == q for p, q in own),
        "rectangular": lambda own: any(p != q for p, q in own),
    }.items():
        found = [draw for draw in many if is_kind(draw.shape.factors)]
        assert len(found) > 700, kind


def test_rows_and_data_go_from_the_least_to_the_limit(many):
    rows = [draw.shape.rows for draw in many]
    assert min(rows) == 1
    assert 3000 < max(rows) <= 4096
    data = [draw.bytes for draw in many]
    assert min(data) < 100
    assert 60 * MIB < max(data) <= 64 * MIB


def test_the_seed_alone_says_what_is_drawn():
    draws = module("random_shapes").draws
    assert draws(20, 5, MIB) == draws(30, 5, MIB)[:20]
    assert draws(20, 5, MIB) != draws(20, 6, MIB)
    # published results name their seeds: this must not change
    assert [draw.name for draw in draws(3, 1, 64 * MIB)] == [
        "8: 11×8, 23×46 float32",
        "36: 40 float32",
        "6: 98 float32",
    ]
    with pytest.raises(ValueError, match="at least"):
        draws(1, 1, 1000)


def draw(rows, *factors, dtype="float32"):
    shape = module("shapes").KronMatmul(rows, factors)
    return module("random_shapes").Draw(shape, dtype)


def test_data_count_the_buffers_of_a_chain():
    assert draw(2, (3, 5)).bytes == 4 * 2 * (3 + 5)
    assert draw(1, (3, 5), (2, 2)).bytes == 4 * (6 + 10 + 10)
    assert draw(1, (3, 5), (4, 2), (1, 1), dtype="float64").bytes == 8 * (12 + 10 + 2 * 20)


def test_one_factor_or_large_ones_are_plain_multiplies():
    assert draw(1, (8, 8)).plain
    assert draw(1, (8, 8), (64, 8)).plain
    assert not draw(1, (8, 8), (63, 100)).plain


def stand(one, seconds, **peers):
    (found,) = module("random_shapes").standing(one, "operator", seconds, peers) or [None]
    return found


def test_the_best_peer_counts_and_classes_ask_for_less_or_more():
    small, plain = draw(1, (8, 8), (8, 8)), draw(1, (8, 8))
    one = stand(small, 10.0, NumPy=12.0, FastKron=9.5)
    assert (one["best_peer"], one["ratio"]) == ("FastKron", 0.95)
    margin = module("random_shapes").margin
    assert margin(one) < 1 < margin(stand(plain, 10.0, NumPy=9.5))
    assert stand(plain, 10.0) is None
    assert stand(plain, None, NumPy=1.0) is None
    found = [one, stand(small, 1.0, NumPy=3.0), stand(plain, 10.0, NumPy=9.5)]
    figures = module("random_shapes").figures
    assert figures(found, plain=False) == {
        "shapes": 2,
        "share": 0.5,
        "median_ratio": pytest.approx((0.95 + 3) / 2),
        "least_ratio": 0.95,
    }
    assert figures(found, plain=True)["share"] == 1
    said = module("random_shapes").summary(found, 0.5, 3.0)
    assert [line.rpartition(" ")[2] for line in said] == ["True", "True", "False"]


def test_the_worst_ten_are_listed_from_the_worst_on():
    found = [stand(draw(rows, (8, 8)), 10.0, NumPy=10.0 * rows) for rows in range(30, 0, -1)]
    found.append(stand(draw(7, (8, 8), (8, 8)), 10.0, NumPy=9.5))
    head, *rows = module("random_shapes").worst_standings(found)
    assert head == "\n### The worst 10: operator\n"
    names = [row.partition(", ")[0] for row in rows]
    assert names == ["shape 7: 8^2", *(f"shape {count}: 8" for count in range(1, 10))]


def test_the_busy_process_ends_with_the_mood():
    def programs():
        children = psutil.Process().children()
        return [child for child in children if "getppid" in " ".join(child.cmdline())]

    seen = []

    def interrupted():
        with module("cpu.random_run").mood("busy"):
            (busy,) = programs()
            seen.append(busy)
            before = sum(busy.cpu_times()[:2])
            while sum(busy.cpu_times()[:2]) < before + 0.05:
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert programs() == []
    assert not seen[0].is_running()


def test_threads_take_turns_with_something_between_calls(rng):
    moods, contenders, timing = (
        module(name) for name in ("cpu.random_run", "cpu.contenders", "core.timing")
    )
    data = contenders.make_data(draw(2, (3, 3), (2, 2)).shape, np.dtype("float64"), 1, rng)
    log = []
    call = contenders.Batchkron().kron_matmul(data)[0].calls[0]

    def logged():
        log.append(bk.get_num_threads())
        call()

    contender = timing.Contender("batchkron", "operator", [logged])
    before = bk.get_num_threads()
    try:
        one, two = moods.in_turn([contender], data, (1, 2), lambda: log.append("between"))
    finally:
        bk.set_num_threads(before)
    assert (one["threads"], two["threads"]) == (1, 2)
    assert one["samples"] == two["samples"] >= moods.MIN_SAMPLES
    assert set(log[::2]) == {"between"}
    assert log[1::2] == [1, 2] * (len(log) // 4)


def command(*arguments):
    return source_benchmarks.command("cpu", *arguments, statuses=(0, 2))


def test_a_run_writes_standings_and_gains(tmp_path):
    path = tmp_path / "random.json"
    options = ["--random", "2", "--seed", "3", "--limit", "1", "--threads", "1,2"]
    options += ["--mood", "alone", "blas", "--peers", "NumPy", "--json", str(path)]
    run = command(*options)
    assert run.returncode == 0, run.stderr
    record = json.loads(path.read_text())
    drawn = module("random_shapes").draws(2, 3, MIB)
    assert [shape["shape"] for shape in record["shapes"]] == [one.shape.name for one in drawn]
    assert record["settings"]["seed"] == "3"
    assert record["machine"]["commit"] is not None
    calls = {(one["shape"], one["call"]) for one in record["standings"]}
    assert len(calls) == 2 * 2 * 2  # operator and function, on one thread and on two
    assert all(one["ratio"] > 0 for one in record["standings"])
    assert {one["best_peer"] for one in record["standings"]} <= {"NumPy", "NumPy, bound"}
    assert Counter((one["mood"], one["call"]) for one in record["gains"]) == {
        (mood, call): 2 for mood in ("alone", "blas") for call in ("operator", "function")
    }
    assert "### The worst 2: operator, 1 thread" in run.stdout
    assert "FastKron was not measured: left out by --peers" in run.stdout
    assert run.stdout.endswith("## Wrong results of ours\n\nnone\n")


def test_threads_that_seem_slower_have_another_turn(rng, monkeypatch):
    moods, contenders, timing = (
        module(name) for name in ("cpu.random_run", "cpu.contenders", "core.timing")
    )
    data = contenders.make_data(draw(2, (3, 3)).shape, np.dtype("float64"), 1, rng)
    call = contenders.Batchkron().kron_matmul(data)[0].calls[0]

    def fast_on_two():
        call()
        time.sleep(0.003 / bk.get_num_threads())

    def slow_on_two():
        call()
        time.sleep(0.001 * bk.get_num_threads())

    turns = []
    take = moods.take_turns
    monkeypatch.setattr(moods, "TURN_SECONDS", 0.01)
    monkeypatch.setattr(moods, "AGAIN_SECONDS", 0.02)

    def counted(lanes, prepare, seconds, samples):
        turns.append(seconds)
        take(lanes, prepare, seconds, samples)

    monkeypatch.setattr(moods, "take_turns", counted)
    before = bk.get_num_threads()
    try:
        for function, expected in (
            (fast_on_two, [0.02, 0.01]),
            (slow_on_two, [0.02, 0.01, 0.02]),
        ):
            turns.clear()
            contender = timing.Contender("batchkron", "operator", [function])
            moods.in_turn([contender], data, (1, 2), lambda: None)
            assert turns == expected
    finally:
        bk.set_num_threads(before)


def test_options_that_do_not_go_together_are_refused():
    assert "not with --quick" in command("--random", "2", "--quick").stderr
    assert "are for --random" in command("--mood", "busy").stderr


def test_a_wrong_result_of_ours_is_named(rng, monkeypatch, capsys):
    contenders, cells, run, timing = (
        module(name)
        for name in ("cpu.contenders", "cpu.contenders", "cpu.random_run", "core.timing")
    )
    conditions = cells.Conditions([], {}, bk.set_num_threads, (1, 0.001), MIB, MIB, rng)

    def zeros(peer, data):
        return [timing.Contender(peer.name, "gemkm", [partial(data.outputs[0].fill, 0)])]

    monkeypatch.setattr(contenders.OurFunction, "kron_matmul", zeros)
    before = bk.get_num_threads()
    try:
        one = draw(2, (3, 3))
        measured = run.measure_draw(one, conditions, (1, 2), ["alone"])
    finally:
        bk.set_num_threads(before)
    wrong = run.wrong_results(measured)
    assert len(wrong) == 4  # next to the peers and in turn, on each number of threads
    assert run.print_tables([one], [measured], (1, 2))["wrong"] == wrong
    assert "wrong result: off by" in capsys.readouterr().out


def gpu_options(*arguments):
    return module("gpu.options").read_options(arguments)


def test_a_device_gets_the_same_shapes_within_its_own_limit():
    options = gpu_options("--random", "5", "--seed", "2", "--limit", "4")
    drawn = module("random_shapes").draws(5, 2, 4 * MIB)
    assert [choice.case for choice in options.choices] == drawn
    assert {choice.part for choice in options.choices} == {"random"}
    today = gpu_options("--random", "1")
    assert today.seed == int(time.strftime("%Y%m%d", time.gmtime()))
    (only,) = today.choices
    assert only.case.bytes <= 512 * MIB


@pytest.mark.parametrize("other", [["--part", "kron"], ["--ablate", "all"], ["--profile"]])
def test_other_cells_are_not_chosen_with_random_ones(other, capsys):
    with pytest.raises(SystemExit):
        gpu_options("--random", "5", *other)
    assert "--random goes with" in capsys.readouterr().err


def test_kernels_of_random_shapes_are_compiled_ahead():
    options = gpu_options("--random", "5", "--seed", "2")
    jobs = module("gpu.__main__").jobs(options.choices)
    names = Counter(job.func.__name__ for job in pickle.loads(pickle.dumps(jobs)))
    assert names == {"compile_kron": 5, "compile_function": 5}


def gpu_cell(one, ours, function, peers):
    cell = module("gpu.report").Cell("random", one.shape.name, one.dtype, ours, peers)
    cell.more["function"] = function
    return cell


def times(graph, eager):
    return {"microseconds": graph, "eager_microseconds": eager}


def test_calls_on_a_device_stand_next_to_peers_called_in_the_same_way():
    one = draw(1, (8, 8), (8, 8))
    peers = {"cuBLAS": times(3.0, 30.0), "torch": {"reason": "absent"}, "JAX": times(20.0, 20.0)}
    cell = gpu_cell(one, times(2.0, 5.0), times(4.0, 10.0), peers)
    standings = module("gpu.report").standings_of([one], [cell])
    assert [(s["call"], s["best_peer"], pytest.approx(s["ratio"])) for s in standings] == [
        ("operator, in a graph", "cuBLAS", 1.5),
        ("function, in a graph", "cuBLAS", 0.75),
        ("operator, eager", "JAX", 4.0),
        ("function, eager", "JAX", 2.0),
    ]
    assert standings[0]["seconds"] == pytest.approx(2e-6)
    report = module("gpu.report")
    assert "function (microseconds 4, eager microseconds 10): " in report.line(cell)
    assert json.dumps(cell.record())


def test_a_function_without_a_time_on_a_device_is_named(capsys):
    one = draw(1, (8, 8), (8, 8))
    peers = {"cuBLAS": times(3.0, 30.0)}
    cell = gpu_cell(one, times(2.0, 5.0), {"reason": "wrong result"}, peers)
    found = module("gpu.report")
    assert found.wrong_results([cell]) == ["1: 8^2 float32: function: wrong result"]
    standings = found.standings_of([one], [cell])
    assert [s["call"] for s in standings] == ["operator, in a graph", "operator, eager"]
    module("gpu.__main__").print_list("Ours without a time", found.wrong_results([cell]))
    assert "- 1: 8^2 float32: function: wrong result" in capsys.readouterr().out


def test_jax_computes_the_same_product(rng):
    pytest.importorskip("jax")
    shape = draw(4, (2, 3), (4, 2), (3, 3)).shape
    factors = [rng.standard_normal((q, p)) for p, q in shape.factors]
    inputs = [rng.standard_normal((4, 24)) for _ in range(2)]
    chain = module("gpu.peers.jax_chain").Chain(shape, factors, inputs)
    chain.run()
    chain.wait()
    expected = inputs[-1] @ dense_kron(*factors).T
    np.testing.assert_allclose(chain.result, expected, rtol=1e-12)
