"""Every pass (fused vector kernel) of csrc/krylov against its formula in NumPy.

A formula is given the vectors and scalars of one linear system, in double precision, and returns
those that the pass writes. Whatever a pass must not read is NaN before the call; whatever it must
not write is unchanged after it, as are systems whose status is not one that the pass is for. The
names of passes, vectors and scalars must be the same in C++ and Python.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dense_oracle import DTYPES, random_array

from batchkron.backends.krylov_arguments import Flag, Progress
from batchkron.solvers.krylov import bicgstab, cg, gmres, minres
from batchkron.solvers.krylov.vectors import passes
from batchkron.solvers.krylov.vectors.space import KrylovSpace

MODULES = {"Shared": passes, "Cg": cg, "Bicgstab": bicgstab, "Minres": minres, "Gmres": gmres}
FILES = {"Shared": "residual", **{method: method.lower() for method in list(MODULES)[1:]}}
SIZES = [1, 7, 67, 20_000]  # less than a SIMD vector, no multiple of one, and several parts
RESTART, STEPS = 4, (0, 1, 2)  # of GMRES
RUNNING, CLAIMED = Progress.RUNNING, Progress.CLAIMED
NONE, WITH_M = Flag(0), Flag.PRECONDITIONED


def source(path):
    return (Path(__file__).parents[4] / "csrc" / path).read_text()


def snake(name):
    """last_beta for kLastBeta."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name[1:]).lower()


def enumerators(text):
    """The names of a C++ enum and their values."""
    known, value = {}, -1
    for name, given in re.findall(r"(k\w+)(?: = ([^,]+?))?\s*,", re.sub(r"//.*", "", text) + ","):
        value += 1
        if given:
            first, *more = given.split(" + ")
            value = (COMMON | known)[snake(first)] if first.startswith("k") else int(first)
            value += sum(map(int, more))
        known[snake(name)] = value
    return known


def enum(file, name):
    return enumerators(
        re.search(rf"enum {name}\b[^{{]*\{{(.*?)\}};", source(f"krylov/{file}.hpp"), re.DOTALL)[1]
    )


COMMON = {}
COMMON = enum("common", "StateField")
FIELDS = {
    method: COMMON if method == "Shared" else COMMON | enum(file, "Own")
    for method, file in FILES.items()
}
COMPLEX = {"Bicgstab": {"rho", "alpha", "omega", "beta"}, "Gmres": {"share"}}


# Names agree between C++ and Python.


@pytest.mark.parametrize("method", MODULES)
def test_vectors_and_passes_have_the_names_of_the_kernels(method):
    module, text = MODULES[method], source(f"krylov/{FILES[method]}.hpp")
    listed = re.search(rf"struct {method}Vectors \{{\s*enum \{{ (.*?) \}};", text, re.DOTALL)[1]
    vectors = getattr(module, f"{method}Vectors")
    assert list(vectors._fields) == listed.split(", ")
    written = set(re.findall(rf"struct (\w+) : {method}Pass\b", text))
    if method == "Gmres":  # those over its basis are in a file of their own
        written |= set(re.findall(r'"(Gmres\w+)"', source("simd/krylov/basis.hpp")))
    declared = [value for value in vars(module).values() if isinstance(value, passes.Pass)]
    own = {each.name: each for each in declared if each.vectors is vectors}
    assert own.keys() == written
    assert all(getattr(module, name) is each for name, each in own.items())


# Formulas. Each has its pass, the vectors and scalars that it reads, options, and what it writes.

FORMULAS = []


@dataclass(frozen=True)
class Formula:
    """What a pass computes, from which vectors and scalars, and for which systems.

    It is for systems with this ``status``, which is ``ends`` after the pass; with ``all``, also for
    systems that have ended.
    """

    name: str
    compute: Callable
    vectors: list[str]
    scalars: list[str]
    flags: Flag = NONE
    status: Progress = RUNNING
    ends: Progress = RUNNING
    all: bool = False

    @property
    def method(self):
        return next(method for method in MODULES if hasattr(MODULES[method], self.name))


def formula(name, vectors, scalars="", *, label="", **options):
    """Register a function as what a pass writes, given the vectors and scalars that it reads.

    "=" before a scalar's name selects its other value in `SCALARS`.
    """

    def add(function):
        known = Formula(name, function, vectors.split(), scalars.split(), **options)
        FORMULAS.append(pytest.param(known, id=f"{name}{label and '-' + label}"))
        return function

    return add


