"""Checkpoints of runs with step-size control."""

from dataclasses import replace

import numpy as np
import pytest

from batchkron.errors import ProblemFileError
from batchkron.storage import Checkpoint, load_checkpoint, save_checkpoint
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
    ],
)
def test_numbers_that_are_of_no_run_are_refused(change, text):
    with pytest.raises(ProblemFileError, match=text):
        check_checkpoint(replace(GOOD, **change))
