"""`batchkron tune`: what it builds, what it says, and how it refuses; no device is needed."""

import importlib
import json
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from batchkron.backends.cuda.runtime import kernel_cache
from batchkron.backends.cuda.tuning.search import RejectedError
from batchkron.backends.cuda.tuning.tuning import Outcome, wanted_tuning
from batchkron.cli.arguments.problem import ProblemArgument
from batchkron.problems import Problem
from batchkron.problems.semidiscrete.system import System

INSTALL = "pip install 'batchkron[cuda13]'"
FOUND = Outcome("a shape", 20.0, 16.0, 30, 4, 1, 12.0, ("7: wrong result\nindeed",), False)


pytestmark = pytest.mark.usefixtures("cache")


class Device:
    """A fake backend that records the plans it is asked for; tuning each of them gives FOUND."""

    def __init__(self):
        self.asked, self.tunings, self.fails = [], [], None

    def current_device(self):
        return "cuda:0"

    def note(self, *what):
        tuning = wanted_tuning()
        if self.fails is not None:
            raise self.fails
        if tuning is not None:
            self.asked.append(what)
            self.tunings.append(tuning)
            tuning.outcomes.append(FOUND)

    def kron_product(self, factors):
        assert wanted_tuning() is not None
        product = [factor.shape for factor in factors], factors[0].dtype.name
        return SimpleNamespace(reserve=partial(self.note, "operator", *product))

    def kron_sparse_product(self, values, precision):
        assert wanted_tuning() is not None
        assert precision is None
        return SimpleNamespace(reserve=partial(self.note, "sparse", values.shape, values.dtype))

    def kron_plan(self, spec):
        device = self

        class Plan:
            def prepare(self):
                device.note("function", spec)

        return Plan()


@pytest.fixture
def device(monkeypatch):
    chosen = Device()
    module = importlib.import_module("batchkron.cli.commands.tune")
    monkeypatch.setattr(module, "backend_on", lambda name: chosen)
    read, accumulate = ProblemArgument.read, System._accumulate
    monkeypatch.setattr(ProblemArgument, "read", lambda self, method, device: read(self, method))

    def noting(self, *arguments):
        chosen.note("product")
        return accumulate(self, *arguments)

    monkeypatch.setattr(System, "_accumulate", noting)
    monkeypatch.setattr(Problem, "split_rhs", lambda self: None)  # steps take whole products
    return chosen


def test_a_shape_is_tuned_as_operator_and_as_function(cli, device):
    cli("tune", "--shape", "1024:8^2", "--shape", "10:5x4,3", "--dtype", "float64")
    operators = [what[1:] for what in device.asked if what[0] == "operator"]
    assert operators == [
        ([(8, 8), (8, 8)], "float64", 1024, 1),
        ([(4, 5), (3, 3)], "float64", 10, 1),
    ]
    specs = [what[1] for what in device.asked if what[0] == "function"]
    assert [(s.inputs, s.outputs, s.outer, s.inner) for s in specs] == [
        ((8, 8), (8, 8), 1024, 1),
        ((5, 3), (4, 3), 10, 1),
    ]
    assert {spec.dtype for spec in specs} == {np.dtype(np.float64)}


def test_vectors_may_be_columns(cli, device):
    cli("tune", "--shape", "7:2x3^2", "--columns", "--dtype", "complex64")
    assert device.asked[0] == ("operator", [(3, 2), (3, 2)], "complex64", 1, 7)
    assert (device.asked[1][1].outer, device.asked[1][1].inner) == (1, 7)


def test_patterns_of_sparse_matrices_are_tuned(cli, device):
    cli("tune", "--pattern", "25088:1,192,48,2", "--pattern", "7:3,1,2,5", "--dtype", "float16")
    assert device.asked == [
        ("sparse", (1, 192, 48, 2), np.float16, 25088, 1),
        ("sparse", (3, 1, 2, 5), np.float16, 7, 1),
    ]
    device.asked.clear()
    cli("tune", "--shape", "4:2^3", "--pattern", "7:3,1,2,5", "--columns", "--dtype", "float32")
    assert [what[0] for what in device.asked] == ["operator", "function", "sparse"]
    assert device.asked[-1][-2:] == (1, 7)


@pytest.mark.parametrize(
    "pattern", ["", "1,2,3,4", "5:1,2,3", "5:1,2,3,4,5", "0:1,2,3,4", "5:1,0,3,4", "5:1,2,3,٤"]
)
def test_what_is_no_pattern_is_refused(refused, device, pattern):
    text = refused("tune", "--pattern", pattern)
    assert f"{pattern!r} is no pattern; expected vectors and four sizes such as 25088:1" in text


@pytest.mark.parametrize("sizes", ["1,999999,999999,999999", ",".join(4 * ["999999999"])])
def test_a_pattern_without_room_for_its_values(refused, device, sizes):
    text = refused("tune", "--pattern", f"5:{sizes}")
    assert f"entries of the pattern {sizes}; take a smaller one" in text


def test_both_real_dtypes_by_default(cli, device):
    cli("tune", "--shape", "4:2^3")
    assert [what[2] for what in device.asked if what[0] == "operator"] == ["float32", "float64"]


def test_a_problem_is_tuned_by_a_step(cli, folder, problem_file, device):
    before = problem_file.read_bytes()
    cli("tune", "c2.h5")
    assert set(device.asked) == {("product",)}
    assert [path.name for path in folder.iterdir()] == ["c2.h5"]
    assert problem_file.read_bytes() == before