def dot(a, b):
    return np.vdot(a, b)


def real_dot(a, b):
    return np.vdot(a, b).real


def norm(a):
    return np.linalg.norm(a)


def largest(a):
    return max(np.abs(a.real).max(), np.abs(a.imag).max())


def power_of_two(size):
    return 2.0 ** np.frexp(size)[1]


def recorded(s, estimate):
    """What is stored at the end of an iteration: the norm of the residual, in the unit of b."""
    return {"estimate": estimate * s.scale}


RECORD = " scale tolerance iteration_limit"


@formula("StartExtent", "b r", status=CLAIMED, all=True)
def _(at, s):
    r = at.b - at.r
    unit = power_of_two(max(largest(at.b), largest(r)))
    zero = {f"number_{k}": 0.0 for k in range(COMMON["state_fields"])}
    limits = {"iteration_limit": 50.0, "cycle_limit": 60.0}
    return {"r": r}, zero | limits | {"norm_b": largest(at.b), "unit": unit, "operator": 1.0}


@formula("StartNorms", "b r", "unit norm_b", all=True)
def _(at, s):
    norms = {"norm_b": norm(at.b), "tolerance": 0.01 * norm(at.b)}
    return {}, norms | dict.fromkeys(["residual", "estimate", "scale"], norm(at.r))


@formula("ScaleResidual", "r", "unit scale replaced")
def _(at, s):
    own = {f"number_{k}": 0.0 for k in range(COMMON["own"], COMMON["state_fields"])}
    return {"r": at.r / s.scale}, own


@formula("OperatorExtent", "w")
def _(at, s):
    return {}, {"operator": 1 / power_of_two(largest(at.w))}


@formula(
    "TrueResidual",
    "b r",
    "unit residual tolerance estimate",
    status=CLAIMED,
    ends=Progress.CONVERGED,
)
def _(at, s):
    r = at.b - at.r
    return {"r": r}, {"residual": norm(r), "replaced": 0.0}


@formula("InnerProduct", "b r", all=True)
def _(at, s):
    product = dot(at.b, at.r)
    return {}, {"residual": product.real, "estimate": product.imag}


@formula("CgProduct", "r z", "rho")
def _(at, s):
    rho = real_dot(at.r, at.z)
    return {}, {"rho": rho, "beta": rho / s.rho}


@formula("CgDirection", "z p", "beta")
def _(at, s):
    return {"p": at.z + s.beta * at.p}, {}


@formula("CgCurvature", "p q", "rho largest")
def _(at, s):
    curvature = real_dot(at.p, at.q)
    relative = curvature / real_dot(at.p, at.p)
    return {}, {"alpha": s.rho / curvature, "largest": max(s.largest, relative)}


@formula("CgUpdate", "x r p q", "alpha rho" + RECORD)
def _(at, s):
    x, r = at.x + s.alpha * s.scale * at.p, at.r - s.alpha * at.q
    rho = norm(r) ** 2
    return {"x": x, "r": r}, {"rho": rho, "beta": rho / s.rho} | recorded(s, norm(r))


@formula("CgUpdate", "x r p q", "alpha" + RECORD, flags=WITH_M, label="with M")
def _(at, s):
    x, r = at.x + s.alpha * s.scale * at.p, at.r - s.alpha * at.q
    return {"x": x, "r": r}, recorded(s, norm(r))


@formula("BicgstabBegin", "r", "replaced")
def _(at, s):
    return {"shadow": at.r}, {"rho": norm(at.r) ** 2, "drift": 0.0}


@formula("BicgstabBegin", "r shadow", "=replaced rho alpha omega", label="replaced")
def _(at, s):
    rho = dot(at.shadow, at.r)
    return {}, {"rho": rho, "beta": rho / s.rho * s.alpha / s.omega, "drift": 0.0}


@formula("BicgstabProject", "v shadow", "operator rho drift")
def _(at, s):
    v = s.operator * at.v
    alpha = s.rho / dot(at.shadow, v)
    return {}, {"alpha": alpha, "drift": s.drift + 10 * s.eps * abs(alpha) * norm(v)}


