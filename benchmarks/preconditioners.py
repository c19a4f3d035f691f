"""Iterations of GMRES with each preconditioner: ``python -m benchmarks.preconditioners``."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.special import erf

from batchkron.problems import PDE, Axis, Dirichlet, Inflow, NoFlux
from batchkron.problems.statement.terms import div, grad, laplacian, mass
from batchkron.solvers import preconditioners
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, recorded, save
from benchmarks.hard_preconditioning import (
    MAX_ITERATIONS,
    RTOL,
    on_places,
    print_counts,
    solved,
    times,
)

X, Y, Z = (Axis(name, 0, 1) for name in "xyz")


def in_a_box(name: str, axes: Sequence[Axis], terms: Sequence[Any], ends: Any = None) -> PDE:
    """An equation that is zero on the boundary of the unit square or cube, or as ``ends`` says."""
    return PDE(list(axes), list(terms), boundary=ends or Dirichlet(), initial=0.0, name=name)


DIFFUSION = in_a_box("diffusion", [X, Y], laplacian([X, Y]))
DIFFUSION_3D = in_a_box("diffusion, 3-D", [X, Y, Z], laplacian([X, Y, Z]))
ANISOTROPIC = in_a_box("anisotropic, 10⁴", [X, Y], [1e4 * div(X) @ grad(X), div(Y) @ grad(Y)])
# 0.01 Δf - v·∇f, v = (1, 0.5), entering at the left and lower sides
ENTERING = [div(axis, -v, boundary=Inflow()) for axis, v in ((X, 1.0), (Y, 0.5))]
MOVING = in_a_box("advection-diffusion", [X, Y], [*laplacian([X, Y], 0.01), *ENTERING])
ON_A_TORUS = in_a_box(
    "advection, periodic",
    [X, Y],
    [*laplacian([X, Y], 1e-3), div(X, -1.0), div(Y, -1.0)],
    "periodic",
)


def variable() -> PDE:
    """Return f_t = ∇·(k ∇f), k = (1 + ¾ sin 2πx) (1 + 10 y²)."""

    def along_x(s: np.ndarray) -> np.ndarray:
        return 1 + 0.75 * np.sin(2 * np.pi * s)

    def along_y(s: np.ndarray) -> np.ndarray:
        return 1 + 10 * s**2

    terms = [
        div(X) @ mass(X, along_x) @ grad(X) @ mass(Y, along_y),
        mass(X, along_x) @ div(Y) @ mass(Y, along_y) @ grad(Y),
    ]
    return in_a_box("variable coefficients", [X, Y], terms)


def lenard_bernstein() -> PDE:
    """Return f_t = 100 ∂((v - u) f + θ ∂f/∂v)/∂v, u = 0.3 sin x, θ = 1 + 0.2 cos x."""
    x, v = axes = [Axis("x", -np.pi, np.pi), Axis("v", -6, 6)]
    terms = [
        100.0 * div(v, lambda s: s),
        div(v, 1.0, others={x: lambda s: -30.0 * np.sin(s)}),
        mass(x, lambda s: 100.0 + 20.0 * np.cos(s)) @ div(v) @ grad(v),
    ]
    ends = {x: "periodic", v: NoFlux()}
    return PDE(axes, terms, boundary=ends, initial=0.0, name="collisions (x, v)")


def runaway() -> PDE:
    """Return the collisions of runaway electrons in momentum p and pitch z = cos θ."""
    p, z = axes = [Axis("p", 0.1, 10), Axis("z", -1, 1)]

    def chandrasekhar(s: np.ndarray) -> np.ndarray:
        return (erf(s) - 2 * s * np.exp(-(s**2)) / np.sqrt(np.pi)) / (2 * s**2)

    def scattering(s: np.ndarray) -> np.ndarray:
        return (1 + erf(s) - chandrasekhar(s)) / (2 * s**3)

    terms = [
        div(p) @ mass(p, lambda s: chandrasekhar(s) / s) @ grad(p),
        div(p, lambda s: 2 * chandrasekhar(s), boundary=Inflow()),
        mass(p, scattering) @ div(z) @ mass(z, lambda s: 1 - s**2) @ grad(z),
    ]
    ends = {p: NoFlux(), z: NoFlux()}
    volume = {p: lambda s: s**2}
    name = "collisions (p, z)"
    return PDE(axes, terms, boundary=ends, initial=0.0, volume=volume, name=name)


CASES: tuple[tuple[PDE, float, tuple[int, ...]], ...] = (
    (DIFFUSION, 0.005, (4, 5, 6, 7, 8)),
    (DIFFUSION_3D, 0.005, (3, 4, 5)),
    (ANISOTROPIC, 0.005, (4, 6, 8)),
    (MOVING, 0.05, (4, 5, 6, 7, 8)),
    (ON_A_TORUS, 0.05, (4, 6, 8)),
    (variable(), 0.005, (4, 6, 7)),
    (lenard_bernstein(), 0.01, (4, 6, 7)),
    (runaway(), 0.5, (4, 5, 6, 7, 8)),
)
NAMES = (
    *("none", "block-jacobi", "kronecker-product", "kronecker-sum", "combination"),
    *("multiplicative-combination", "symmetric-combination"),
)


def counts(most: int) -> Iterator[dict[str, Any]]:
    """Yield GMRES's iterations with all preconditioners; None beyond the most."""
    for pde, c, levels in CASES:
        for level in (one for one in levels if one <= most):
            problem = pde.discretize(level=level, degree=2)
            A, found = problem.operator, {}
            for name in NAMES:
                result = solved(problem, c, preconditioners.make(name, A, c))
                found[name] = int(result.iterations) if result.converged else None
            case = {"equation": pde.name, "c": c, "level": level, "degree": 2}
            yield {**case, "unknowns": problem.unknowns, "iterations": found}


def main(words: list[str] | None = None) -> None:
    parser = parser_of(__doc__, "device", "json", device=None)
    parser.add_argument("--most", type=int, default=99, help="the finest level")
    parser.add_argument("--hard", action="store_true", help="equations with contrast, and others")
    parser.add_argument("--large", action="store_true", help="hard equations on finer grids")
    parser.add_argument("--only", default="", help="hard equations whose names have this")
    parser.add_argument("--peers", action="store_true", help="times beside SciPy's ILU and LU")
    options = parser.parse_args(words)
    about: dict[str, Any] = {"rtol": RTOL}
    if options.device:
        about = {"machine": machine(options.device)}
        found = recorded(on_places(options.device, options.most, options.only))
    elif options.hard or options.large:
        found = print_counts(options.most, options.only, large=not options.hard)
    elif options.peers:
        found = recorded(times())
    else:
        print(f"GMRES(50), ‖b - A x‖ ≤ {RTOL:g} ‖b‖, b random, degree 2, sparse grid, I - c A")
        about |= {"restart": 50, "most": MAX_ITERATIONS}
        found = recorded(counts(options.most))
    save(options.json, {**about, "cases": found})


if __name__ == "__main__":
    main()
