"""What errors say, read whole: what was expected, what came, which argument, what to do.

The tests of each part match their own messages; here are those that belong to several parts or to
none, and those whose whole text matters. Messages of files are matched in tests/storage and
tests/problems, those of the command in tests/cli.
"""

import ast
import math
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import batchkron as bk
from batchkron.cli.output.describe_file import describe_file
from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    ModeOperator,
    OperatorTerm,
    Problem,
    Separable,
    SeparableVector,
    SparseGrid,
    StepperSettings,
    div,
    grad,
    make,
    mass,
    save_problem,
    time,
)
from batchkron.problems.statement import time_functions as time_module
from batchkron.solvers import Gmres, evolve
from batchkron.spec.batch import MAX_POOL_MATRICES

ROOT = Path(__file__).parents[2]
EYE = np.eye(2)
X = Axis("x", 0, 1)


class OnDevice:
    """An array of a CUDA device, as far as it shows on the outside."""

    @property
    def __cuda_array_interface__(self):
        return {"shape": (2,), "typestr": "<f8", "data": (0, True), "version": 3}


class Decay:
    """u' = -u from ones."""

    def __init__(self, initial=(1.0, 1.0)):
        self.initial = np.asarray(initial)

    def rhs(self, t, u, out):
        np.negative(u, out=out)


def batch(pools=EYE[None], ids=((0, 0),), **more):
    return bk.BatchedKron(pools, ids, [0], [0], **more)


def systems(count):
    return bk.KroneckerProduct([np.ones((count, 2, 2))])


def parts(**changes):
    """A problem of two unknowns, with changes."""
    mode = ModeOperator(2, 1, np.arange(2), np.arange(2), np.ones((2, 1, 1)))
    fields = {
        "name": "small",
        "axes": (X,),
        "degree": 0,
        "grid": SparseGrid.full([1]),
        "terms": (OperatorTerm((mode,), time.constant()),),
        "sources": (),
        "initial": np.ones(2),
        "stepper": StepperSettings("rk4", 0.1, 1.0),
    }
    return Problem(**{**fields, **changes})


def read_only():
    out = np.full(2, np.nan)
    out.flags.writeable = False
    return out


