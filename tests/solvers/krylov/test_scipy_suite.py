"""SciPy's own tests of its iterative solvers, run on ours through an adapter.

Its functions are replaced by ours of the same names, and its list of solvers is cut to those that
batchkron has. The adapter warns as SciPy does if gmres gets a callback without ``callback_type``.

Left out, each because of a difference:

- test_callback: gmres's callback gets the norm of the residual here, not of M times it, since M is
  applied from the right.
- test_callback_x_monotonic: ``info`` counts inner iterations here, SciPy's counts cycles.
- test_shift, test_asymmetric_fail, test_asymmetric_preconditioner_fail: minres has no ``shift`` and
  no ``check`` here.
- test_defective_precond_breakdown: asks for 0 to the last bit where rounding leaves 2e-16;
  test_a_singular_preconditioner of test_gmres.py is the same with a tolerance.
- test_maxiter_worsening: fails in SciPy, too.
- test_nD: asks for SciPy's words; test_batches_of_matrices is the same with ours.
- test_show, TestQMR: for solvers that batchkron does not have.
"""

import functools
import re
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse.linalg._isolve as isolve
import scipy_suites
from scipy.sparse.linalg import LinearOperator

from batchkron.solvers import KrylovResult, bicgstab, cg, gmres, minres

LEFT_OUT = {
    "test_callback",
    "test_callback_x_monotonic",
    "test_defective_precond_breakdown",
    "test_shift",
    "test_asymmetric_fail",
    "test_asymmetric_preconditioner_fail",
    "test_maxiter_worsening",
    "test_nD",
    "test_show",
    "TestQMR",
}


@functools.wraps(gmres)
def gmres_that_warns(*args, callback=None, callback_type=None, **options):
    if callback is not None and callback_type is None:
        message = "scipy.sparse.linalg.gmres called without specifying `callback_type`."
        warnings.warn(message, category=DeprecationWarning, stacklevel=2)
    return gmres(*args, callback=callback, callback_type=callback_type, **options)


OURS = {"bicgstab": bicgstab, "cg": cg, "gmres": gmres_that_warns, "minres": minres}


@pytest.fixture
def xp():
    """The namespace of arrays that SciPy's tests take from 1.18 on."""
    return scipy_suites.NAMESPACE


def of_our_solvers(source):
    """SciPy's tests with our list of solvers."""
    return re.sub(r"_SOLVERS = \[[^]]*\]", f"_SOLVERS = [{', '.join(OURS)}]", source)


def suite_of(name):
    """One of SciPy's test modules, with our solvers in place of its own."""
    with pytest.MonkeyPatch.context() as patch:
        for function, ours in OURS.items():
            patch.setattr(isolve, function, ours)
        return scipy_suites.suite_of(f"scipy.sparse.linalg._isolve.tests.{name}", of_our_solvers)


def chosen_of(module):
    """Its tests and fixtures, without those that are left out."""
    for name, value in vars(module).items():
        if name.startswith("Test") and name not in LEFT_OUT:
            for method in LEFT_OUT & set(vars(value)):
                delattr(value, method)
            yield name, value
        elif name in ("solver", "case") or (name.startswith("test") and name not in LEFT_OUT):
            yield name, value


globals().update(chosen_of(suite_of("test_iterative")))
globals().update(
    (f"test_minres_{name.removeprefix('test_')}", value)
    for name, value in chosen_of(suite_of("test_minres"))
)


@pytest.mark.skipif(not scipy_suites.XP, reason="SciPy's operators are matrices before 1.18")
@pytest.mark.parametrize("name", OURS)
def test_batches_of_matrices(name):
    matrices = LinearOperator((2, 2, 2), matvec=lambda x: x, dtype=np.float64)
    with pytest.raises(ValueError, match=r"A has shape \(2, 2, 2\); expected \(2, 2\)"):
        OURS[name](matrices, np.ones(2))


def test_the_suite_runs_on_ours():
    module = sys.modules["ours_test_iterative"]
    assert list(OURS.values()) == module._SOLVERS
    assert {case.solver for case in module.cases} == set(OURS.values())
    result = module.cg(2.0 * np.eye(3), np.ones(3))
    assert result.info == 0
    assert isinstance(result, KrylovResult)
