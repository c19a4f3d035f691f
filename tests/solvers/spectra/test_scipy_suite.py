"""SciPy's own tests of `eigs`, `eigsh` and `lobpcg`, run on ours through adapters.

Functions that are given to lobpcg are wrapped as operators. What differs, and is left out for that
reason:

- the modes "buckling" and "cayley", parts of operators with a complex sigma, and pencils in eigs
  and eigsh, where M is a preconditioner here: pencils are taken by B of eigsh, and by lobpcg.
- test_symmetric_no_convergence, test_standard_nonsymmetric_no_convergence: ours return what they
  have with statuses and a warning, SciPy's raise.
- test_eigs_for_k_greater, test_eigsh_for_k_greater: ask for the fallback to dense matrices where k
  is close to N; ours take any k up to N.
- test_linearoperator_deallocation, test_b_orthonormalize, test_inplace_warning,
  test_nonhermitian_warning: of SciPy's internals.
- test_maxit, test_verbosity: histories and printing, which lobpcg has not here.
- test_fiedler_small_8, test_failure_to_run_iterations_nonsymmetric: ask for the words of SciPy's
  warnings.
- dtypes of more than 64 bits a number, in test_dtypes.
- test_MikotaPair: asks for more digits than its tol, and gives one vector for ten pairs.
- test_sakurai, one problem of condition 1e8 that takes 5000 iterations.
"""

import functools
import importlib
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse.linalg
import scipy_suites
from scipy.sparse.linalg import LinearOperator

from batchkron.solvers import ConvergenceWarning, EigenResult, eigs, eigsh, lobpcg

LEFT_OUT = {
    "test_symmetric_no_convergence",
    "test_standard_nonsymmetric_no_convergence",
    "test_eigs_for_k_greater",
    "test_eigsh_for_k_greater",
    "test_linearoperator_deallocation",
    "test_b_orthonormalize",
    "test_inplace_warning",
    "test_nonhermitian_warning",
    "test_maxit",
    "test_verbosity",
    "test_fiedler_small_8",
    "test_failure_to_run_iterations_nonsymmetric",
    "test_MikotaPair",
    "test_sakurai",
}


def unwarned(function):
    """A function whose ConvergenceWarning is ignored, as tests ask for SciPy's words."""

    @functools.wraps(function)
    def called(*args, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return function(*args, **options)

    return called


@unwarned
def as_eigs(*args, OPpart=None, **options):  # noqa: N803
    assert OPpart in (None, "r")  # which differ for complex sigma only
    return eigs(*args, **options)


@unwarned
def as_eigsh(*args, mode="normal", **options):
    assert mode == "normal"
    return eigsh(*args, **options)


@unwarned
def as_lobpcg(A, X, B=None, M=None, Y=None, tol=None, maxiter=None, largest=True, **printed):
    size = len(X)

    def operator(given):
        if given is None or hasattr(given, "shape"):
            return given
        return LinearOperator((size, size), matvec=given, matmat=given, dtype=X.dtype)

    return lobpcg(
        A if hasattr(A, "shape") else operator(A),
        X,
        operator(B),
        operator(M),
        Y,
        tol,
        maxiter,
        largest,
    )


@pytest.fixture
def num_parallel_threads():
    """What SciPy's plugin for threads says: tests run once at a time."""
    return 1


def suite(module, changes, source_changes=()):
    def change(source):
        for old, new in source_changes:
            assert old in source
            source = source.replace(old, new)
        return source

    with pytest.MonkeyPatch.context() as patch:
        for place, name, ours in changes:
            patch.setattr(place, name, ours)
        found = scipy_suites.suite_of(module, change)
    return {
        name: value
        for name, value in vars(found).items()
        if name.startswith("test") and name not in LEFT_OUT
    }


EIGEN = "scipy.sparse.linalg._eigen"
ARPACK_PACKAGE = importlib.import_module(f"{EIGEN}.arpack")
LOBPCG_PACKAGE = importlib.import_module(f"{EIGEN}.lobpcg")  # not the function of this name
ARPACK = [(ARPACK_PACKAGE, "eigs", as_eigs), (ARPACK_PACKAGE, "eigsh", as_eigsh)]
LOBPCG = [(LOBPCG_PACKAGE, "lobpcg", as_lobpcg), (scipy.sparse.linalg, "eigsh", as_eigsh)]
OFFERED = [
    (", (0.5, 'normal'),", ", (0.5, 'normal')])"),
    ("\n                                         (0.5, 'buckling'), (0.5, 'cayley')])", ""),
    (",\n                                            (0.1 + 0.1j, 'r'), (0.1 + 0.1j, 'i')])", "])"),
    ("_cases = [SS, GS]", "_cases = [SS]"),
    ("_cases = [SH, GH, GHc]", "_cases = [SH]"),
    ("_cases = [SNR, GNR]", "_cases = [SNR]"),
    ("_cases = [SNC, GNC]", "_cases = [SNC]"),
]
NARROW = [(", np.longdouble)", ")"), (", np.clongdouble)", ")")]
globals().update(suite(f"{EIGEN}.arpack.tests.test_arpack", ARPACK, OFFERED))
globals().update(suite(f"{EIGEN}.lobpcg.tests.test_lobpcg", LOBPCG, NARROW))


def test_the_suites_run_on_ours():
    for name, call in (
        ("ours_test_arpack", lambda module: module.eigsh(np.eye(4), 1)),
        ("ours_test_lobpcg", lambda module: module.lobpcg(np.eye(4), np.ones((4, 1)))),
    ):
        module = sys.modules[name]
        assert isinstance(call(module), EigenResult)