OPERATORS = {
    "no mode": (
        lambda: batch(ids=np.empty((1, 0), int)),
        ValueError,
        "factor_ids has no columns; expected one per mode, at least one",
    ),
    "an index beyond int64": (
        lambda: bk.BatchedKron(EYE[None], [[0]], np.array([2**63], np.uint64), [0]),
        IndexError,
        "inputs has an entry beyond the range of int64",
    ),
    "too large a pool": (
        lambda: batch(np.broadcast_to(np.ones((1, 1, 1)), (MAX_POOL_MATRICES + 1, 1, 1))),
        ValueError,
        f"pools[0] has {MAX_POOL_MATRICES + 1} matrices; expected at most {MAX_POOL_MATRICES}",
    ),
    "a device array": (
        lambda: bk.gekmm([EYE], OnDevice()),
        TypeError,
        "x is an array on a CUDA device, but the other operands are on the CPU; copy it with "
        ".get() first, or the operator with to('cuda')",
    ),
    "a sparse factor": (
        lambda: bk.gekmm([EYE, scipy.sparse.eye_array(2)], np.ones(4)),
        TypeError,
        "factors[1] is a sparse matrix; convert it with toarray() first",
    ),
    "an update of another length": (
        lambda: bk.KroneckerProduct([EYE, EYE]).update([EYE]),
        ValueError,
        "factors has 1 entries; expected 2",
    ),
    "an update of another kind": (
        lambda: bk.KroneckerProduct([EYE]).update([1j * EYE]),
        TypeError,
        "factors[0] has dtype complex128; the operator holds float64",
    ),
    "different systems": (
        lambda: systems(2) + systems(3),
        ValueError,
        "operators of batch shapes (2,) and (3,) do not act together",
    ),
    "a vector of another length": (
        lambda: bk.KroneckerProduct([EYE]).apply(np.ones((5, 3))),
        ValueError,
        "x has shape (5, 3); expected (..., 2)",
    ),
    "a stack of matrices": (
        lambda: bk.KroneckerProduct([EYE, EYE]) @ np.ones((5, 4, 3)),
        ValueError,
        "the operand of @ has shape (5, 4, 3); expected (4,) or (4, K), or a tensor (2, 2), "
        "because the operator has shape (4, 4). For stacks use apply, which takes (..., 4)",
    ),
    "a stack as nested lists": (
        lambda: bk.KroneckerSum([EYE]).dot([[[1.0, 2.0]]]),
        ValueError,
        "the operand of @ has shape (1, 1, 2); expected (2,) or (2, K), because the operator has "
        "shape (2, 2). For stacks use apply, which takes (..., 2)",
    ),
    "a stack for an operator on blocks": (
        lambda: batch(np.ones((1, 3, 2))) @ np.ones((5, 2, 3)),
        ValueError,
        "the operand of @ has shape (5, 2, 3); expected (4,) or (4, K), because the operator has "
        "shape (9, 4). For stacks use apply, which takes (..., 1, 4)",
    ),
    "a stack for many systems": (
        lambda: systems(3) @ np.ones((5, 3, 2)),
        ValueError,
        "the operand of @ has shape (5, 3, 2); expected (2,) or (2, K), because the operator has "
        "shape (2, 2). For stacks use apply, which takes (..., 3, 2)",
    ),
    "a stack before the operator": (
        lambda: np.ones((5, 4, 3)) @ bk.KroneckerProduct([np.ones((3, 2))]),
        ValueError,
        "the operand of @ has shape (5, 4, 3); expected (3,) or (K, 3), because the operator has "
        "shape (3, 2). For stacks use T.apply, which takes (..., 3)",
    ),
    "matrices after a sequence of matrices": (
        lambda: bk.KroneckerProduct([EYE, EYE], EYE),
        TypeError,
        "the first argument is a sequence of 2 matrices, and 1 more follow; put all of them into "
        "one sequence, or pass each as an argument",
    ),
    "a row among matrices": (
        lambda: bk.KroneckerProduct(EYE, np.ones(2)),
        ValueError,
        "factors[1] has shape (2,); expected 2 dimensions, (rows, columns)",
    ),
    "time before the vector": (
        lambda: bk.KroneckerSum([EYE, EYE]).expm_apply(0.1, np.ones(4)),
        TypeError,
        "t has shape (4,); expected a number. The vector comes first: expm_apply(x, t) is "
        "exp(t A) x",
    ),
    "time before the vector of a product": (
        lambda: bk.KroneckerProduct([EYE, EYE]).expm_apply(0.1, [1.0, 2.0, 3.0, 4.0]),
        TypeError,
        "t has shape (4,); expected a number. The vector comes first: expm_apply(x, t) is "
        "exp(t A) x",
    ),
    "a singular factor": (
        lambda: bk.KroneckerProduct([EYE, np.ones((3, 3)), EYE]).solve(np.ones(12)),
        np.linalg.LinAlgError,
        "factors[1], of shape (3, 3), is singular, and so is the Kronecker product",
    ),
    "the inverse of a singular factor": (
        lambda: bk.KroneckerProduct([EYE, np.zeros((5, 2, 2))]).inverse(),
        np.linalg.LinAlgError,
        "factors[1], of shape (5, 2, 2), is singular, and so is the Kronecker product",
    ),
    "no products": (
        lambda: bk.BatchedKron.from_products([], [], []),
        ValueError,
        "products is empty; use the constructor for a batch without products",
    ),
    "no samples": (
        lambda: batch().validate(samples=0),
        ValueError,
        "samples is 0; expected 1 or more, or None for every block",
    ),
    "another backend": (
        lambda: bk.backends.using("abacus").__enter__(),
        ValueError,
        "backend 'abacus' is unknown; expected one of cpu, reference",
    ),
}