def test_bounds_are_passed_on(cli, device):
    cli("tune", "--shape", "4:2^3", "--seconds", "3.5", "--candidates", "8", "--again")
    tuning = device.tunings[0]
    assert (tuning.seconds, tuning.candidates, tuning.again) == (3.5, 8, True)
    cli("tune", "continuity-1d")
    tuning = device.tunings[-1]
    assert (tuning.seconds, tuning.candidates, tuning.again) == (120, 10_000, False)


def test_the_table_says_what_was_found(cli, device, cache):
    result = cli("tune", "--shape", "4:2^3", "--dtype", "float32")
    head, first, second, last, kept = result.stdout.splitlines()
    assert head.split() == [
        "shape",
        "rule",
        "µs",
        "best",
        "µs",
        "gain",
        "tried",
        "pruned",
        "failed",
        "seconds",
    ]
    assert first == second
    assert " ".join(first.split()) == "a shape 20.00 16.00 1.25 30 4 1 12 (bounds reached)"
    assert last == "2 shapes, gain up to 1.25"
    assert kept == f"kept in {cache}"
    assert result.stderr.splitlines() == ["batchkron: a shape: left out 7: wrong result indeed"] * 2


def test_json_has_all_figures(cli, device, cache):
    content = json.loads(cli("tune", "--shape", "4:2^3", "--dtype", "float32", "--json").stdout)
    assert content["folder"] == str(cache)
    assert len(content["shapes"]) == 2
    assert content["shapes"][0]["gain"] == 1.25
    assert content["shapes"][0]["rule_microseconds"] == 20


def test_quiet_says_nothing_but_failures(cli, device):
    assert cli("tune", "--shape", "4:2^3", "--quiet").stdout == ""


def test_where_there_is_no_choice_it_says_so(cli, device, monkeypatch):
    monkeypatch.setattr(Device, "note", lambda self, *what: None)
    assert "nothing to choose" in cli("tune", "--shape", "4:32^3", "--dtype", "complex128").stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "expected a problem, or --shape or --pattern, neither came"),
        (["c2.h5", "--shape", "4:2^3"], "expected a problem, or --shape or --pattern, both came"),
        (["c2.h5", "--dtype", "float32"], "--dtype is for --shape"),
        (["c2.h5", "--columns"], "--columns is for --shape"),
        (["--shape", "4:2^3", "--level", "3"], "--level is for problems"),
        (["--shape", "4:2^3", "--stepper", "rk4"], "--stepper is for problems"),
        (["--shape", "4:2^3", "--dtype", "float16"], "float16 is for --pattern"),
        (["--shape", "4:2^3", "--dtype", "bfloat16"], "'bfloat16' is not one of"),
        (["c2.h5", "--pattern", "5:1,2,3,4"], "both came"),
        (["--shape", "4:2^3", "--seconds", "0"], "expected a finite number > 0"),
        (["--shape", "4:2^3", "--seconds", "nan"], "expected a finite number > 0"),
        (["--shape", "4:2^3", "--candidates", "0"], "--candidates"),
        (["--shape", "4:2^3", "--device", "cpu"], "'cpu' is not 'cuda'"),
        (["c9.h5"], "neither a file nor a name"),
        (["c2.h5", "--degree", "1"], "--degree is for names of the gallery"),
    ],
)
def test_refusals(refused, problem_file, device, words, expected):
    assert expected in refused("tune", *words)
    assert device.asked == []


@pytest.mark.parametrize(
    "shape",
    [
        "",
        "8^5",
        "4",
        "4:",
        ":8^5",
        "0:8^5",
        "4:0",
        "4:8x0",
        "4:8^",
        "4:8^0",
        "4:8,,8",
        "4:8x8x8",
        "-4:8",
        "4:٣",
        "4:8 ^2",
    ],
)
def test_what_is_no_shape_is_refused(refused, device, shape):
    text = refused("tune", "--shape", shape)
    assert f"{shape!r} is no shape; expected rows and factors such as 1024:8^5" in text


@pytest.mark.parametrize("words", [["c2.h5"], ["--shape", "4:2^3"]])
def test_without_cupy_it_says_what_to_install(refused, problem_file, no_cupy, words):
    assert INSTALL in refused("tune", *words)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_a_cache_of_others_is_refused(refused, device, cache):
    cache.mkdir(mode=0o777)
    cache.chmod(0o777)
    assert "is not private to this user" in refused("tune", "--shape", "4:2^3", expect=3)
    assert device.asked == []


def test_no_room_and_rules_that_fail_are_said(refused, device):
    device.fails = MemoryError("out of memory")
    text = refused("tune", "--shape", "1000000:8^5", "--dtype", "float64")
    assert "no room for several vectors of 262 GB; take fewer rows" in text
    device.fails = RejectedError("does not compile")
    assert "do not work: does not compile" in refused("tune", "--shape", "4:2^3", expect=1)


def test_progress_is_a_bar_for_each_shape(capsys):
    bar = importlib.import_module("batchkron.cli.commands.tune")._Bar()
    for shape in ("first", "second"):
        for number in (1, 2):
            bar(shape, number, 1.25)
    bar.close()
    bar.close()
    shown = capsys.readouterr().err
    assert "first" in shown
    assert "second" in shown


def test_the_cache_is_made_private(cli, device, cache):
    cli("tune", "--shape", "4:2^3")
    assert cache.stat().st_mode & 0o777 == 0o700
    assert kernel_cache.cache_folder() == cache
