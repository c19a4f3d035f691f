"""Arguments of a PDE that contradict each other raise or warn; the text gives their values."""

import functools
import math
import warnings

import numpy as np
import pytest

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Inflow,
    Neumann,
    NoFlux,
    Separable,
    div,
    gallery,
    grad,
    laplacian,
    mass,
    penalty,
    pointwise,
    time,
)

X, Y = Axis("x", 0.0, 1.0), Axis("y", -1.0, 1.0)


def itself(s):
    return s


def wave(s):
    return np.cos(np.pi * s)


def parabola(s):
    return s * (1 - s)


def pde(exact, boundary, terms=None, axes=(X,), **more):
    return PDE(list(axes), terms or laplacian(axes), boundary=boundary, exact=exact, **more)


ZERO = (Dirichlet(0.0), Neumann())

REFUSED = {
    "x on a circle": (
        lambda: pde(Separable(x=itself), "periodic"),
        "exact is 0 at the left and 1 at the right end of the periodic axis 'x', t = 0: a jump of "
        "1.0e",
    ),
    "x on a circle, as a function": (
        lambda: pde(lambda x, t: x + t, "periodic"),
        "exact is 0 at the left and 1 at the right end of the periodic axis 'x'",
    ),
    "a jump on the second axis": (
        lambda: pde(
            Separable(x=2.0, y=np.exp, t=time.sin(1.0)),  # is zero at t0
            "periodic",
            [div(X), div(Y)],
            (X, Y),
        ),
        "at the right end of the periodic axis 'y'",
    ),
    "walls of zero": (
        lambda: pde(Separable(x=wave), "dirichlet"),
        "exact is 1 at the left end of axis 'x', t = 0, where Dirichlet gives 0: off by 1.0e",
    ),
    "a wall of a number": (
        lambda: pde(Separable(x=np.exp), (Dirichlet("from exact"), Dirichlet(2.0))),
        "exact is 2.71828 at the right end of axis 'x', t = 0, where Dirichlet gives 2: off by",
    ),
    "a wall in two dimensions": (
        lambda: pde(
            lambda x, y, t: np.exp(-t) * np.sin(np.pi * x) * (1 + y),
            {"x": "dirichlet", "y": (Dirichlet(), Dirichlet(Separable(x=itself)))},
            axes=(X, Y),
        ),
        "at the right end of axis 'y', t = 0, where Dirichlet gives",
    ),
    "inflow": (
        lambda: pde(Separable(x=np.cos), (Dirichlet(0.5), Neumann()), div(X, -1.0)),
        "exact is 1 at the left end of axis 'x', t = 0, where Dirichlet gives 0.5",
    ),
    "Inflow": (
        lambda: pde(lambda x, t: 2 + np.cos(x - t), "inflow", div(X, -1.0)),
        "exact is 3 at the left end of axis 'x', t = 0, where Inflow gives 0: off by 1.0e",
    ),
    "Inflow on a part of an end": (
        lambda: pde(
            lambda x, y, t: 2 + np.cos(x - y * t),
            {X: Inflow(3.0), Y: "neumann"},
            div(X, -1.0, others={Y: itself}),
            (X, Y),
        ),
        "at the right end of axis 'x', t = 0, where Inflow gives 3",
    ),
    "a factor's own value": (
        lambda: pde(Separable(x=np.exp), "neumann", grad(X, -1.0, boundary=ZERO)),
        "exact is 1 at the left end of axis 'x', t = 0, where Dirichlet gives 0",
    ),
    "a chain's own value": (
        lambda: pde(
            Separable(x=lambda s: 1 + s),
            "neumann",
            div(X, boundary=Neumann()) @ grad(X, boundary=Dirichlet(0.0)),
        ),
        "exact is 1 at the left end of axis 'x', t = 0, where Dirichlet gives 0",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_exact_solutions_that_are_none_are_refused(case):
    make, text = REFUSED[case]
    with pytest.raises(ValueError, match="The run goes to another solution; give") as caught:
        make().discretize(2, 1)
    assert text in str(caught.value)


def mixed(k):
    return [*laplacian([X, Y]), k * div(X) @ grad(Y), k * div(Y) @ grad(X)]


ENDS = {X: Neumann(), Y: Dirichlet("from exact")}


def slanted(k):
    """Return cos k(y - x/2), whose flux f_x + f_y/2 is zero."""
    return Separable(x=lambda s: np.cos(0.5 * k * s), y=lambda s: np.cos(k * s)) + Separable(
        x=lambda s: np.sin(0.5 * k * s), y=lambda s: np.sin(k * s)
    )


SLANTED = slanted(np.pi)

WARNED = {
    "a kink on a circle": (
        lambda: pde(Separable(x=parabola), "periodic"),
        "the slope of exact is 1 at the left and -1 at the right end of the periodic axis 'x'",
    ),
    "a tail": (
        lambda: pde(Separable(x=lambda s: np.exp(-6 * s)), (Dirichlet(1.0), Dirichlet())),
        "exact is 0.00247875 at the right end of axis 'x', t = 0",
    ),
    "a tail on a circle": (
        lambda: pde(Separable(x=lambda s: np.exp(-30 * (s - 0.6) ** 2)), "periodic", div(X)),
        "exact is 2.03995e-05 at the left and 0.00822975 at the right end",
    ),
    "a slope": (
        lambda: pde(Separable(x=np.exp), (Dirichlet(1.0), Neumann(2.0)), laplacian(X, 0.5)),
        "exact has a flux that differs by 0.359141 from that which the boundary gives at the right "
        "end of axis 'x', t = 0",
    ),
    "the share of a mixed derivative": (
        lambda: pde(Separable(x=wave, y=wave), ENDS, mixed(0.5), (X, Y)),
        "end of axis 'x'",
    ),
    "a time in between": (
        lambda: pde(lambda x, t: 1 + np.sin(np.pi * t) ** 2 + 0 * x, Dirichlet(1.0)),
        "where Dirichlet gives 1: off by",
    ),
    "another initial state": (
        lambda: pde(
            Separable(x=wave, t=time.cos(1.0)),
            "neumann",
            initial=Separable(x=lambda s: 3 * wave(s)),
        ),
        "at most 1. The run begins at another solution",
    ),
}


@pytest.mark.parametrize("case", WARNED)
def test_exact_solutions_that_are_off_are_warned_of(case):
    make, text = WARNED[case]
    with pytest.warns(UserWarning, match="The run (goes to|begins at) another") as caught:
        make().discretize(2, 1, until=100.0, method="ssp-rk3", dt=1e-4)
    assert any(text in str(each.message) for each in caught)
    assert all(each.filename == __file__ for each in caught)


SOUND = {
    "transport of a kink": lambda: pde(Separable(x=parabola), "periodic", div(X)),
    "a flux of two parts": lambda: pde(SLANTED, ENDS, mixed(0.5), (X, Y)),
    "a flux of two parts, exchanged": lambda: pde(
        SLANTED, ENDS, [*laplacian([X, Y]), 0.5 * grad(Y) @ div(X), 0.5 * grad(X) @ div(Y)], (X, Y)
    ),
    "no coefficient at the ends": lambda: pde(
        Separable(x=np.exp), "neumann", div(X) @ mass(X, parabola) @ grad(X)
    ),
    "no value is taken": lambda: pde(
        Separable(x=np.exp), "dirichlet", [div(X, parabola), mass(X, np.exp)]
    ),
    "no derivative": lambda: pde(Separable(x=itself), "periodic", mass(X, itself)),
    "outflow": lambda: pde(Separable(x=np.exp), (Dirichlet(1.0), Neumann()), div(X, -1.0)),
    "data in time": lambda: pde(
        Separable(x=np.exp, t=time.cos(3.0)),
        (Dirichlet(Separable(t=time.cos(3.0))), Neumann(Separable(x=np.exp, t=time.cos(3.0)))),
    ),
    "not defined at the ends": lambda: pde(
        lambda x, t: np.sin(np.pi * x) * np.log(x) * np.log1p(-x), "dirichlet"
    ),
    "not called at the ends": lambda: pde(strict, "dirichlet"),
    "inflow and outflow": lambda: pde(
        lambda x, y, t: np.exp(-t) * (1 + y),
        {X: (Inflow(Separable(y=lambda s: 1 + s)), Neumann()), Y: "neumann"},
        [div(X, 1.0, others={Y: lambda s: 2 + s})],
        (X, Y),
    ),
    "a zero by rounding": lambda: pde(
        Separable(x=np.exp), "inflow", div(X, lambda s: np.sin(np.pi * s))
    ),
    "a flux of two parts, each with its own ends": lambda: pde(
        Separable(x=lambda s: np.exp(-s)),
        "neumann",
        [div(X, boundary=Dirichlet()), div(X, boundary=Dirichlet()) @ grad(X, boundary=Neumann())],
    ),
    "closed collisions between open ends": lambda: pde(
        Separable(x=np.exp),
        (Inflow("from exact"), Inflow(5.0)),
        [div(X, -1.0), div(X, boundary=NoFlux()) @ grad(X)],
    ),
    "a closed chain between given values": lambda: pde(
        Separable(x=np.exp),
        "dirichlet",
        [div(X, parabola), div(X, boundary=NoFlux()) @ grad(X)],
    ),
    "near enough": lambda: pde(
        Separable(x=wave), "neumann", initial=Separable(x=lambda s: 1.01 * wave(s))
    ),
    "a fast wave": lambda: pde(Separable(x=lambda s: np.cos(61 * np.pi * s)), "neumann"),
    "a fast wave on a circle": lambda: pde(
        Separable(x=lambda s: np.sin(62 * np.pi * s)), "periodic"
    ),
    "too fast a wave": lambda: pde(Separable(x=lambda s: np.cos(4001 * np.pi * s)), "neumann"),
    "a fast wave and its slope": lambda: pde(
        Separable(x=fast), (Neumann(Separable(x=fast)), Neumann("from exact"))
    ),
    "a fast wave across": lambda: pde(slanted(61 * np.pi), ENDS, mixed(0.5), (X, Y)),
    "a square wave": lambda: pde(square_wave, "periodic", div(X, -1.0)),
    "a table": lambda: pde(
        Separable(x=np.exp, t=time.spline([0.0, 1e-9, 2e-9, 3e-9], [1.0, 2.0, 1.0, 2.0])),
        (Dirichlet("from exact"), Neumann("from exact")),
    ),
}


def fast(s):
    return np.sin(61 * np.pi * s)


def square_wave(x, t):
    return np.sign(np.sin(2 * np.pi * (x - t)))


def strict(x, t):
    if np.any((x <= 0) | (x >= 1)):
        raise ArithmeticError("outside")
    return np.sin(np.pi * x)


@pytest.mark.parametrize("case", SOUND)
def test_sound_problems_are_left_alone(case):
    until = 1e-9 if case == "a table" else 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert SOUND[case]().discretize(2, 1, until=until).unknowns > 0


def test_walls_are_not_told_to_give_a_slope():
    with pytest.warns(UserWarning, match="exact has a flux that differs by") as caught:
        pde(Separable(x=np.exp), "no-flux").discretize(2, 1)
    for each in caught:
        assert "give an exact solution without a flux there, or the end" in str(each.message)
        assert "Neumann" not in str(each.message)


def test_a_formula_that_ends_to_hold_is_warned_of():
    def pulse(x, t):
        return np.exp(-300 * (x - 0.5 - t) ** 2)

    moving = pde(pulse, "periodic", div(X, -1.0))
    moving.discretize(4, 2, until=0.2)
    with pytest.warns(UserWarning, match=r"the periodic axis 'x', t = 0.5: a jump of 1.0e\+00"):
        moving.discretize(4, 2, until=0.5)


@pytest.mark.parametrize("name", ["pitch-angle-c", "runaway-collisions", "advection-1d"])
def test_problems_of_the_gallery_are_sound(name):
    entry = gallery.get(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        entry.make(1)


ONE_PLACE = r"is 0 at 0 and 1 at 1, but 'x' is periodic, so that these are one place"


@pytest.mark.parametrize(
    ("terms", "more", "text"),
    [
        (div(X, itself), {}, r"coefficient of div along 'x' in terms\[0\] " + ONE_PLACE),
        ([div(X), 2.0 * grad(X, itself)], {}, r"of grad along 'x' in terms\[1\] " + ONE_PLACE),
        (penalty(X, itself), {}, ONE_PLACE),
        (laplacian(X, lambda s: 1 + s), {}, r"is 1 at 0 and 2 at 1"),
        (div(X), {"volume": {X: lambda s: 1 + s}}, r"terms\[0\] times the volume element is 1 at"),
    ],
)
def test_coefficients_that_jump_where_an_axis_closes_are_refused(terms, more, text):
    with pytest.raises(ValueError, match=text) as caught:
        PDE([X], terms, boundary="periodic", initial=0.0, **more)
    assert "do not conserve" in str(caught.value)


def test_coefficients_that_may_jump():
    """A mass term may jump, as it has no flux; the form that the error text advises conserves."""
    for term in (
        mass(X, itself),
        div(Y, others={X: itself}),
        div(X, lambda s: np.sin(2 * np.pi * s)),
    ):
        PDE([X, Y], term, boundary={X: "periodic", Y: "neumann"}, initial=0.0)
    advised = PDE(
        [X], div(X) @ mass(X, lambda s: 1 + s), boundary="periodic", initial=0.0
    ).discretize(3, 2)
    A = advised.operator.to_dense()
    assert np.abs(A[0]).max() < 1e-12 * np.abs(A).max()  # the integral of every state is constant
    assert np.linalg.norm(A) > 1.0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"initial": [0.0, 1.0]},
            r"initial is a list of 2 entries, \[0.0, 1.0\]; expected one function",
        ),
        ({"initial": (Separable(x=wave),)}, "initial is a tuple of 1 entries"),
        ({"exact": [Separable(x=wave), 1.0]}, "exact is a list of 2 entries"),
    ],
)
def test_lists_of_functions_are_refused(options, text):
    with pytest.raises(TypeError, match=text):
        PDE([X], laplacian(X), boundary="periodic", **options)
    with pytest.raises(TypeError, match="Neumann's data is a tuple of 2 entries"):
        Neumann((1.0, 2.0))


