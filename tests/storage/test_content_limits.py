"""Small files that ask for much work: a loader does it within seconds, or refuses."""

import dataclasses
import json
import time

import numpy as np
import pytest
from crafted_files import changed, edit, with_terms, write_unchecked
from fuzzing import watch

from batchkron import ProblemFileError
from batchkron.problems import load_problem, make, save_problem
from batchkron.problems.files.encode import encode_problem
from batchkron.problems.semidiscrete.value import content_of
from batchkron.storage import ResultFile, load_result, save_result
from batchkron.storage import results as states

CONSTANT = '{"kind":"constant","value":1.0}'
SPLINE = '{"kind":"spline","times":[0,1],"values":[0,2],"order":3}'
SECONDS = 5.0  # processor time of this process; the reader process has a limit of its own
BYTES = 1 << 30  # by which a load may raise this process's peak memory


@pytest.fixture
def document():
    return encode_problem(content_of(make("continuity-2d", level=3, degree=1)))


def many_operators(document, count):
    """Operators without blocks, each of them named by a term."""
    none = np.zeros(0, dtype=np.int64)
    numbers = np.arange(count).reshape(-1, 2)
    return changed(
        with_terms(document, [CONSTANT] * (count // 2), operators=numbers),
        datasets={
            "operators/level": np.full(count, 3),
            "operators/offsets": np.zeros(count + 1, dtype=np.int64),
            "operators/rows": none,
            "operators/columns": none,
            "operators/blocks": np.zeros((0, 2, 2)),
        },
    )


def polynomial(coefficients):
    return {"kind": "polynomial", "coefficients": coefficients}


def nested(depth, count):
    """A function in whose normal form long lists are compared again and again."""
    rng = np.random.default_rng(5)
    start = rng.normal(size=count).tolist()
    function = polynomial(start)
    for k in range(depth):
        parts = [function, *(polynomial([*start, rng.normal()]) for _ in range(20))]
        if k % 2:
            function = {"kind": "sum", "terms": parts}
        else:
            function = {"kind": "product", "coefficient": 2.0, "factors": parts}
    return json.dumps(function)


ACCEPTED = {
    "splines": lambda d: with_terms(d, [SPLINE] * 13_000),
    "terms": lambda d: with_terms(d, [CONSTANT] * 16_384),
    "operators": lambda d: many_operators(d, 32_768),
    "one long polynomial": lambda d: with_terms(
        d, [json.dumps(polynomial([0.5] * 130_000)), SPLINE]
    ),
    "long numbers": lambda d: with_terms(d, [json.dumps(polynomial([10**300] * 50_000)), CONSTANT]),
    "nested sums and products": lambda d: with_terms(d, [nested(22, 260), CONSTANT]),
}
REFUSED = {
    "splines": (
        lambda d: with_terms(d, [SPLINE] * 16_384),
        "'terms/time' takes the texts of the file",
    ),
    "terms": (lambda d: with_terms(d, [CONSTANT] * 16_385), "'terms/time' has 16385 functions"),
    "operators": (lambda d: many_operators(d, 32_770), "'terms/time' has 16385 functions"),
    "numbers": (
        lambda d: with_terms(d, [json.dumps(polynomial([0.5] * 140_000)), CONSTANT]),
        "'terms/time' takes the texts of the file to 1.* commas and opening brackets",
    ),
    "digits": (
        lambda d: with_terms(d, [json.dumps(polynomial([10**300] * 60_000)), CONSTANT]),
        "'terms/time' takes the texts of the file to 1.* bytes",
    ),
    "lists": (
        lambda d: changed(d, datasets={"units": (f'{{"a":[{"[]," * 200_000}0]}}',)}),
        "'units' takes the texts of the file",
    ),
    "texts as long as the longest": (
        lambda d: with_terms(d, [CONSTANT + 30_000 * " ", *[CONSTANT] * 16_383]),
        "'terms/time' of .* bytes takes the content beyond the limit",
    ),
    "axes": (
        lambda d: changed(d, datasets={"axes/name": ("x",) * 65_536}),
        "dataset 'axes/lower' has shape",
    ),
}


def measured(load, path):
    """Load a file; return the outcome, the seconds of this process and the memory it took."""
    watch.forget_peak()
    before, began = watch.memory_of("self")["VmHWM"], time.process_time()
    try:
        outcome = load(path)
    except ProblemFileError as error:
        outcome = error
    seconds = time.process_time() - began
    return outcome, seconds, watch.memory_of("self")["VmHWM"] - before


@pytest.mark.parametrize("name", ACCEPTED)
def test_as_much_as_is_allowed_loads_within_seconds(document, tmp_path, name):
    path = tmp_path / "file.h5"
    write_unchecked(path, ACCEPTED[name](document))
    outcome, seconds, grown = measured(load_problem, path)
    assert not isinstance(outcome, ProblemFileError), outcome
    assert seconds < SECONDS
    assert grown < BYTES


@pytest.mark.parametrize("name", REFUSED)
def test_more_is_refused_within_seconds(document, tmp_path, name):
    path = tmp_path / "file.h5"
    greedy, text = REFUSED[name]
    write_unchecked(path, greedy(document))
    with pytest.raises(ProblemFileError, match=text) as caught:
        load_problem(path)
    assert str(caught.value).startswith(str(path))
    _, seconds, grown = measured(load_problem, path)
    assert seconds < SECONDS
    assert grown < BYTES


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    problem = make("continuity-2d", level=1, degree=0)
    object.__setattr__(problem, "terms", problem.terms * 10_000)
    with pytest.raises(ValueError, match="'terms/time' has 20000 functions for 2 axes"):
        save_problem(tmp_path / "problem.h5", problem)


@pytest.mark.parametrize(("count", "is_sound"), [(20 << 20, True), (40 << 20, False)])
def test_zeros_may_inflate_to_so_much_and_no_more(tmp_path, count, is_sound):
    """A small file of 160 MiB of zeros is read; one of 320 MiB only with trusted=True."""
    path = tmp_path / "result.h5"
    result = ResultFile(np.zeros(count), 0.0, "", 0, 0.1, "", "", "")
    save_result(path, dataclasses.replace(result, u=np.zeros(1)))

    def inflate(file):
        del file["u"]
        options = {"chunks": (1 << 20,), "compression": 9, "fletcher32": True}
        file.create_dataset("u", data=result.u, **options)
        hashed = states._encode("batchkron-result", result).content_hash
        file.attrs.modify("content_hash", np.bytes_(hashed))

    edit(path, inflate)
    assert path.stat().st_size < 1 << 21
    outcome, seconds, grown = measured(load_result, path)
    if is_sound:
        assert outcome.u.size == count
        assert not outcome.u.any()
    else:
        assert "dataset 'u' of 335544320 bytes takes the content beyond the limit" in str(outcome)
        assert load_result(path, trusted=True).u.size == count
    assert seconds < SECONDS
    assert grown < BYTES
