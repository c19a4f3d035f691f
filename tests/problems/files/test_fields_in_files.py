"""Problems with fields in files: the same content after loading, and formulas that are wrong."""

import json

import numpy as np
import pytest
from crafted_files import changed, write_unchecked

from batchkron import ProblemFileError
from batchkron.problems import (
    PDE,
    Axis,
    Inflow,
    Moment,
    Poisson,
    Separable,
    div,
    load_problem,
    make,
    mass,
    save_problem,
)
from batchkron.problems.files.encode import encode_problem
from batchkron.problems.semidiscrete.value import content_of
from batchkron.solvers import EvolveStatus, evolve

X, V = Axis("x", 0.0, 4.0), Axis("v", -3.0, 3.0)
N = Moment(V)
WAVE = Separable(x=lambda x: 1.0 + 0.3 * np.sin(np.pi * x / 2), v=lambda v: np.exp(-(v**2)))


def all_kinds():
    """Every kind of expression, in two fields that share one."""
    u = Moment({V: 1}) / N
    temperature = Moment({V: 2}) / N - u**2
    E = Poisson(X, N, lambda x: 1.0 + x, potential=(0.5, -1.0))
    terms = [
        div(V, -1.0, others={X: E + np.cos}),
        mass(X, (temperature**0.5 * 2.0 - u) * E),
        div(V, others={X: Poisson(X, N)}),
        div(X, -1.0, others={V: lambda v: v}),
    ]
    return PDE([X, V], terms, boundary=Inflow(), initial=WAVE).discretize(3, 2)


def curved():
    volume = {X: lambda x: 1.0 + x}
    terms = [mass(X, N), div(V, others={X: N * np.sin})]
    return PDE([X, V], terms, boundary=Inflow(), initial=WAVE, volume=volume).discretize(3, 1)


def relaxing():
    """Collisions, whose fields have moments at the ends of the velocities."""
    return make("collisional-landau-1x1v", 3, 2)


def rhs_of(problem):
    out = np.full(problem.unknowns, np.nan)
    problem.rhs(0.0, problem.initial, out)
    return out


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("build", [all_kinds, curved, lambda: make("landau-1x2v", 2, 1), relaxing])
def test_round_trips_have_the_same_content(tmp_path, build, trusted):
    problem = build()
    path = tmp_path / "fields.h5"
    save_problem(path, problem)
    loaded = load_problem(path, trusted=trusted)
    assert loaded.content_hash == problem.content_hash
    assert loaded.has_fields
    assert [repr(t) for t in loaded.terms] == [repr(t) for t in problem.terms]
    # loaded operators that are equal are one object, so that sweeps may add in another order
    expected = rhs_of(problem)
    np.testing.assert_allclose(rhs_of(loaded), expected, atol=1e-14 * np.abs(expected).max())
    again = tmp_path / "again.h5"
    save_problem(again, loaded)
    assert load_problem(again, trusted=True).content_hash == problem.content_hash


def test_the_hash_knows_the_fields():
    hashes = set()
    for field in (N, 2.0 * N, N + np.sin, N + np.cos, Moment({V: 1}), Poisson(X, N)):
        pde = PDE([X, V], mass(X, field), boundary="periodic", initial=WAVE)
        hashes.add(pde.discretize(2, 1, dt=0.1).content_hash)
    assert len(hashes) == 6


def test_runs_are_resumed(tmp_path):
    problem = make("landau-1x1v", 3, 2)
    path = tmp_path / "run.h5"
    whole = evolve(problem, until=0.4, dt=0.02)
    evolve(problem, until=0.2, dt=0.02, checkpoint=path)
    rest = evolve(problem, until=0.4, resume=path)
    assert rest.status is EvolveStatus.COMPLETED
    np.testing.assert_array_equal(rest.u, whole.u)


def test_runs_with_collisions_are_resumed(tmp_path):
    """Also from a loaded problem, and with a preconditioner for the initial state."""
    save_problem(tmp_path / "problem.h5", relaxing())
    problem = load_problem(tmp_path / "problem.h5")
    settings = {"until": 0.4, "dt": 0.05, "method": "ark3", "preconditioner": "auto"}
    whole = evolve(problem, **settings)
    path = tmp_path / "run.h5"
    evolve(problem, **{**settings, "until": 0.2}, checkpoint=path)
    rest = evolve(problem, **settings, resume=path)
    assert rest.status is EvolveStatus.COMPLETED
    np.testing.assert_array_equal(rest.u, whole.u)


def test_files_without_fields_are_as_before():
    document = encode_problem(content_of(make("continuity-1d", 2, 1)))
    assert not [path for path in document.datasets if path.startswith("fields")]


@pytest.fixture(scope="module")
def document():
    return encode_problem(content_of(all_kinds()))


def formula(change):
    """Change the list of expressions of the first formula."""

    def damage(document):
        first, *others = document.datasets["fields/formula"]
        nodes = json.loads(first)
        change(nodes)
        return {"fields/formula": (json.dumps(nodes), *others)}

    return damage


def modes(change):
    def damage(document):
        table = document.datasets["fields/modes"].copy()
        return {"fields/modes": change(table)}

    return damage


def put(table, place, value):
    table[place] = value
    return table


def find(nodes, kind):
    return next(node for node in nodes if node["kind"] == kind)