@formula("BicgstabFirstUpdate", "x r v y", "operator alpha scale tolerance")
def _(at, s):
    alpha = s.alpha * s.operator
    return {"x": at.x + s.scale * alpha * at.y, "r": at.r - alpha * at.v}, {}


@formula(
    "BicgstabFirstUpdate", "x r v y", "operator alpha scale =tolerance iteration_limit",
    ends=CLAIMED, label="solved",
)  # fmt: skip
def _(at, s):
    alpha = s.alpha * s.operator
    r = at.r - alpha * at.v
    return {"x": at.x + s.scale * alpha * at.y, "r": r}, recorded(s, norm(r))


@formula("BicgstabSmoothing", "t r", "operator drift")
def _(at, s):
    t = s.operator * at.t
    omega = dot(t, at.r) / norm(t) ** 2
    return {}, {"omega": omega, "drift": s.drift + 10 * s.eps * abs(omega) * norm(t)}


@formula("BicgstabSecondUpdate", "x r t y shadow", "operator omega alpha rho drift" + RECORD)
def _(at, s):
    omega = s.omega * s.operator
    x, r = at.x + s.scale * omega * at.y, at.r - omega * at.t
    rho = dot(at.shadow, r)
    beta = rho / s.rho * s.alpha / s.omega
    return {"x": x, "r": r}, {"rho": rho, "beta": beta} | recorded(s, norm(r))


@formula("BicgstabDirection", "p r v", "operator beta omega")
def _(at, s):
    return {"p": at.r + s.beta * (at.p - s.operator * s.omega * at.v)}, {}


@formula("MinresBegin", "r")
def _(at, s):
    return {"v": at.r}, {}


@formula("MinresFirstNorm", "v z", "scale")
def _(at, s):
    beta = np.sqrt(real_dot(at.v, at.z))
    ones = {"cosine": 1.0, "last_cosine": 1.0}
    return {}, ones | {"beta": beta, "eta": beta, "estimate": s.scale}


@formula("MinresDiagonal", "z w", "operator beta euclidean_norm")
def _(at, s):
    w = s.operator * at.w
    seen = max(s.euclidean_norm, norm(w) / norm(at.z))
    alpha = real_dot(at.z, w) / s.beta**2
    return {}, {"alpha": alpha, "length": norm(at.z) / s.beta, "euclidean_norm": seen}


def next_v(at, s):
    last = s.beta / s.last_beta * at.previous
    return s.operator / s.beta * at.w - s.alpha / s.beta * at.v - last


def rotated(s, beta):
    """The column (rho3, rho2, rho, 0) of the triangle, the rotation and the step."""
    delta = s.cosine * s.alpha - s.last_cosine * s.sine * s.beta
    rho = np.hypot(delta, beta)
    return {
        "next_beta": beta,
        "rho": rho,
        "rho2": s.sine * s.alpha + s.last_cosine * s.cosine * s.beta,
        "rho3": s.last_sine * s.beta,
        "last_cosine": s.cosine,
        "last_sine": s.sine,
        "cosine": delta / rho,
        "sine": beta / rho,
        "tau": delta / rho * s.eta,
        "eta": -beta / rho * s.eta,
        "operator_norm": max(s.operator_norm, np.hypot(s.alpha, beta)),
    }


ROTATION = (
    " alpha beta cosine sine last_cosine last_sine eta length direction last_direction path"
    " operator_norm euclidean_norm estimate scale"
)


@formula("MinresLanczos", "w v previous", "operator last_beta" + ROTATION)
def _(at, s):
    v = next_v(at, s)
    return {"previous": v}, rotated(s, norm(v))


@formula(
    "MinresLanczos", "w v previous", "operator last_beta alpha beta", flags=WITH_M, label="with M"
)
def _(at, s):
    return {"previous": next_v(at, s)}, {}


@formula("MinresNextNorm", "previous next", ROTATION)
def _(at, s):
    return {}, rotated(s, np.sqrt(real_dot(at.previous, at.next)))


STEP = (
    " operator rho rho2 rho3 beta last_beta next_beta tau eta sine cosine direction path" + RECORD
)


