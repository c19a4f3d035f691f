"""SciPy's own tests, executed with our functions in place of SciPy's.

From SciPy 1.18 on, its tests take the namespace of arrays as an argument, and carry marks of a
plugin of its own. Here they run for NumPy alone, without these marks.
"""

import contextlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse.linalg as spla

# The argument of SciPy's tests: none before 1.18, then the namespace that its operators have.
NAMESPACE = getattr(spla.aslinearoperator(np.zeros((1, 1))), "_xp", None)
XP = () if NAMESPACE is None else (NAMESPACE,)
_MARKS_OF_A_PLUGIN = {"fail_slow", "skip_xp_backends", "xslow"}


class _Marks:
    """Pytest's marks, but for those of SciPy's plugin, which do nothing."""

    def __getattr__(self, name):
        if name in _MARKS_OF_A_PLUGIN:
            return lambda *_, **__: lambda test: test
        return getattr(pytest.mark, name)


class _Pytest:
    """Pytest as SciPy's tests use it. Columns are taken by matvec without SciPy's warning."""

    mark = _Marks()

    def __getattr__(self, name):
        return getattr(pytest, name)

    def warns(self, category, match=""):
        if category is FutureWarning and "column vectors" in match:
            return contextlib.nullcontext()
        return pytest.warns(category, match=match)


def suite_of(name, change=lambda source: source):
    """One of SciPy's modules of tests, executed under a name of its own."""
    spec = importlib.util.find_spec(name)
    source = change(Path(spec.origin).read_text()).replace("import pytest\n", "")
    module = ModuleType(f"ours_{name.rpartition('.')[2]}")
    module.__file__, module.pytest = spec.origin, _Pytest()
    with pytest.MonkeyPatch.context() as patch:
        if XP:  # they look up what SciPy's functions can do
            helpers = importlib.import_module("scipy._lib._array_api")
            patch.setattr(helpers, "make_xp_pytest_param", lambda function: function)
            patch.setattr(helpers, "make_xp_pytest_marks", lambda *_: [])
        exec(compile(source, spec.origin, "exec"), module.__dict__)
    sys.modules[module.__name__] = module
    return module
