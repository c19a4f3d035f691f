"""Checkpoints of runs with step-size control."""

from dataclasses import replace

import h5py
import numpy as np
import pytest

from batchkron.errors import ProblemFileError
from batchkron.storage import Checkpoint, StoredMemory, load_checkpoint, save_checkpoint
from batchkron.storage.results import check_checkpoint

GOOD = Checkpoint(
    u=np.arange(3.0),
    t0=0.0,
    dt=0.3,
    step=90,
    until=1.0,
    method="dormand-prince",
    problem_hash="0" * 64,
    version="0",
    threads=1,
    instruction_set="avx2",
    dtype="float64",
    time=0.1 + 0.2,
    last_error=0.7,
)


def test_time_and_error_come_back_bit_for_bit(tmp_path):
    save_checkpoint(tmp_path / "c.h5", GOOD)
    found = load_checkpoint(tmp_path / "c.h5")
    assert (found.time, found.last_error, found.t) == (0.1 + 0.2, 0.7, 0.1 + 0.2)
    np.testing.assert_array_equal(found.u, GOOD.u)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"time": 1.5}, "'time' is 1.5"),
        ({"time": -0.1}, "'time' is -0.1"),
        ({"time": np.nan}, "'time' is nan"),
        ({"last_error": None}, "'last_error' is None"),
        ({"last_error": -1.0}, "'last_error' is -1.0"),
        ({"last_error": np.inf}, "'last_error' is inf"),
        ({"dt": 0.0}, "'dt' is 0.0"),
        ({"dtype": "int8"}, "'dtype' is 'int8'"),
        ({"time": None}, "'step' is 90"),
        ({"memory": StoredMemory(np.zeros((2, 4)), np.ones(1))}, r"shapes \(2, 4\) and \(1,\)"),
        ({"memory": StoredMemory(np.zeros(3), np.ones(1))}, r"shapes \(3,\)"),
        ({"memory": StoredMemory(np.full((1, 3), np.nan), np.ones(1))}, "are not finite"),
        ({"memory": StoredMemory(np.ones((1, 3)), np.array([np.inf]))}, "are not finite"),
    ],
)
def test_numbers_that_are_of_no_run_are_refused(change, text):
    with pytest.raises(ProblemFileError, match=text):
        check_checkpoint(replace(GOOD, **change))


def test_what_a_method_remembers_comes_back_bit_for_bit(tmp_path, rng):
    memory = StoredMemory(rng.standard_normal((4, 3)), np.array([2.0, 0.1 + 0.2]))
    path = tmp_path / "c.h5"
    save_checkpoint(path, replace(GOOD, memory=memory))
    found = load_checkpoint(path).memory
    np.testing.assert_array_equal(found.vectors, memory.vectors)
    np.testing.assert_array_equal(found.numbers, memory.numbers)
    with h5py.File(path) as file:
        assert file.attrs["format_version"] == 3
    save_checkpoint(path, GOOD)
    assert load_checkpoint(path).memory is None
    with h5py.File(path) as file:
        assert file.attrs["format_version"] == 1  # earlier versions read it