def step(at, s):
    d2 = (at.z / s.beta - s.rho2 * at.d - s.rho3 * at.d2) / s.rho
    scalars = {
        "last_direction": s.direction,
        "direction": norm(d2),
        "path": s.path + abs(s.tau) * norm(d2),
        "last_beta": s.beta,
        "beta": s.next_beta,
    }
    return {"d2": d2, "x": at.x + s.tau * s.scale * s.operator * d2}, scalars


@formula("MinresUpdate", "z d d2 x", STEP)
def _(at, s):
    vectors, scalars = step(at, s)
    return vectors, scalars | recorded(s, abs(s.eta))


@formula("MinresUpdate", "z d d2 x r previous", STEP, flags=WITH_M, label="with M")
def _(at, s):
    vectors, scalars = step(at, s)
    r = s.sine**2 * at.r + s.cosine * s.eta / s.next_beta * at.previous
    return vectors | {"r": r}, scalars | recorded(s, norm(r))


@formula("GmresCorrect", "x corrected", "kept", status=CLAIMED, ends=CLAIMED)
def _(at, s):
    return {"work": at.x + at.corrected}, {}


@formula(
    "GmresResidual",
    "b basis",
    "unit residual tolerance kept columns",
    status=CLAIMED,
    ends=Progress.CONVERGED,
)
def _(at, s):
    r = at.b - at.basis
    return {"basis": r}, {"accepted": 1.0} | dict.fromkeys(["residual", "scale"], norm(r))


@formula("GmresAccept", "work", "accepted", all=True)
def _(at, s):
    return {"x": at.work}, {"accepted": 0.0}


# Values of scalars where they matter; others are random between 1 and 2. Units are powers of two,
# by which scaling is exact.
SCALARS = {
    "unit": 4.0, "operator": 0.5, "scale": 3.0, "tolerance": 1e-12, "iteration_limit": 9.0,
    "=tolerance": 1e6, "replaced": 0.0, "=replaced": 1.0, "accepted": 1.0, "kept": 1.0,
    "columns": 1.0, "drift": 0.0, "largest": 0.1, "operator_norm": 0.1, "euclidean_norm": 0.1,
    "path": 1e-3,
    "cosine": 0.8, "sine": 0.6, "last_cosine": 0.6, "last_sine": 0.8, "eta": 0.7,
}  # fmt: skip


class Systems:
    """Three systems, of which the second has ended; NaN where nothing was set."""

    def __init__(self, method, dtype, size, restart=0):
        self.dtype, self.method = np.dtype(dtype), method
        self.space = KrylovSpace(np, (3, size), self.dtype, restart)
        self.fields = FIELDS[method]
        self.state, self.progress = self.space._state, self.space._progress
        self.small = self.space._kept[3] if restart else None
        self.state[:] = np.nan
        self.progress[:] = 0
        self.progress[0, 1] = Progress.CONVERGED

    def put(self, name, value):
        """Set a scalar of all systems."""
        for row in self.state:
            self.put_in(row, name, value)

    def put_in(self, row, name, value):
        """Set a scalar of one system; a complex one takes two places."""
        place = int(name[7:]) if name.startswith("number_") else self.fields[name]
        row[place] = np.real(value)
        if self.is_complex(name):
            row[place + 1] = np.imag(value)

    def is_complex(self, name):
        return self.dtype.kind == "c" and name in COMPLEX.get(self.method, ())

    def run(self, *names, vectors, flags=NONE, column=0, columns=1):
        listed = tuple(getattr(MODULES[self.method], name) for name in names)
        every = getattr(MODULES[self.method], f"{self.method}Vectors")
        given = every(**{name: vectors.get(name) for name in every._fields})
        self.space.flags = flags
        chosen = self.space.passes(listed, given, columns=columns)
        chosen.set(rtol=0.01, atol=0.0, max_iterations=50.0, max_cycles=60.0)
        chosen.steps[column]()