PROBLEMS = {
    "a grid of another kind": (
        lambda: parts(grid="sparse"),
        TypeError,
        "grid must be a SparseGrid, such as SparseGrid.sparse(levels) makes, got str",
    ),
    "a term of another kind": (
        lambda: parts(terms=(3,)),
        TypeError,
        "terms[0] must be an OperatorTerm, such as OperatorTerm((mode, None)), got int",
    ),
    "a mode too many": (
        lambda: parts(terms=(OperatorTerm((None, None), time.constant()),)),
        ValueError,
        "terms[0] has 2 modes; expected 1, one per axis (None for the identity)",
    ),
    "a state that is not finite": (
        lambda: parts(initial=np.array([1.0, -np.inf])),
        ValueError,
        "initial[1] is -inf; expected finite values, none that are NaN or infinite",
    ),
    "a vector that is not finite": (
        lambda: SeparableVector((np.array([np.nan]),), time.constant()),
        ValueError,
        "factors[0][0] is nan; expected finite values, none that are NaN or infinite",
    ),
    "a block that is not finite": (
        lambda: ModeOperator(1, 1, np.zeros(1, int), np.zeros(1, int), np.full((1, 1, 1), np.nan)),
        ValueError,
        "blocks[0] holds a value that is not finite; expected numbers, none that are NaN or "
        "infinite",
    ),
    "a read-only out": (
        lambda: parts().rhs(0.0, np.ones(2), read_only()),
        ValueError,
        "out is read-only; pass a fresh array, such as numpy.empty_like(u)",
    ),
    "an out with gaps": (
        lambda: parts().rhs(0.0, np.ones(2), np.full(4, np.nan)[::2]),
        ValueError,
        "out is not C-contiguous; pass a fresh array, such as numpy.empty_like(u)",
    ),
    "a state of another length": (
        lambda: parts().rhs(0.0, np.ones(3), np.empty(2)),
        ValueError,
        "u has shape (3,); expected (2,), the problem's unknowns",
    ),
    "data that are no data": (
        lambda: PDE([X], mass(X), boundary=Dirichlet("zero"), initial=0.0),
        ValueError,
        "the data at the left end of axis 'x': 'zero' names 'zero'; expected x, t, or one of the "
        "functions exp, sqrt, sin, cos",
    ),
    "a coefficient of two coordinates": (
        lambda: div(X, lambda x, y: x * y),
        TypeError,
        "div: the coefficient in 'x' is a function of (x, y); expected a function of one array, "
        "the coordinate. For a product g(x) h(y) use others, as in div(x, g, others={y: h})",
    ),
    "a coefficient of nothing": (
        lambda: mass(X, lambda: 1.0),
        TypeError,
        "mass: the coefficient in 'x' is a function of (); expected a function of one array, "
        "the coordinate. For a product g(x) h(y) use others, as in mass(x, g, others={y: h})",
    ),
    "another coefficient of two coordinates": (
        lambda: grad(X, others={Axis("y", 0, 1): np.arctan2}),
        TypeError,
        "grad: the coefficient in 'y' is a function of (x1, x2); expected a function of one "
        "array, the coordinate. For a product g(x) h(y) use others, as in "
        "grad(x, g, others={y: h})",
    ),
    "a coefficient of a single number": (
        lambda: div(X, math.fabs),
        TypeError,
        "div: the coefficient in 'x' is math.fabs, which takes a single number; expected a "
        "function of an array, np.fabs",
    ),
    "a factor of two coordinates": (
        lambda: Separable(x=lambda x, y: x * y),
        TypeError,
        "Separable: x is a function of (x, y); expected a function of one array, the coordinate. "
        "For f(x) g(y) + h(x) use Separable(x=f, y=g) + Separable(x=h)",
    ),
    "a factor of a single number": (
        lambda: Separable(x=math.sin),
        TypeError,
        "Separable: x is math.sin, which takes a single number; expected a function of an array, "
        "np.sin",
    ),
    "a factor without a counterpart in NumPy": (
        lambda: Separable(x=math.erf),
        TypeError,
        "Separable: x is math.erf, which takes a single number; expected a function of an array, "
        "one of NumPy's",
    ),
    "a volume element of two coordinates": (
        lambda: PDE([X], mass(X), boundary="periodic", initial=0.0, volume={X: lambda x, y: x}),
        TypeError,
        "the volume element of 'x' is a function of (x, y); expected a function of one array, the "
        "coordinate. For a product g(x) h(y) use volume={x: g, y: h}",
    ),
    "cells without an axis": (
        lambda: SparseGrid.full([1, 1]).find([0]),
        ValueError,
        "cells have shape (1,); expected (..., 2), a 1-D index per axis",
    ),
}

TIMES = {
    "a table that is not finite": (
        lambda: time.spline([0, 1, 2], [0, 1, np.inf]),
        ValueError,
        "times and values must be finite; values[2] is inf. Leave that entry out",
    ),
    "times that are not finite": (
        lambda: time.spline([0, np.nan, 2], [0, 1, np.inf]),
        ValueError,
        "times and values must be finite; times[1] is nan. Leave that entry out",
    ),
    "a rate that is not finite": (
        lambda: time.exp(np.inf),
        ValueError,
        "rate must be finite and within float64's range, got inf",
    ),
    "a rate beyond float64": (
        lambda: time.exp(10**400),
        ValueError,
        "rate must be finite and within float64's range, got an integer beyond it",
    ),
    "functions that are no list": (
        lambda: time.from_json({"kind": "sum", "terms": "abc"}),
        ValueError,
        "function of time.terms: expected a list of 1 to 1000000 functions of time, got str",
    ),
    "no functions": (
        lambda: time.from_json({"kind": "sum", "terms": []}),
        ValueError,
        "function of time.terms: expected a list of 1 to 1000000 functions of time, got one of 0",
    ),
    "numbers that are no list": (
        lambda: time.from_json({"kind": "polynomial", "coefficients": 3}),
        ValueError,
        "function of time.coefficients: expected a list of at most 1000000 numbers, got int",
    ),
}

