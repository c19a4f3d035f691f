"""Parts of the GPU benchmark without a device: cases, floors, chains of multiplies, verdicts."""

import json
import math
import pickle
from concurrent.futures import Future

import numpy as np
import pytest
import source_benchmarks
from dense_oracle import dense_kron
from nvrtc import compile_program

ROOT = source_benchmarks.ROOT


def gpu(name):
    return source_benchmarks.module(f"gpu.{name}")


def cpu_shapes():
    return source_benchmarks.module("shapes")


def run(*arguments):
    return source_benchmarks.command("gpu", *arguments, statuses=(0, 2))


def test_cells_are_listed_without_a_device():
    listed = run("--list", "--part", "kron", "--case", "1024: 8^*", "--dtype", "float64")
    assert listed.returncode == 0, listed.stderr
    assert [line.split() for line in listed.stdout.splitlines()] == [
        ["kron", "1024:", "8^5", "float64"],
        ["kron", "1024:", "8^6", "float64"],
    ]


def test_a_choice_of_nothing_is_refused():
    refused = run("--case", "7: 7^7")
    assert refused.returncode == 2
    assert "--list" in refused.stderr


def test_every_recorded_case_is_chosen_once():
    choices = gpu("options").all_choices()
    assert len({(c.part, c.name, c.dtype) for c in choices}) == len(choices)
    names = {c.name for c in choices if c.part == "kron"}
    assert {"1024: 8^5", "320: 128^3", "10: 52×50, 65×20", "16: 16^6", "1: 2^11"} <= names
    assert sum(c.part == "pde" for c in choices) == 2 * 6 * 4 * 2


def test_tuning_is_measured_only_where_it_is_asked_for():
    options, cases = gpu("options"), gpu("cases.cases")
    assert all(choice.part != "tune" for choice in options.read_options([]).choices)
    chosen = options.read_options(["--part", "tune", "--seconds", "7"])
    assert {choice.name for choice in chosen.choices} == cases.TUNED
    assert chosen.seconds == 7
    assert gpu("__main__").jobs(chosen.choices) == []


def test_a_rule_is_judged_by_what_tuning_gains():
    report = gpu("report")
    for rule, verdict in [(10.9, "the rule is within 10%"), (12.0, "the rule is not within 10%")]:
        one = report.Cell("tune", "1: 2^3", "float32", {"microseconds": 10.0})
        one.peers = {"rule": {"microseconds": rule}}
        one.more = {"gain": rule / 10, "tried": 30, "pruned": 4, "failed": 0, "seconds": 12.3}
        assert one.verdict().startswith(verdict)
        assert bool(report.missed([one])) == (rule > 11)
        assert f"rule {rule:.1f}, " in report.line(one)
        assert "tried 30, pruned 4, seconds 12.3 s: " in report.line(one)
    one.ours, one.peers, one.more = {"reason": "not measured: too large"}, {}, {}
    assert one.verdict() == "not measured: too large"
    assert report.line(one).endswith("not measured: too large")


def test_less_precise_cells_are_a_table_of_their_own():
    choices, cases = gpu("options").all_choices(), gpu("cases.cases")
    assert {c.dtype for c in choices if c.part == "precision"} == {"tf32x3", "tf32"}
    assert {c.dtype for c in choices if c.part == "kron"} == {"float32", "float64"}
    full = {case.name: case.figures["float32"][0] for case in cases.KRON}
    for case in cases.PRECISION:
        assert case.figures["tf32x3"][0] < full[case.name]
        floors = [gpu("cases.cases").precision_floor(case.shape, p) for p in ("tf32x3", "tf32")]
        floors.append(gpu("cases.cases").kron_floor(case.shape, "float32"))
        assert floors[1] < floors[0] < floors[2]


def test_work_for_other_processes_can_be_sent_to_them():
    options, command = gpu("options"), gpu("__main__")
    jobs = command.jobs(options.all_choices())
    assert len(jobs) > 200
    assert len(pickle.loads(pickle.dumps(jobs))) == len(jobs)


def test_what_goes_wrong_in_other_processes_is_said():
    outcome = gpu("compiling")._outcome
    good, dead = Future(), Future()
    good.set_result("")
    dead.set_exception(RuntimeError("a process has died"))
    assert (outcome(good), outcome(dead)) == ("", "RuntimeError: a process has died")
    assert gpu("compiling").compile_all([], 2) == []