def alike(rng, count, size, dtype):
    """Vectors (3, size) whose inner products are positive, and not small beside their norms."""
    together = random_array(rng, (3, size))
    factors = rng.uniform(0.5, 1.5, (count, 3, size))
    if np.dtype(dtype).kind == "c":
        factors = factors * np.exp(1j * rng.uniform(0.0, 0.7, factors.shape))
    return list((together * factors).astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", FORMULAS)
def test_pass(rng, case, size, dtype):
    systems = Systems(case.method, dtype, size)
    systems.progress[0, [0, 2]] = case.status
    names = getattr(MODULES[case.method], f"{case.method}Vectors")._fields
    vectors = dict(zip(names, alike(rng, len(names), size, dtype), strict=True))
    for name in set(names) - set(case.vectors):
        vectors[name][:] = np.nan
    given = SimpleNamespace(eps=np.finfo(dtype).eps)
    for name, value in scalars_of(case, rng):
        if systems.is_complex(name):
            value = value * np.exp(1j * rng.uniform(0.0, 1.0))
        systems.put(name, value)
        setattr(given, name, value)
    before = {name: vector.copy() for name, vector in vectors.items()}
    state, status = systems.state.copy(), systems.progress[0].copy()

    systems.run(case.name, vectors=vectors, flags=case.flags)

    close = 50 * float(np.finfo(dtype).eps)
    for k in range(3):
        concerned = case.all or status[k] == case.status
        written, scalars = {}, {}
        if concerned:
            wide = np.result_type(dtype, float)
            at = SimpleNamespace(**{name: before[name][k].astype(wide) for name in names})
            written, scalars = case.compute(at, given)
        for name in names:
            if name in written:
                allowed = close * np.abs(written[name]).max()
                np.testing.assert_allclose(vectors[name][k], written[name], rtol=0, atol=allowed)
            else:
                np.testing.assert_array_equal(vectors[name][k], before[name][k])
        expected = state[k].copy()
        for name, value in scalars.items():
            systems.put_in(expected, name, value)
        allowed = 4 * close * max([1.0, *(abs(value) for value in scalars.values())])
        np.testing.assert_allclose(systems.state[k], expected, rtol=4 * close, atol=allowed)
        if status[k] == case.status:
            assert systems.progress[0, k] == case.ends
        if concerned and "iteration_limit" in case.scalars:
            assert systems.progress[1, k] == 1
            assert systems.space.history(1)[0, k] == systems.state[k, systems.fields["estimate"]]


def scalars_of(case, rng):
    """The scalars that a pass is given, by name."""
    for name in case.scalars:
        if name == "residual" or (name == "tolerance" and case.ends is Progress.CONVERGED):
            yield name, 1e6  # no norm is larger
        else:
            yield name.lstrip("="), SCALARS.get(name, rng.uniform(1.0, 2.0))


@pytest.mark.parametrize(
    ("status", "scalars", "ends"),
    [
        (Progress.CLAIMED, {"tolerance": 100.0}, Progress.CONVERGED),
        (Progress.CLAIMED, {"residual": 100.0}, Progress.RUNNING),
        (Progress.CLAIMED, {"residual": 12.0}, Progress.STAGNATED),
        (Progress.SPENT, {"residual": 100.0, "iteration_limit": 0.0}, Progress.MAX_ITERATIONS),
        (Progress.BROKEN, {"residual": 100.0}, Progress.BREAKDOWN),
        (Progress.INDEFINITE, {"residual": 100.0}, Progress.INDEFINITE_AT_END),
        (Progress.NOT_FINITE, {"residual": 100.0}, Progress.NOT_FINITE_AT_END),
        (Progress.DRIFTED, {"residual": 100.0}, Progress.RUNNING),
        (Progress.CYCLE_END, {"residual": 12.0}, Progress.STAGNATED),
    ],
)
def test_what_a_true_residual_says(status, scalars, ends):
    """The new true residual has norm 10, the one before it had norm ``residual``."""
    systems = Systems("Shared", "float64", 4)
    given = {"unit": 2.0, "tolerance": 1.0, "residual": 12.0, "iteration_limit": 9.0}
    for name, value in (given | {"restarts": 0.0, "estimate": 0.1} | scalars).items():
        systems.put(name, value)
    systems.progress[0, 0] = status
    systems.run("TrueResidual", vectors={"b": np.full((3, 4), 8.0), "r": np.full((3, 4), 3.0)})
    state = {name: systems.state[0, place] for name, place in COMMON.items() if place < 16}
    assert systems.progress[0, 0] == ends
    assert state["residual"] == 10.0
    again = ends is Progress.RUNNING and status is not Progress.DRIFTED
    assert (state["restarts"], state["replaced"]) == (again, status is Progress.DRIFTED)
    if again:
        assert state["scale"] == 10.0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [7, 67, 20_000])