RUNS = {
    "an initial state of two dimensions": (
        lambda: evolve(Decay(np.ones((2, 2))), until=1.0, method="rk4", dt=0.1),
        ValueError,
        "problem.initial has shape (2, 2); expected (N,). Flatten it with ravel().",
    ),
    "an initial state that is not finite": (
        lambda: evolve(Decay([1.0, np.nan]), until=1.0, method="rk4", dt=0.1),
        ValueError,
        "problem.initial[1] is nan; expected finite values, none that are NaN or infinite.",
    ),
    "a callback of another kind": (
        lambda: evolve(Decay(), until=1.0, method="rk4", dt=0.1, callback=3),
        TypeError,
        "callback is a int; expected a function callback(state).",
    ),
    "a checkpoint of a complex state": (
        lambda: evolve(Decay([1j]), until=1.0, method="rk4", dt=0.1, checkpoint="c.h5"),
        TypeError,
        "checkpoint is given, but the state has dtype complex128, and only real states can be "
        "saved; leave checkpoint out.",
    ),
    "a system of another size": (
        lambda: Gmres(3).solve(EYE, np.ones(2)),
        ValueError,
        "b has 2 elements; expected 3, as the workspace has. Make another Gmres for another size.",
    ),
}

ALL = {**OPERATORS, **PROBLEMS, **TIMES, **RUNS}


@pytest.mark.parametrize(("call", "kind", "text"), ALL.values(), ids=ALL)
def test_what_it_says(call, kind, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == text
    assert type(caught.value) is kind
    assert not list(tmp_path.iterdir())


def test_a_time_before_the_checkpoint(tmp_path):
    path = tmp_path / "c.h5"
    evolve(Decay(), until=0.5, method="rk4", dt=0.1, checkpoint=path)
    with pytest.raises(ValueError, match=r"until is 0\.2, before the .* time 0\.5; expected that"):
        evolve(Decay(), until=0.2, resume=path)


def test_a_folder_without_permission(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    text = rf"checkpoint is {tmp_path}/c\.h5, whose folder cannot be written; choose another"
    with pytest.raises(ValueError, match=text):
        evolve(Decay(), until=0.5, method="rk4", dt=0.1, checkpoint=tmp_path / "c.h5")


def test_a_function_of_time_of_too_many_numbers(monkeypatch):
    monkeypatch.setattr(time_module, "MAXIMUM_SIZE", 5)
    with pytest.raises(ValueError, match="holds at most 5 numbers, got 6; tabulate it at fewer"):
        time.spline([0, 1, 2], [0, 1, 2])


def test_a_file_that_cannot_be_described(tmp_path):
    save_problem(tmp_path / "a.h5", make("continuity-1d", level=1, degree=0))
    with pytest.raises(TypeError, match="no description of a int"):
        list(describe_file(tmp_path / "a.h5", 3))


LIBRARY = [
    path
    for folder in ("batchkron", "solvers", "problems")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not {"storage", "backends"} & set(path.parts)  # they raise the system's errors as well
]
KINDS = {
    "ValueError",
    "TypeError",
    "IndexError",
    "ProblemFileError",
    "NotPhysicalError",
    "PointValueError",  # a NotPhysicalError
    "TermsNotFoundError",  # a TypeError
    "TooLargeError",  # a ValueError
    "UnstableStepError",  # a ValueError
    "ZeroDivisionError",  # as of Python's numbers
    "BackendUnavailableError",
    "ContextLostError",
    "MemoryError",
    "LinAlgError",  # as of numpy.linalg
    "AttributeError",  # of a module, as Python says it
    "ImportError",  # of sources without a compiled core
    "RuntimeError",  # where raise_on_failure asks for it
    "CommandError",
    "BadParameter",
}


def raised_in(path):
    """The exceptions that a module raises by name: (line, name, arguments)."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Raise) and isinstance(node.exc, (ast.Call, ast.Name)):
            call = node.exc
            called = call.func if isinstance(call, ast.Call) else call
            name = called.attr if isinstance(called, ast.Attribute) else called.id
            if name[0].isupper():
                yield node.lineno, name, call.args if isinstance(call, ast.Call) else []


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_errors_of_the_documented_kinds_with_a_text(path):
    for line, name, arguments in raised_in(path):
        assert name in KINDS, f"{path}:{line} raises {name}"
        assert arguments, f"{path}:{line} raises {name} without a text"
