"""Tuning on a device: what is found is right, kept, used by later plans, and ignored if stale."""

import importlib
import json
import os

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk
from batchkron.backends import Tuning, tuned_plans
from batchkron.backends.cuda.kernel_family import forget_plans
from batchkron.backends.cuda.kron_sparse.kernel import SparseShape
from batchkron.backends.cuda.kron_sparse.search_space import SparseSpace
from batchkron.backends.cuda.runtime.kernel_cache import tuning_path
from batchkron.backends.cuda.tuning.search import RejectedError
from batchkron.backends.cuda.tuning.store import kept_entry

pytestmark = pytest.mark.gpu

FEW = {"seconds": 60, "candidates": 6}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Kernels and tuning results of the test's own."""
    monkeypatch.setenv("BATCHKRON_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def kron_plans(cupy):
    """The module of Kron-Matmuls; no plan of another test is remembered."""
    kron = importlib.import_module("batchkron.backends.cuda.kron.plan")
    forget_plans()
    yield kron
    forget_plans()


def close(result, expected, dtype):
    scale = 1000 * np.finfo(dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(result.get(), expected, rtol=0, atol=scale)


def only_entry():
    ((key, entry),) = json.loads(tuning_path().read_text())["entries"]
    return key, entry


def rewrite(**changed):
    """Change the only entry of the store."""
    content = json.loads(tuning_path().read_text())
    content["entries"][0][1].update(changed)
    tuning_path().write_text(json.dumps(content))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_a_tuned_operator_is_right_and_found_again(cupy, rng, poisoned_on_device, dtype):
    factors = [random_array(rng, shape, dtype) for shape in [(3, 4), (4, 4), (2, 3)]]
    x = random_array(rng, (5, 48), dtype)
    expected = bk.KroneckerProduct(factors).apply(x)
    with tuned_plans(Tuning(**FEW)) as tuning:
        op = bk.KroneckerProduct(factors).to("cuda")
        assert tuning.outcomes == [], "the number of vectors is not known yet"
        for _ in range(2):
            out = poisoned_on_device(expected.shape, dtype)
            op.apply(cupy.asarray(x), out=out)
            close(out, expected, dtype)
    (outcome,) = tuning.outcomes
    assert outcome.failed == 0, outcome.reasons
    assert outcome.tried > 0
    assert outcome.gain >= 1
    key, entry = only_entry()
    assert entry["choice"] == outcome.choice
    assert kept_entry(key).microseconds == outcome.microseconds
    with tuned_plans(Tuning(**FEW)) as again:
        close(bk.KroneckerProduct(factors).to("cuda").apply(cupy.asarray(x)), expected, dtype)
    assert [one.was_known for one in again.outcomes] == [True]


def test_the_argument_searches_once(cupy, rng, monkeypatch):
    from batchkron.backends.cuda.tuning import tuning

    monkeypatch.setattr(tuning, "Tuning", lambda: Tuning(**FEW))
    factors = rng.standard_normal((2, 3, 3))
    op = bk.KroneckerProduct(factors, tune=True).to("cuda")
    assert not tuning_path().exists()
    x = rng.standard_normal((4, 9))
    close(op.apply(cupy.asarray(x)), bk.KroneckerProduct(factors).apply(x), np.float64)
    written = tuning_path().stat().st_mtime_ns
    op = bk.KroneckerProduct(factors, tune=True).to("cuda")
    op.apply(cupy.asarray(x))
    assert tuning_path().stat().st_mtime_ns == written


@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
def test_sparse_matrices_are_tuned_in_all_ways(cupy, rng, poisoned_on_device, dtype, layout):
    values = random_array(rng, (2, 24, 16, 3), dtype)
    x = random_array(rng, (640, 96) if layout == "batch-first" else (96, 640), dtype)
    host = bk.KroneckerSparse(values, layout=layout)
    expected = host.apply(x)
    close_to = np.float32 if dtype == np.complex64 else dtype
    scale = 8 * (1 if dtype == np.float16 else 100) * np.finfo(close_to).eps
    given, on_device = cupy.asarray(x), cupy.asarray(values)

    def check(result):
        atol = scale * np.abs(expected).max()
        np.testing.assert_allclose(result.get(), expected, rtol=0, atol=atol)

    with tuned_plans(Tuning(seconds=120)) as tuning:
        op = bk.KroneckerSparse(on_device, layout=layout)
        for _ in range(2):
            out = poisoned_on_device(expected.shape, dtype)
            check(op.apply(given, out=out))
        check(bk.kronecker_sparse_multiply(on_device, given, layout=layout))
    outcome, *others = tuning.outcomes
    assert outcome.failed == 0, outcome.reasons
    assert outcome.gain >= 1
    assert [one.was_known for one in others] == [True]
    _, entry = only_entry()
    (step,) = SparseSpace(sparse_shape(values, x, layout), limits()).steps()
    every = [list(one) for one in step(())[:6]]
    assert entry["choice"] == outcome.choice
    for choice in [["transposed", "library", "blocks"], ["library", "whole"], *every, ["no", 1]]:
        rewrite(choice=choice)  # what does not fit is not taken
        forget_plans()
        op = bk.KroneckerSparse(on_device, layout=layout)
        check(op.apply(given))
        y = cupy.asarray(expected.astype(dtype))
        op.accumulate(given, y, alpha=-1)
        assert float(cupy.abs(y).max()) <= 2 * scale * np.abs(expected).max()


def sparse_shape(values, x, layout):
    vectors = (len(x), 1) if layout == "batch-first" else (1, x.shape[1])
    return SparseShape(*values.shape, *vectors, values.dtype.name)


def limits():
    return importlib.import_module("batchkron.backends.cuda.runtime.device").device_limits(0)


def choice_with(threads, choice):
    """A choice with so many threads of a thread block."""
    kind, low, high, slices, columns, held, _, _ = choice[0]
    assert kind == "registers"
    return [[kind, low, high, slices, columns, held, threads, 1]]


def test_a_stored_choice_is_used_unless_it_is_stale_or_broken(cupy, rng, kron_plans):
    host = list(rng.standard_normal((3, 4, 4)))
    factors, x = [cupy.asarray(factor) for factor in host], rng.standard_normal((64, 6))
    expected = bk.gekmm(host, x)

    def threads():
        """Threads of the kernel that is used."""
        forget_plans()
        close(bk.gekmm(factors, cupy.asarray(x)), expected, np.float64)
        spec = kron_plans.KronSpec((4,) * 3, (4,) * 3, 1, 6, np.dtype(np.float64))
        (one,) = kron_plans.kron_program(spec, 0).kernels
        return one.launch.threads

    by_rule = threads()
    with tuned_plans(Tuning(seconds=60, candidates=1)):
        bk.gekmm(factors, cupy.asarray(x))
    _, entry = only_entry()
    tuned = 64 if by_rule != 64 else 128
    rewrite(choice=choice_with(tuned, entry["choice"]))
    assert threads() == tuned
    for stale in [
        {"templates": "others"},
        {"choice": [["registers", 0, 3, 1, 1, 8, 100_000, 1]]},
        {"choice": [["registers", 0, 2, 1, 1, 8, 64, 1]]},
        {"choice": "fast"},
    ]:
        before = tuning_path().read_text()
        rewrite(**stale)
        assert threads() == by_rule
        tuning_path().write_text(before)
        os.utime(tuning_path(), (1, 1))
        assert threads() == tuned
    tuning_path().write_text("no store")
    assert threads() == by_rule


def test_lists_are_tuned_with_their_own_matrices(cupy, rng, poisoned_on_device):
    pool = rng.standard_normal((7, 3, 3))
    # with so few products for each output the list is not cut into slices
    lists = rng.integers(0, 7, (12, 2)), rng.integers(0, 6, 12), rng.integers(0, 5, 12)
    op = bk.BatchedKron(pool, *lists, num_inputs=6, num_outputs=5)
    x = rng.standard_normal((6, 9))
    expected = op.apply(x)
    with tuned_plans(Tuning(**FEW)) as tuning:
        device = op.to("cuda")
    (outcome,) = tuning.outcomes
    assert outcome.failed == 0, outcome.reasons
    assert outcome.tried > 0
    first = poisoned_on_device(expected.shape, np.float64)
    device.apply(cupy.asarray(x), out=first)
    close(first, expected, np.float64)
    _, entry = only_entry()
    held, block, stages, groups_per_output, cached = entry["choice"]
    rewrite(choice=[held, block, 3 if stages == 2 else 2, groups_per_output, cached])
    again = bk.BatchedKron(pool, *lists, num_inputs=6, num_outputs=5).to("cuda")
    assert again._plan._single.kernel.variant.stages != stages
    assert again._plan._single.kernel.variant.stages != device._plan._single.kernel.variant.stages
    close(again.apply(cupy.asarray(x)), expected, np.float64)
    op.update(2 * pool)
    close(device.apply(cupy.asarray(x)), 2**2 * expected, np.float64)


def test_two_systems_and_weights(cupy, rng):
    pools, weights = rng.standard_normal((2, 4, 2, 2)), rng.standard_normal(9)
    lists = rng.integers(0, 4, (9, 3)), rng.integers(0, 3, 9), rng.integers(0, 3, 9)
    op = bk.BatchedKron(pools, *lists, weights=weights, num_inputs=3, num_outputs=3)
    x = rng.standard_normal((2, 3, 8))
    with tuned_plans(Tuning(**FEW)) as tuning:
        device = op.to("cuda")
    assert tuning.outcomes[0].failed == 0
    close(device.apply(cupy.asarray(x)), op.apply(x), np.float64)


def test_wrong_results_and_failed_launches_are_rejected(cupy, rng):
    from batchkron.backends.cuda.tuning.trials import Trial

    op = bk.KroneckerProduct(rng.standard_normal((2, 4, 4))).to("cuda")
    trial = Trial(16 * 50, 16 * 50, np.dtype(np.float64))

    def right(x, y):
        op._product._prepare(50, 1).apply(x, y)

    def wrong(x, y):
        right(x, y)
        cupy.cuda.runtime.memsetAsync(y, 0, 8, cupy.cuda.get_current_stream().ptr)

    def missing(x, y):
        pass

    def broken(x, y):
        raise RuntimeError("no kernel")

    for candidate, text in [
        (right, None),
        (wrong, "wrong result"),
        (missing, "wrong result"),
        (broken, "no kernel"),
        (right, None),
    ]:
        if text is None:
            assert 0 < trial.measure(lambda candidate=candidate: candidate, float("inf")) < 1e6
        else:
            with pytest.raises(RejectedError, match=text):
                trial.measure(lambda candidate=candidate: candidate, float("inf"))


def test_programs_are_compiled_by_other_processes(cupy):
    from batchkron.backends.cuda.runtime.device import options_for
    from batchkron.backends.cuda.runtime.program import Program
    from batchkron.backends.cuda.tuning.compilers import Compilers

    with Compilers(options_for(0), 2) as compilers:
        wrong = [
            compilers.submit(Program("cuda/common/scalar.cuh", f"nothing<{k}>")) for k in range(3)
        ]
        for future in wrong:
            with pytest.raises(RejectedError):
                future.result(120)


def test_the_command_tunes_and_knows(cupy, tmp_path, monkeypatch):
    from click.testing import CliRunner

    from batchkron.cli import main

    monkeypatch.chdir(tmp_path)
    words = ["tune", "--shape", "6:3^2", "--dtype", "float32", "--candidates", "3"]
    first = CliRunner().invoke(main, words)
    assert first.exit_code == 0, first.output
    lines = first.stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[1:3]] == [
        "6: 3^2 float32 operator",
        "6: 3^2 float32 function",
    ]
    assert lines[-2].startswith("2 shapes, gain up to ")
    again = CliRunner().invoke(main, words)
    assert again.stdout.count("known") == 2
    words = ["tune", "--pattern", "640:1,16,8,3", "--dtype", "float16", "--candidates", "3"]
    found = CliRunner().invoke(main, words)
    assert found.stdout.splitlines()[1].startswith("640: (1,16,8,3) batch-first float16 ")
    words = ["tune", "continuity-1d", "--level", "2", "--degree", "1", "--candidates", "3"]
    assert CliRunner().invoke(main, words).exit_code == 0


def test_nothing_is_searched_while_a_graph_is_captured(cupy, rng):
    factors = rng.standard_normal((2, 3, 3))
    x = cupy.asarray(rng.standard_normal((4, 9)))
    out = cupy.empty_like(x)
    with tuned_plans(Tuning(**FEW)) as tuning:
        op = bk.KroneckerProduct(factors).to("cuda")
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            op.apply(x, out=out)
            graph = stream.end_capture()
            graph.launch(stream)
            stream.synchronize()
    assert tuning.outcomes == []
    close(out, bk.KroneckerProduct(factors).apply(x.get()), np.float64)