def test_steps_of_gmres(rng, size, dtype):
    """q = (u - Q a) / alpha, u' = (w - Q c - d q) / alpha with a = Q* u, c = Q* w, d = q* w."""
    systems = Systems("Gmres", dtype, size, RESTART)
    systems.progress[0, 0] = systems.progress[0, 2] = RUNNING
    for name, value in {
        "operator": 0.5,
        "scale": 3.0,
        "tolerance": 0.0,
        "iteration_limit": 9.0,
    }.items():
        systems.put(name, value)
    basis = systems.space.basis("basis", RESTART + 1)
    basis[:] = np.nan
    basis[0] = random_array(rng, (3, size), dtype)
    basis[0] /= np.linalg.norm(basis[0], axis=1)[:, None]
    untouched = basis[:, 1].copy()
    close = 200 * float(np.finfo(dtype).eps)
    for j in STEPS:
        basis[j + 1, [0, 2]] = w = random_array(rng, (2, size), dtype)
        before = basis.astype(np.result_type(dtype, float))
        systems.run(
            "GmresProject", "GmresExtend", vectors={"basis": basis}, column=j, columns=RESTART
        )
        for k in (0, 2):
            Q, u, w = before[:j, k].T, before[j, k], 0.5 * before[j + 1, k]
            rest = u - Q @ (Q.conj().T @ u)
            alpha = np.linalg.norm(rest)
            q = rest / alpha
            following = (w - Q @ (Q.conj().T @ w) - q * dot(q, w)) / alpha
            np.testing.assert_allclose(basis[j, k], q, rtol=0, atol=close)
            allowed = close * np.linalg.norm(following)
            np.testing.assert_allclose(basis[j + 1, k], following, rtol=0, atol=allowed)
            np.testing.assert_array_equal(basis[:j, k], before[:j, k])
            assert systems.progress[:, k].tolist() == [RUNNING, j + 1]
            inverse = systems.state[k, systems.fields["inverse"]]
            assert inverse == pytest.approx(1 / alpha, rel=close)
    np.testing.assert_array_equal(basis[3, 1], untouched[3])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [7, 67, 20_000])
@pytest.mark.parametrize("flags", [NONE, WITH_M, WITH_M | Flag.FLEXIBLE])
def test_gmres_combines_its_basis(rng, size, dtype, flags):
    """x + Σ y_k q_k; with M only the sum; flexible GMRES has M q_k in place of q_k."""
    systems = Systems("Gmres", dtype, size, RESTART)
    systems.progress[0, 0] = systems.progress[0, 2] = CLAIMED
    kept = 3
    systems.put("kept", kept)
    reals = 2 if np.dtype(dtype).kind == "c" else 1
    first = reals * (2 * RESTART**2 + 6 * (RESTART + 1))  # where gmres::Triangle has the solution
    y = random_array(rng, (3, kept), np.result_type(dtype, float))
    systems.small[:] = np.nan
    systems.small[:, first : first + reals * kept] = y.view(float)
    vectors = dict(zip(["x", "work"], random_array(rng, (2, 3, size), dtype), strict=True))
    for name in ("basis", "solutions"):
        vectors[name] = systems.space.basis(name, RESTART + 1)
        vectors[name][:] = np.nan
    used = "solutions" if flags & Flag.FLEXIBLE else "basis"
    vectors[used][:kept] = random_array(rng, (kept, 3, size), dtype)
    vectors["work"][[0, 2]] = np.nan
    if flags == WITH_M:
        vectors["x"][:] = np.nan
    before = {name: vector.copy() for name, vector in vectors.items()}
    systems.run("GmresCombine", vectors=vectors, flags=flags)
    for k in (0, 2):
        expected = y[k] @ before[used][:kept, k]
        expected = expected if flags == WITH_M else before["x"][k] + expected
        allowed = 50 * np.finfo(dtype).eps * np.abs(expected).max()
        np.testing.assert_allclose(vectors["work"][k], expected, rtol=0, atol=allowed)
    np.testing.assert_array_equal(vectors["work"][1], before["work"][1])
    for name in ("x", "basis", "solutions"):
        np.testing.assert_array_equal(vectors[name], before[name])
