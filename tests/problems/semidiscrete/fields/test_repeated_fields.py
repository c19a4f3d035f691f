"""What a device repeats by graphs, with calls in the place of graphs."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from batchkron.problems import PDE, Axis, Moment, Poisson, Separable, bgk, div, make, mass, time
from batchkron.problems.semidiscrete.fields import evaluation, following
from batchkron.problems.semidiscrete.fields.following import Following, _StateProduct
from batchkron.problems.semidiscrete.fields.terms import FieldTerms


def with_everything(form="sweep"):
    """Terms with fields and without, constant and not, a source that changes, and a gain."""
    x, v = Axis("x", 0.0, 3.0), Axis("v", -6.0, 6.0)
    wave = time.cos(1.0)
    terms = [
        div(x, -1.0, others={v: lambda s: s}) * wave,
        mass(x, lambda s: -0.1 * s),
        div(v, -1.0, others={x: Poisson(x, Moment(v))}),
        *bgk(v, 2.0, position=x),
    ]
    initial = Separable(
        x=lambda s: 1.0 + 0.1 * np.cos(2.0 * np.pi * s / 3.0),
        v=lambda s: np.exp(-0.5 * (s - 1.0) ** 2),
    )
    source = Separable(x=lambda s: 1.0 + 0.0 * s, v=lambda s: np.exp(-(s**2)), t=wave)
    boundary = {x: "periodic", v: "inflow"}
    pde = PDE([x, v], terms, boundary=boundary, initial=initial, sources=[source])
    return pde.discretize(3, 2).with_form(form)


@pytest.mark.parametrize("form", ["sweep", "batch"])
@pytest.mark.parametrize("name", ["two-stream", "everything"])
def test_right_hand_sides_of_parts(rng, monkeypatch, name, form):
    problem = with_everything(form) if name == "everything" else make(name, 3, 2).with_form(form)
    expected, found = np.full((2, 2, problem.unknowns), np.nan)
    u = problem.initial * rng.uniform(0.999, 1.001, problem.unknowns)
    problem.rhs(0.3, u, expected[0])
    expected[1] = u
    problem.accumulate(0.3, u, expected[1])
    groups = [group for group in problem.system._groups if group.time.is_constant]
    calls = []
    product = _StateProduct(groups, problem.system._field_terms, problem.t0)
    monkeypatch.setattr(
        type(problem.system),
        "_repeated",
        staticmethod(lambda u, out: calls.append(product(u, out))),
    )
    problem.rhs(0.3, u, found[0])
    found[1] = u
    problem.accumulate(0.3, u, found[1])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14 * np.abs(expected).max())
    assert len(calls) == 2


def test_the_operator_has_what_a_replay_wrote(rng, monkeypatch):
    problem = make("two-stream", 3, 1)
    terms, other = (FieldTerms(problem, problem.terms) for _ in range(2))
    before = terms.operator.to_dense()
    np.testing.assert_array_equal(terms.operator.to_dense(), before)
    terms.follow(0.0, problem.initial)
    assert terms.is_repeatable
    u = problem.initial * rng.uniform(0.9, 1.1, problem.unknowns)
    monkeypatch.setattr(terms._linked, "update", terms.operator._program.gather)  # a replay's
    terms.follow(0.0, u)
    other.follow(0.0, u)
    dense = other.operator.to_dense()
    assert np.abs(dense - before).max() > 0.1
    np.testing.assert_array_equal(terms.operator.to_dense(), dense)
    assert terms.operator.validate().ok
    transpose = terms.operator.T
    assert not terms.is_repeatable  # its relatives follow by way of the host
    np.testing.assert_array_equal(transpose.to_dense(), dense.T)
    terms.follow(0.0, problem.initial)  # a replay does not know the transpose
    other.follow(0.0, problem.initial)
    monkeypatch.undo()
    terms.take_replays()
    np.testing.assert_array_equal(transpose.to_dense(), other.operator.to_dense().T)


def test_an_operator_that_is_kept_follows_replays(rng, monkeypatch):
    problem = make("relaxation-1x1v", 3, 1)
    part, other = problem.implicit_part(), problem.implicit_part()
    kept = part.operator
    part.follow(0.0, problem.initial)
    monkeypatch.setattr(part, "_repeated", lambda u: part._terms.follow(0.0, u))
    monkeypatch.setattr(part._terms._linked, "update", part._terms.operator._program.gather)
    for _ in range(2):
        u = problem.initial * rng.uniform(0.999, 1.001, problem.unknowns)
        part.follow(0.0, u)
        other.follow(0.0, u)
        expected = other.operator.to_dense()
        bound = 1e-13 * np.abs(expected).max()
        np.testing.assert_allclose(kept.diagonal(), expected.diagonal(), rtol=0, atol=bound)
        np.testing.assert_allclose(kept.to_dense(), expected, rtol=0, atol=bound)


def test_gains_are_repeated(rng, monkeypatch):
    """As on a device: what is repeated overwrites a vector, and does not know what repeats it."""
    problem = make("bgk-1x1v", 3, 1)
    u = problem.initial * rng.uniform(0.99, 1.01, problem.unknowns)
    own, expected = problem.system._gains, np.empty((2, problem.unknowns))
    added = rng.standard_normal(problem.unknowns)
    own.write(0.0, u, expected[0])
    expected[1] = added
    own.accumulate(0.0, u, expected[1])
    assert own
    assert np.abs(expected[0]).max() > 0.1
    calls, found = [], np.full((2, problem.unknowns), np.nan)
    total = own._sum
    monkeypatch.setattr(own, "_repeated", lambda u, out: calls.append(total(u, out)))
    own.write(0.0, u, found[0])
    found[1] = added
    own.accumulate(0.0, u, found[1])
    assert len(calls) == 2
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-15)
    assert not make("two-stream", 2, 1).system._gains
    assert list(vars(total)) == ["gains"]


def test_the_host_repeats_nothing():
    problem = make("bgk-1x1v", 3, 1)
    assert problem.system._repeated is None
    assert problem.system._gains._repeated is None
    assert not problem.split_rhs().is_repeatable


@pytest.mark.parametrize("name", ["relaxation-1x1v", "relaxation-1x2v"])
def test_equal_expressions_are_evaluated_once(rng, monkeypatch, name):
    problem, other = make(name, 3, 1), make(name, 3, 1)
    u = problem.initial * rng.uniform(0.999, 1.001, problem.unknowns)
    expected, found = np.full((2, problem.unknowns), np.nan)
    problem.rhs(0.0, u, found)
    monkeypatch.setattr(evaluation, "_with_equals", lambda some, _: [(one, None) for one in some])
    other.rhs(0.0, u, expected)
    np.testing.assert_array_equal(found, expected)
    (parts,) = problem.system._field_terms._axes
    steps = parts.evaluate._steps
    texts = [node.text() for _, node, ufunc, equal, _ in steps if ufunc is not None or not equal]
    assert len(texts) < len(steps)
    assert max(map(texts.count, texts)) <= 2  # a field, and what of it is resolved


def test_what_is_repeated_has_the_terms_that_it_changes(monkeypatch):
    """So that threads that make it at the same time have nothing in common."""
    problem = make("two-stream", 3, 1)
    made, calls = [], []

    class Repeated:
        def __init__(self, work, sizes, dtype):
            made.append(work)

        @contextmanager
        def turn(self):
            calls.append("begin")
            yield
            calls.append("end")

    fake = SimpleNamespace(repetition=SimpleNamespace(repeated=Repeated))
    monkeypatch.setattr(following, "backend_on", lambda device: fake)
    pairs = []
    for _ in range(2):  # as two threads would
        parts = problem.parts()
        terms = FieldTerms(parts, parts.terms)
        monkeypatch.setitem(vars(parts), "device", "cuda")
        pairs.append(Following(terms, parts, list))
    assert [work._terms for work in made] == [pair.terms for pair in pairs]
    assert pairs[0].terms is not pairs[1].terms
    monkeypatch.setattr(pairs[0].terms, "note_replay", lambda: calls.append("noted"))
    with pairs[0].turn():
        calls.append("work")
    assert calls == ["begin", "work", "end", "noted"]
