"""repr and describe: short however large a value is, in the terms of its constructor."""

import dataclasses

import numpy as np
import pytest

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Neumann,
    Separable,
    SparseGrid,
    div,
    gallery,
    grad,
    laplacian,
    make,
    mass,
    time,
)

X, V = Axis("x", 0.0, 1.0), Axis("v", -2.0, 2.0)


def is_short(text, lines=10):
    return text.count("\n") < lines and max(map(len, text.split("\n"))) <= 200


@pytest.mark.parametrize("name", gallery.names())
def test_every_value_of_the_gallery_fits_in_ten_lines(name):
    pde, problem = gallery.get(name).pde, make(name, level=3, degree=1)
    values = [pde, problem, problem.grid, problem.exact, *pde.terms, *problem.terms]
    for value in [*values, *problem.sources, *(m for t in problem.terms[:1] for m in t.modes)]:
        assert is_short(repr(value)), repr(value)
    assert repr(pde).startswith(f"<PDE '{name}': ")
    assert repr(problem).startswith(f"<Problem '{name}': {problem.unknowns} unknowns, degree 1, ")


def test_a_pde_of_many_terms_and_a_long_table():
    table = time.spline(np.arange(1000.0), np.sin(np.arange(1000.0)))
    terms = [*[*laplacian([X, V])] * 20, div(X, time=table)]
    pde = PDE(
        [X, V], terms[::-1], boundary={X: "periodic", V: (Dirichlet(2.0), Neumann())}, initial=0.0
    )
    assert is_short(repr(pde))
    assert "… 37 more terms" in repr(pde)
    assert "boundary: x Periodic, v Dirichlet and Neumann" in repr(pde)
    problem = pde.discretize(level=2, degree=1)
    assert all(is_short(repr(term), 1) for term in problem.terms)


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (div(X), "div(x)"),
        (-div(X, 2.0), "-1 * div(x, 2)"),
        (0.1 * div(X) @ grad(X, np.cos), "0.1 * div(x) @ grad(x, cos)"),
        (div(X, -1, others={V: lambda s: s}), "mass(v, <lambda>) @ div(x, -1)"),
        (div(X, flux="central", boundary="neumann"), "div(x, flux='central', boundary='Neumann')"),
        (mass(X, time=time.constant(3.0)), "3 * mass(x)"),
        (2 * mass(X, time=time.sin(2.0)), "2 * Sine(omega=2.0, phase=0.0) * mass(x)"),
    ],
)
def test_terms_read_as_they_are_written(term, text):
    assert repr(term) == f"<Term {text}>"


def test_grids_say_kind_levels_and_cells():
    assert repr(SparseGrid.sparse([6, 5])) == (
        "<SparseGrid: sparse, finest levels 6, 5, 144 cells>"
    )
    assert repr(SparseGrid.full([0])) == "<SparseGrid: full, finest levels 0, 1 cell>"


def test_a_problem_describes_itself():
    pde = PDE(
        [X, V],
        [div(X, -1.0, others={V: lambda s: s}), mass(V, time=time.exp(-1.0))],
        boundary={X: "periodic", V: "neumann"},
        initial=1.0,
        sources=Separable(t=time.sin(1.0)),
        name="streaming",
        units={"t": "s", "x": "m"},
        t0=0.5,
    )
    problem = pde.discretize(level=[3, 2], degree=1, method="rk4", dt=0.01, until=2.0)
    rows = dict(line.split(None, 1) for line in problem.describe().splitlines())
    assert problem.describe().splitlines()[:3] == [
        "name            streaming",
        "axes            x from 0 to 1 m",
        "                v from -2 to 2",
    ]
    assert rows["grid"] == f"sparse, finest levels 3, 2, {problem.grid.num_cells} cells"
    assert rows["unknowns"] == str(problem.unknowns)
    assert rows["degree"] == "1"
    assert rows["terms"].endswith("varying in time")
    assert rows["sources"] == "1, varying in time"
    assert rows["exact"] == "solution  not known"
    assert rows["time"] == "from 0.5 to 2 s"
    assert rows["stepper"] == "rk4, dt = 0.01"
    assert rows["operators"] == "sweep, on the cpu"
    listed = problem.with_form("batch").describe()
    assert listed.endswith("batch, on the cpu")
    assert "_groups" not in problem.__dict__, "no operator is assembled for it"


def test_provenance_that_is_no_json_is_described():
    values = {"code": "mine", "mesh": np.arange(1000.0), "one": 1, "kind": object}
    problem = dataclasses.replace(make("diffusion-1d", level=2, degree=1), provenance=values)
    lines = problem.describe().splitlines()
    (first,) = [k for k, line in enumerate(lines) if line.startswith("provenance")]
    found = [line[15:].strip() for line in lines[first : first + 4]]
    assert found[::2] == ["code: mine", "one: 1"]
    assert found[1].startswith("mesh: array([")
    assert found[1].endswith("…")
    assert found[3] == "kind: <class 'object'>"
    assert is_short(problem.describe(), 25)