def test_sources_may_be_listed():
    listed = PDE([X], div(X), boundary="periodic", initial=0.0, sources=[1.0, Separable(x=wave)])
    added = PDE([X], div(X), boundary="periodic", initial=0.0, sources=Separable(x=wave) + 1.0)
    found = []
    for each in (listed, added):
        problem = each.discretize(2, 1)
        found.append(np.full(problem.unknowns, np.nan))
        problem.source(0.0, found[-1])
    np.testing.assert_allclose(*found, atol=1e-15)
    with pytest.raises(TypeError, match=r"sources\[1\] must be a number, a Separable"):
        PDE([X], div(X), boundary="periodic", initial=0.0, sources=[1.0, None])


def test_a_pde_without_terms_says_so():
    for terms in ([], (), [[], ()]):
        with pytest.raises(ValueError, match=r"terms is empty and there are no sources"):
            PDE([X], terms, boundary="periodic", initial=1.0)
    still = PDE([X], [], boundary="periodic", initial=0.0, sources=Separable(t=time.cos(1.0)))
    assert still.discretize(1, 1).terms == ()


def test_wrapped_functions_of_one_array_are_taken():
    def f(x, scale):
        return scale * x

    @functools.wraps(f)
    def double(x):
        return f(x, 2.0)

    gamma = functools.wraps(math.gamma)(np.vectorize(math.gamma))
    wrapper = functools.wraps(math.gamma)(lambda x: gamma(x))
    for function in (double, gamma, wrapper):
        assert Separable(x=function).factors["x"] is function


def test_a_run_may_begin_away_from_a_steady_state():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pde(Separable(x=wave), "neumann", initial=2.5).discretize(3)


def test_pointwise_terms_name_their_own_coefficients():
    with pytest.raises(ValueError, match=r"coefficient of div along 'x' in -1 \* div.*pointwise"):
        PDE([X], -1 * div(X, itself) @ pointwise("f", speed=1), boundary="periodic", initial=1.0)