@pytest.mark.parametrize(
    ("name", "f32", "f64"),
    [("1024: 8^5", 63, 125), ("1024: 16^5", 2639, 4005), ("1024: 64^2", 17, 16)],
)
def test_floors_of_kron_matmuls(name, f32, f64):
    (shape,) = [case.shape for case in gpu("cases.cases").KRON if case.name == name]
    for dtype, floor in (("float32", f32), ("float64", f64)):
        assert gpu("cases.cases").kron_floor(shape, dtype) == pytest.approx(floor, rel=0.04)


# as recorded with the goals, in float64 and float32
BATCH_FLOORS = {
    (1, 4): (584, 292),
    (2, 2): (350, 175),
    (2, 4): (350, 175),
    (3, 2): (292, 146),
    (3, 3): (233, 117),
    (3, 4): (204, 102),
    (4, 2): (233, 117),
    (4, 3): (169, 84),
    (4, 4): (146, 73),
    (5, 3): (138, 69),
    (6, 2): (160, 80),
    (6, 3): (145, 74),
    (6, 4): (193, 99),
    (2, 8): (350, None),
    (3, 6): (175, None),
    (3, 8): (193, None),
    (4, 5): (161, None),
    (5, 4): (161, None),
}


def test_floors_of_batches():
    cases = {(case.modes, case.size): case for case in gpu("cases.cases").BATCHES}
    assert set(cases) == set(BATCH_FLOORS)
    for key, floors in BATCH_FLOORS.items():
        for dtype, floor in zip(("float64", "float32"), floors, strict=True):
            if floor is not None:
                found = gpu("cases.cases").batch_floor(cases[key], dtype)
                assert found == pytest.approx(floor, rel=0.01), (key, dtype)


