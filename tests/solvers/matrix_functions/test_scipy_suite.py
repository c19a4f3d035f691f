"""SciPy's own tests of `expm_multiply` and `funm_multiply_krylov`, run on ours through adapters.

They compare entries one by one, so that the adapters ask for 13 digits of the norm. What differs:

- The trace is not estimated, so that there is no warning of that.
- test_theta_monotonicity, test_p_max_default, test_p_max_range, test_onenormest_matrix_power,
  test_expm_multiply_interval_status_0, _1, _2: of SciPy's internals.
- test_sparse_expm_multiply_interval_dtypes: B as a sparse array is refused here.
- dtypes of more than 64 bits a number.
- test_funm_multiply_krylov_invalid_input: SciPy refuses columns, which ours take.
- of matrix_function only callables are compared, with Arnoldi's and with Lanczos's method.
"""

import functools
import importlib
import sys

import numpy as np
import pytest
import scipy.linalg
import scipy_suites

from batchkron.solvers import expm_multiply, matrix_function

LEFT_OUT = {
    "test_theta_monotonicity",
    "test_p_max_default",
    "test_p_max_range",
    "test_onenormest_matrix_power",
    "test_expm_multiply_interval_status_0",
    "test_expm_multiply_interval_status_1",
    "test_expm_multiply_interval_status_2",
    "test_sparse_expm_multiply_interval_dtypes",
    "test_funm_multiply_krylov_invalid_input",
}
NAMES = "scipy.sparse.linalg"
calls = []  # names of adapters, to see that SciPy's tests call them


@functools.wraps(expm_multiply)
def as_expm_multiply(*args, **options):
    calls.append("expm_multiply")
    return expm_multiply(*args, rtol=1e-11, **options)


def as_simple(A, B, t):
    return as_expm_multiply(t * A, B)


def as_funm(f, A, b, assume_a="general", restart_every_m=None, **options):
    calls.append("matrix_function")
    hermitian = assume_a in ("her", "hermitian")
    options = {"hermitian": hermitian, "restart": restart_every_m or 50, "rtol": 1e-12, **options}
    return matrix_function(f, A, b, **options).x


@pytest.fixture
def num_parallel_threads():
    """What SciPy's plugin for threads says: more threads, fewer samples."""
    return 8


def suite(name, place, changes, source_changes=()):
    def change(source):
        for old, new in source_changes:
            assert old in source
            source = source.replace(old, new)
        return source

    with pytest.MonkeyPatch.context() as patch:
        for function, ours in changes.items():
            patch.setattr(importlib.import_module(f"{NAMES}.{place}"), function, ours)
        module = scipy_suites.suite_of(f"{NAMES}.tests.{name}", change)
    for test, value in vars(module).items():
        if test.startswith("Test"):
            for method in LEFT_OUT & set(vars(value)):
                delattr(value, method)
            yield test, value
        elif test.startswith("test") and test not in LEFT_OUT:
            yield test, value


WARNED = 'return pytest.warns(UserWarning, match="Trace of LinearOperator not available")'
SOURCE = [
    (WARNED, "return warnings.catch_warnings()"),
    (", np.longdouble)", ")"),
    (", np.clongdouble)", ")"),
]
EXPM = {"expm_multiply": as_expm_multiply, "_expm_multiply_simple": as_simple}
globals().update(suite("test_expm_multiply", "_expm_multiply", EXPM, SOURCE))
FUNM = {"funm_multiply_krylov": as_funm}
globals().update(suite("test_funm_multiply_krylov", "_funm_multiply_krylov", FUNM))


def test_the_suites_run_on_ours():
    calls.clear()
    sys.modules["ours_test_expm_multiply"].expm_multiply(np.eye(2), np.ones(2))
    functions = sys.modules["ours_test_funm_multiply_krylov"]
    functions.funm_multiply_krylov(scipy.linalg.expm, np.eye(2), np.ones(2))
    assert calls == ["expm_multiply", "matrix_function"]
