"""SciPy's own tests of its iterative solvers, run on ours through an adapter.

The modules of SciPy's tests are executed again with its functions replaced by ours of the same
names, and with its list of solvers cut to those that batchkron has. The adapter warns as SciPy does
if gmres gets a callback without ``callback_type``.

Left out, each because of a difference:

- test_callback: gmres's callback gets the norm of the residual here, not of M times it, since M is
  applied from the right.
- test_callback_x_monotonic: ``info`` counts inner iterations here, SciPy's counts cycles.
- test_shift, test_asymmetric_fail: minres has no ``shift`` and no ``check`` here.
- test_defective_precond_breakdown: asks for 0 to the last bit where rounding leaves 2e-16;
  test_a_singular_preconditioner of test_gmres.py is the same with a tolerance.
- test_maxiter_worsening: fails in SciPy, too.
- test_show, TestQMR: for solvers that batchkron does not have.

From SciPy 1.18 on, these tests need fixtures that are not installed with SciPy.
"""

import functools
import importlib.util
import re
import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy
import scipy.sparse.linalg._isolve as isolve

from batchkron.solvers import KrylovResult, bicgstab, cg, gmres, minres

if tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 18):
    pytest.skip("SciPy 1.18's tests need fixtures of its own", allow_module_level=True)

LEFT_OUT = {
    "test_callback",
    "test_callback_x_monotonic",
    "test_defective_precond_breakdown",
    "test_shift",
    "test_asymmetric_fail",
    "test_maxiter_worsening",
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


def suite_of(name):
    """One of SciPy's test modules, with our solvers in place of its own."""
    spec = importlib.util.find_spec(f"scipy.sparse.linalg._isolve.tests.{name}")
    source = Path(spec.origin).read_text()
    if name == "test_iterative":
        source = re.sub(r" *@pytest.mark.fail_slow.*\n", "", source)  # a plugin's mark
        start, end = source.index("_SOLVERS = ["), source.index("tfqmr]\n") + 6
        source = f"{source[:start]}_SOLVERS = [{', '.join(OURS)}]{source[end:]}"
    module = ModuleType(f"ours_{name}")
    module.__file__ = spec.origin
    with pytest.MonkeyPatch.context() as patch:
        for function, ours in OURS.items():
            patch.setattr(isolve, function, ours)
        exec(compile(source, spec.origin, "exec"), module.__dict__)
    sys.modules[module.__name__] = module
    return module


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


def test_the_suite_runs_on_ours():
    module = sys.modules["ours_test_iterative"]
    assert list(OURS.values()) == module._SOLVERS
    assert {case.solver for case in module.cases} == set(OURS.values())
    result = module.cg(2.0 * np.eye(3), np.ones(3))
    assert result.info == 0
    assert isinstance(result, KrylovResult)