def test_floors_of_atomic_additions():
    floors = gpu("cases.cases")
    for case in gpu("cases.cases").BATCHES:
        for dtype, rate in (("float64", 305e3), ("float32", 890e3)):  # additions in a microsecond
            atomics = 64 * (2_000_000 // case.input_block) * case.input_block / rate
            expected = max(atomics, floors.batch_floor(case, dtype))
            assert floors.atomic_floor(case, dtype) == pytest.approx(expected), case.name


def test_goals_of_small_batches():
    goal = gpu("cases.cases").small_goal
    assert goal(3, 4, 4_000, "float64") == 2.5
    assert goal(6, 3, 4_000, "float32") == 12
    # 43 blocks, 2752 products of 2 * 729 * 18 multiplications and additions, three parts an output
    summed = 2 * 132 / 43 * 32_000 * 8 / 9.2e6
    expected = 2 * (1.1 + 2752 * 26244 / 31.83e6 + summed)
    assert goal(6, 3, 32_000, "float64") == pytest.approx(expected)
    # 2000 blocks: no output is split
    expected = 2 * (1.1 + 128_000 * 256 / 31.83e6)
    assert goal(2, 4, 32_000, "float64") == pytest.approx(expected)


def test_floors_of_lists():
    cases = gpu("cases.list_cases")
    assert cases.sector_bytes(4, 8) == 32
    assert cases.sector_bytes(3, 8) == pytest.approx((32 + 64 + 64 + 32) / 4)
    one = cases.ListCase(((5, 5),) * 2, 2500)
    assert (one.name, one.blocks, one.products) == ("(2,5) 2k", 100, 6400)
    assert one.flops == 6400 * 2 * 250
    # 5 fibres and 5 results fill 8 and 16, 5 terms of a sum fill 8
    assert cases.padded_flops(one) == 6400 * 2 * 2 * 8 * 16 * 8
    assert cases.arithmetic_seconds(one, "float64") == pytest.approx(one.flops / 31.83e12)
    gathered = 6400 * (cases.sector_bytes(25, 8) + 2 * 224 + 8)
    assert cases.list_floor(one, "float64") == pytest.approx(1e6 * gathered / 8.77e12)
    several = cases.ListCase(one.factors, 2500, vectors=4)
    more = 3 * 6400 * cases.sector_bytes(25, 8)
    assert cases.list_floor(several, "float64") == pytest.approx(1e6 * (gathered + more) / 8.77e12)
    slow = 6400 * (8 + 200 / 1e-3) + 20_000
    assert cases.list_floor(one, "float64", 4.29e9) == pytest.approx(1e6 * slow / 4.29e12)
    wide = cases.ListCase(((16, 16),) * 3)
    assert cases.padded_flops(wide) == wide.flops
    assert cases.arithmetic_seconds(wide, "float64") == pytest.approx(wide.flops / 65e12)


def test_floors_of_sweeps():
    cases = gpu("cases.list_cases")
    one = cases.SweepCase(2, 3)
    assert one.name == "2-D level 3"
    op = one.operator("float32")
    assert op.dtype == np.float32
    assert op.shape[0] == 9 * op.num_inputs
    floors = cases.sweep_floors(op, "float32")
    edges = op._program.num_edges
    assert op.multiply_adds == edges * 27
    moved = 2 * op.shape[0] * 4 + 8 * edges
    assert floors["memory"] == pytest.approx(1e6 * moved / 4.29e12)
    assert floors["gathers"] == pytest.approx(1e6 * edges * cases.sector_bytes(9, 4) / 8.77e12)
    product = cases.SweepCase(2, 3, product=True).operator("float64")
    assert product.num_sweeps == 4
    assert op.num_sweeps == 2


@pytest.mark.parametrize("word", ["uint4", "uint2", "unsigned"])
def test_the_measured_gathers_compile(word):
    source = (ROOT / "benchmarks" / "gpu" / "parts" / "gather.cu").read_text()
    options = ["-std=c++17", "-arch=sm_90"]
    name, code = compile_program(source, {}, f"gather<{word}>", options)
    assert code.startswith(b"\x7fELF")
    assert "gather" in name


def strided(memory, rows, columns, leading, stride, batch, transposed):
    """Matrices by columns as cuBLAS sees them, transposed where it is asked to."""
    size = memory.itemsize
    steps = (leading, 1) if transposed else (1, leading)
    return np.lib.stride_tricks.as_strided(
        memory, (batch, rows, columns), tuple(size * step for step in (stride, *steps))
    )


def run_gemm(one, factor, x, y):
    """What ``gemmStridedBatched`` computes; checks that matrices lie inside of the arrays."""
    operands = [factor, x] if one.factor_first else [x, factor]
    sizes = [(one.m, one.k), (one.k, one.n)]
    seen = []
    for k, (memory, (rows, columns)) in enumerate(zip(operands, sizes, strict=True)):
        stored = (columns, rows) if one.transposed[k] else (rows, columns)
        assert stored[0] <= one.leading[k]
        last = one.strides[k] * (one.batch - 1) + one.leading[k] * (stored[1] - 1) + stored[0]
        assert last <= memory.size
        stretch = (one.leading[k], one.strides[k], one.batch, one.transposed[k])
        seen.append(strided(memory, rows, columns, *stretch))
    target = strided(y, one.m, one.n, one.leading[2], one.strides[2], one.batch, False)
    target[...] = seen[0] @ seen[1]


@pytest.mark.parametrize("form", ["in place", "turned"])
@pytest.mark.parametrize(
    "factors",
    [((3, 3),), ((2, 3), (4, 2)), ((3, 3), (2, 2), (4, 4)), ((1, 4), (5, 2), (3, 3), (2, 1))],
)
def test_chains_of_multiplies_are_the_product(rng, factors, form):
    shape = cpu_shapes().KronMatmul(4, factors)
    matrices = [rng.standard_normal((q, p)) for p, q in factors]
    x = rng.standard_normal((4, math.prod(p for p, _ in factors)))
    steps = gpu("peers.chains").chain(shape, form)
    assert sorted(step.mode for step in steps) == list(range(len(factors)))
    source = x.ravel()
    for step in steps:
        assert step.elements <= shape.largest
        y = np.full(step.elements, np.nan)
        run_gemm(gpu("peers.chains").gemm(step), matrices[step.mode].ravel(), source, y)
        source = y
    np.testing.assert_allclose(source.reshape(4, -1), x @ dense_kron(*matrices).T, rtol=1e-12)


def test_multiplies_of_a_batch_have_their_own_factors(rng):
    factors, x = rng.standard_normal((5, 3, 2)), rng.standard_normal((5, 2, 4))
    step = gpu("peers.chains").Multiply("turned", 0, 5, 2, 3, 4)
    y = np.full(step.elements, np.nan)
    run_gemm(gpu("peers.chains").gemm(step, own_factors=True), factors.ravel(), x.ravel(), y)
    np.testing.assert_allclose(y.reshape(5, 4, 3), (factors @ x).swapaxes(1, 2), rtol=1e-12)


@pytest.mark.parametrize("form", ["in place", "turned"])
def test_torch_computes_the_same_chain(rng, form):
    torch = pytest.importorskip("torch")
    chains, peer = gpu("peers.chains"), gpu("peers.torch_chain")
    shape = cpu_shapes().KronMatmul(4, ((2, 3), (4, 2), (3, 3)))
    matrices = [rng.standard_normal((q, p)) for p, q in shape.factors]
    x, out = rng.standard_normal((4, 24)), torch.empty(4 * 18, dtype=torch.float64)
    buffers = [torch.empty(shape.largest, dtype=torch.float64) for _ in range(2)]
    placed = [torch.from_numpy(matrix) for matrix in matrices]
    pairs = [(torch.from_numpy(x).view(-1), out)]
    chains.kron_calls(shape, placed, pairs, buffers, peer.multiply)[form][0]()
    np.testing.assert_allclose(out.view(4, 18), x @ dense_kron(*matrices).T, rtol=1e-12)


def cell(ours, peers=(), **figures):
    report = gpu("report")
    times = {name: {"microseconds": time} for name, time in dict(peers).items()}
    one = report.Cell("kron", "1: 2^3", "float32", {"microseconds": ours}, times)
    one.goal, one.recorded, one.floor = figures.get("goal"), figures.get("recorded", {}), 5.0
    return one


def test_a_goal_is_met_or_missed():
    assert cell(9.0, goal=10).verdict() == "met"
    assert cell(12.0, goal=10).verdict() == "missed goal (1.20 ×)"
    assert cell(9.0).verdict() == "–"


def test_peers_of_the_run_and_recorded_ones_are_named_where_they_are_faster():
    slow = cell(9.0, {"cuBLAS": 8.0, "torch": 10.0}, goal=10, recorded={"FastKron": (5, 7)})
    assert slow.verdict() == "slower than cuBLAS, slower than FastKron as recorded"
    assert slow.ratio == pytest.approx(9 / 8)
    assert slow.over_floor == pytest.approx(9 / 5)
    assert cell(7.0, {"cuBLAS": 8.0}).verdict() == "fastest"


def test_what_was_not_measured_is_said_and_missed():
    report = gpu("report")
    absent = cell(9.0, goal=10)
    absent.peers["torch"] = {"reason": "not measured: torch is not installed"}
    assert "torch not measured" in report.line(absent)
    assert absent.verdict() == "met"
    absent.ours = {"reason": "wrong result, relative error 1e+00"}
    (text,) = report.missed([absent, cell(9.0, goal=10)])
    assert "wrong result" in text
    assert json.dumps(absent.record())


def test_a_line_has_all_times_and_the_verdict():
    report = gpu("report")
    one = cell(9.0, {"cuBLAS": 8.0}, goal=10, recorded={"FastKron": 7, "cuTENSOR": (5, 8)})
    text = (
        "kron 1: 2^3 float32: ours 9.00, cuBLAS 8.00, ours over best peer 1.12, "
        "recorded (FastKron 7, cuTENSOR (5, 8)), goal 10, floor 5, over floor 1.8: "
        "slower than cuBLAS, slower than FastKron and cuTENSOR as recorded"
    )
    assert report.line(one) == text
    one.part, one.more = "ablation", {"factor": 2.0, "published_factor": None}
    assert "over floor 1.8, factor 2: " in report.line(one)


def raw_metrics():
    """A profiler's table: two cells, the first with two kernels."""
    metrics = {
        "gpu__time_duration.sum": ("1,000", "3,000", "7", "500"),
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("10", "20", "0", "91.5"),
        "lts__throughput.avg.pct_of_peak_sustained_elapsed": ("90", "30", "0", "60"),
        "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": ("1", "54.4", "0", "5"),
        "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_active": ("2", "3", "0", "4"),
        "sm__inst_executed_pipe_tensor_op_dmma.avg.pct_of_peak_sustained_active": (
            "0",
            "7",
            "0",
            "1",
        ),
        "smsp__issue_active.avg.per_cycle_active": ("0.1", "0.45", "0", "0.2"),
        "sm__warps_active.avg.pct_of_peak_sustained_active": ("5", "25", "1", "50"),
        "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": ("9", "1.25", "0", "0"),
        "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio": ("1", "5", "1", "1"),
        "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": ("0", "0.5", "0", "2"),
        "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio": (
            ("0", "3.1", "0", "n/a")
        ),
    }
    kernels = ["marker", "void a<1>(int)", "void batchkron::b<2, f<3>>(X)", "marker", "c(int)"]
    names = ["cell_marker(int *)" if name == "marker" else name for name in kernels]
    yield "==PROF== Connected to process 7"
    yield ",".join(f'"{head}"' for head in ("ID", "Kernel Name", *metrics))
    yield ",".join('"unit"' for _ in range(2 + len(metrics)))
    for number, name in enumerate(names):
        at = 2 if name.startswith("cell_marker") else {1: 0, 2: 1, 4: 3}[number]
        values = [number, name, *(column[at] for column in metrics.values())]
        yield ",".join(f'"{value}"' for value in values)


def test_profiles_are_of_the_longest_kernel_of_each_cell():
    first, second = gpu("profiling").profiles_of(raw_metrics())
    assert (first["kernel"], first["share"]) == ("batchkron::b", 0.75)
    assert first["percent"] == {
        "memory": 20,
        "second-level cache": 30,
        "fma": 54.4,
        "fp64": 3,
        "tensor": 7,
        "issue": 45,
        "occupancy": 25,
    }
    assert first["stalls"] == {"math_pipe_throttle": 3.1, "barrier": 1.25}
    text = "latency: fma at 54 %; waits for math_pipe_throttle 3.1, barrier 1.2"
    assert first["reason"] == text
    assert (second["kernel"], second["reason"]) == ("c", "memory at 92 %")
    profiled = record(20.0, goal=10) | {"profile": first}
    heads, _, row = gpu("profiling").profile_table([profiled, record(9.0, goal=10)])
    assert heads.count("|") == row.count("|")
    assert text in row
    assert json.dumps(profiled)


def record(ours, **figures):
    """A cell as the file has it."""
    return cell(ours, **figures).record() | {"choice": "kron"}


def test_a_profiler_that_is_absent_or_fails_is_said(monkeypatch):
    profiling = gpu("profiling")
    monkeypatch.setattr(profiling.shutil, "which", lambda name: None)
    slow, fast = record(20.0, goal=10), record(9.0, goal=10)
    assert profiling.profile_missed([slow, fast], 25.0) == ["ncu is not installed"]
    monkeypatch.setattr(profiling.shutil, "which", lambda name: "false")
    (said,) = profiling.profile_missed([slow, fast], 25.0)
    assert said == "kron: 0 of 1 cells profiled in 25 s"
    assert profiling.profile_missed([fast, fast], 25.0) == []


def test_the_worst_cells_are_profiled_first_in_their_part_s_share_of_the_time(monkeypatch):
    profiling, asked = gpu("profiling"), []
    monkeypatch.setattr(profiling.shutil, "which", lambda name: "ncu")
    monkeypatch.setattr(
        profiling,
        "profile_part",
        lambda part, cells, ncu, seconds: asked.append((part, cells, seconds)) or "",
    )
    kron = [record(20.0, goal=10), record(40.0, goal=10), record(9.0, goal=10)]
    kron.append(record(90.0, goal=10) | {"profile": {}})
    lists = [record(30.0, goal=10) | {"choice": "lists"}]
    tuned = [record(30.0, goal=10) | {"choice": "tune"}]
    assert profiling.profile_missed(kron + lists + tuned, 30.0) == []
    (first, of_kron, one), (second, of_lists, rest) = asked
    assert (first, of_kron, second, of_lists) == ("kron", [kron[1], kron[0]], "lists", lists)
    assert 19 < one <= 20
    assert 29 < rest <= 30


def test_profiles_are_added_to_a_run_of_the_same_source(monkeypatch, tmp_path, capsys):
    command, path = gpu("__main__"), tmp_path / "results.json"
    here = {"device": "a device", "commit": "abc"}
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(command, "machine", lambda device, commit: here)

    def profiled(cells, seconds):
        cells[0]["profile"] = {"percent": {}, "reason": f"waits for {seconds:g} s"}
        return ["kron: slow"]

    monkeypatch.setattr(command, "profile_missed", profiled)
    report = {"machine": here, "cells": [record(20.0, goal=10)], "seconds": 7}
    path.write_text(json.dumps(report))
    assert command.main(["--profile-of", str(path), "--profile-seconds", "5"]) == 0
    after = json.loads(path.read_text())
    assert after["cells"][0].pop("profile")["reason"] == "waits for 5 s"
    assert after.pop("failures_to_profile") == ["kron: slow"]
    assert after == report
    assert "waits for 5 s" in capsys.readouterr().out
    path.write_text(json.dumps(report | {"machine": here | {"commit": "def"}}))
    with pytest.raises(SystemExit, match="is of the commit def, this is abc"):
        command.main(["--profile-of", str(path)])
