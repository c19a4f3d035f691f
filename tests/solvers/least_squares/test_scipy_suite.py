"""SciPy's own tests of `lsqr` and `lsmr`, run on ours.

What differs:

- ``show`` is not offered: the adapter drops it.
- a number as b is refused: test_b_shapes, testScalarB.
- testInitialization compares residuals of a system without rounding errors, which are 0 or not.
"""

import functools
import sys

import numpy as np
import pytest
import scipy.sparse.linalg
import scipy_suites

from batchkron.solvers import LsmrResult, LsqrResult, lsmr, lsqr

LEFT_OUT = {"test_b_shapes", "testScalarB"}


@functools.wraps(lsqr)
def as_lsqr(*args, show=False, **options):
    return lsqr(*args, **options)


def suite(name):
    package = "scipy.sparse.linalg._isolve.tests"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scipy.sparse.linalg, "lsqr", as_lsqr)
        patch.setattr(scipy.sparse.linalg, "lsmr", lsmr)
        module = scipy_suites.suite_of(
            f"{package}.{name}", lambda source: source.replace("from .test", f"from {package}.test")
        )
    for test, value in vars(module).items():
        if test.startswith("Test"):
            for method in LEFT_OUT & set(vars(value)):
                delattr(value, method)
            yield test, value
        elif test.startswith("test") and test not in LEFT_OUT:
            yield test, value


globals().update(suite("test_lsqr"))
globals().update(suite("test_lsmr"))


def test_the_suites_run_on_ours():
    assert isinstance(sys.modules["ours_test_lsqr"].lsqr(np.eye(3), np.ones(3)), LsqrResult)
    assert isinstance(sys.modules["ours_test_lsmr"].lsmr(np.eye(3), np.ones(3)), LsmrResult)