DAMAGES = {
    "no list": (lambda d: {"fields/formula": ("3", *d.datasets["fields/formula"][1:])}, "no list"),
    "empty": (lambda d: {"fields/formula": ("[]", *d.datasets["fields/formula"][1:])}, "no list"),
    "no JSON": (lambda d: {"fields/formula": ("[", *d.datasets["fields/formula"][1:])}, "formula"),
    "no object": (formula(lambda nodes: nodes.append(3)), "is no object"),
    "unknown kind": (formula(lambda n: n.append({"kind": "exec", "of": [0]})), "is no expression"),
    "no operands": (formula(lambda n: n.append({"kind": "+", "of": [0]})), "is no expression"),
    "later operand": (
        formula(lambda n: n.append({"kind": "+", "of": [0, 99]})),
        "expected earlier",
    ),
    "negative operand": (formula(lambda n: n.append({"kind": "+", "of": [0, -1]})), "earlier"),
    "true operand": (formula(lambda n: n.append({"kind": "+", "of": [0, True]})), "earlier"),
    "unknown axis": (
        formula(lambda n: find(n, "moment").update(powers=[["w", 0]])),
        "'w' is missing or unknown",
    ),
    "half a power": (
        formula(lambda n: find(n, "moment").update(powers=[["v", 0.5]])),
        "the power of 'v' is float",
    ),
    "no powers": (formula(lambda n: find(n, "moment").pop("powers")), "'powers' is missing"),
    "moment of all": (
        formula(lambda n: find(n, "moment").update(powers=[["v", 0], ["x", 0]])),
        "integrates over all axes",
    ),
    "other axis": (
        formula(lambda n: n.append({"kind": "moment", "powers": [["x", 0]]})),
        "is not a function of 'x'",
    ),
    "end of another axis": (
        formula(lambda n: find(n, "moment").update(end="x")),
        "is not among the axes of the moment",
    ),
    "end of no axis": (formula(lambda n: find(n, "moment").update(end="w")), "'w' is missing or"),
    "samples outside": (
        formula(lambda n: find(n, "samples").update(first=10**9)),
        "expected them in 'fields/samples'",
    ),
    "samples before": (formula(lambda n: find(n, "samples").update(first=-1)), "begin at -1"),
    "name of samples": (formula(lambda n: find(n, "samples").update(name=3)), "is no text"),
    "potential": (formula(lambda n: find(n, "poisson").update(potential=[1.0])), "formula"),
    "text for number": (
        formula(lambda n: n.append({"kind": "power", "of": [0], "exponent": "2"})),
        "formula",
    ),
    "part": (modes(lambda t: put(t, (0, 3), 2)), "'fields/modes' holds 2 at"),
    "term": (modes(lambda t: put(t, (0, 0), 77)), "'fields/modes' holds 77 at"),
    "axis": (modes(lambda t: put(t, (0, 1), -1)), "'fields/modes' holds -1 at"),
    "field": (modes(lambda t: put(t, (0, 2), 9)), "'fields/modes' holds 9 at"),
    "twice": (modes(lambda t: put(t, 1, t[0])), "names a mode twice"),
    "not all": (modes(lambda t: t[:2]), "not every formula"),
    "taken": (modes(lambda t: put(t, (0, 1), 1)), "where it has an operator"),
    "columns": (modes(lambda t: t[:, :3]), "fields/modes"),
    "part of it": (lambda d: {"fields/samples": None}, "fields/samples"),
    "volume": (
        lambda d: {"fields/volume_0": np.ones((8, 3))},
        "has shape (8, 3); expected (8, 16)",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_false_fields_are_refused(tmp_path, document, name):
    damage, text = DAMAGES[name]
    path = tmp_path / "bad.h5"
    write_unchecked(path, changed(document, datasets=damage(document)))
    with pytest.raises(ProblemFileError) as caught:
        load_problem(path, trusted=True)
    assert text in str(caught.value)


def test_short_formulas_with_huge_texts_are_harmless(tmp_path, document):
    """Sixty doublings are 2^60 summands as text, and sixty sums to compute."""

    def double(nodes):
        for _ in range(60):
            last = len(nodes) - 1
            nodes.append({"kind": "+", "of": [last, last]})

    path = tmp_path / "deep.h5"
    write_unchecked(path, changed(document, datasets=formula(double)(document)))
    loaded = load_problem(path, trusted=True)
    assert len(loaded.describe()) < 4000
    assert np.isfinite(rhs_of(loaded)).all()


def test_formulas_may_be_so_long(tmp_path, document):
    chain = formula(lambda n: n.extend({"kind": "*", "of": [0, 0]} for _ in range(5000)))
    path = tmp_path / "long.h5"
    write_unchecked(path, changed(document, datasets=chain(document)))
    with pytest.raises(ProblemFileError, match="no list of 1 to 4096 expressions"):
        load_problem(path, trusted=True)
    field = N
    for _ in range(2100):
        field = field * 1.0
    pde = PDE([X, V], mass(X, field), boundary="periodic", initial=WAVE)
    with pytest.raises(ValueError, match="a field has 4201 parts; a file holds at most 4096"):
        save_problem(tmp_path / "no.h5", pde.discretize(1, 0, dt=0.1))
    assert not (tmp_path / "no.h5").exists()
