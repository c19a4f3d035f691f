"""Iterations of GMRES with each preconditioner: ``python -m benchmarks.preconditioners``."""

import time
import warnings
from functools import partial

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, eye_array
from scipy.sparse.linalg import LinearOperator, spilu, splu
from scipy.special import erf

import batchkron as bk
from batchkron.arrays import to_host
from batchkron.operators import on_device
from batchkron.problems import PDE, Axis, Dirichlet, Inflow, NoFlux
from batchkron.problems.statement.terms import div, grad, laplacian, mass
from batchkron.solvers import gmres, preconditioners
from batchkron.solvers.preconditioners import CombinationPreconditioner
from benchmarks import hard_equations as equations
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, recorded, save
from benchmarks.core.tables import head, row
from benchmarks.core.timing import seconds_of, waiter

RTOL, RESTART, MAX_ITERATIONS = 1e-6, 50, 400
STEPS = 10  # implicit steps that are timed
ROUNDS = 3  # of the steps: the first one compiles and captures what the others repeat
TIMED = (
    ("bump 100", equations.bump(), 7),
    ("wind", equations.wind(), 7),
    ("bump 100, 3-D", equations.bump(100.0, 3), 4),
    ("oblique, 3-D", equations.oblique(3), 4),
)


def _on(name, pde, level, c=1.0, grid="sparse"):
    """A name, a level, the c of I - c A, and what makes the problem."""
    how = {"grid": grid, "level": level} if isinstance(grid, str) else {"grid": grid}
    return name, level, c, partial(pde.discretize, degree=2, **how)


EQUATIONS = {  # by the number of dimensions
    "sin8": equations.sin8,
    "bump 100": lambda d: equations.bump(100.0, d),
    "bump 10⁴": lambda d: equations.bump(1e4, d),
    "box": equations.box,
    "oblique": equations.oblique,
    "wind": equations.wind,
}
STILL = [name for name in EQUATIONS if name != "wind"]


def _in(dimensions, levels, names, c=1.0):
    suffix = "" if dimensions == 2 else f", {dimensions}-D"
    made = {name: EQUATIONS[name](dimensions) for name in names}
    return [_on(f"{n}{suffix}", pde, level, c) for n, pde in made.items() for level in levels]


def cases():
    """Yield the rows of the table of counts."""
    yield from _in(2, (4, 5, 6), STILL)
    for c in (0.1, 1.0):
        yield from _in(2, (4, 5, 6), ["wind"], c)
    yield from (_on("bump 100, full grid", equations.bump(), k, grid="full") for k in (3, 4, 5))
    yield from (*_in(3, (4,), STILL), *_in(4, (3,), STILL), *_in(3, (3, 4), ["wind"]))
    for shape in equations.SHAPES:
        grid = equations.adapted_grid(shape, 6, 5e-4)
        for name, pde in (("diffusion", equations.diffusion()), ("bump 100", equations.bump())):
            yield from (_on(f"{name}, adapted: {shape}", pde, 6, c, grid) for c in (1.0, 0.005))
    for amplitude in (1e-12, 1e-9, 1e-6, 1e-3):
        yield _on(f"bump {amplitude:g}", equations.bump(amplitude), 5)


def large_cases():
    """Yield the rows of the table of finer grids, of which `auto` alone is counted."""
    few = [name for name in STILL if name != "bump 10⁴"]
    yield from (*_in(2, (7, 8), list(EQUATIONS)), *_in(3, (5,), few), *_in(4, (4,), few))


CANDIDATES = {
    "additive": partial(CombinationPreconditioner, local="factorised"),
    "multiplicative": partial(
        CombinationPreconditioner, local="factorised", composition="multiplicative"
    ),
    "symmetric": partial(CombinationPreconditioner, local="factorised", composition="symmetric"),
    "eigenvectors": partial(CombinationPreconditioner, composition="symmetric"),
    "block Jacobi": preconditioners.block_jacobi,
}


def solved(problem, c, M):
    """Return GMRES's result for (I - c A) x = b with b random."""
    A, b = problem.operator, np.random.default_rng(0).standard_normal(problem.unknowns)
    B = bk.Identity(problem.unknowns) - c * A
    return gmres(B, b, M=M, rtol=RTOL, restart=RESTART, maxiter=MAX_ITERATIONS // RESTART)


def counted(problem, c, M):
    """Return GMRES's iterations, and its products with A and those of M; or that it fails."""
    result = solved(problem, c, M)
    if not result.converged:
        return f"> {MAX_ITERATIONS}"
    inside = max(0, len(getattr(M, "order", ())) - 1)
    products = result.applications + inside * result.preconditioner_applications
    return f"{result.iterations} / {products}"


def print_counts(most, only="", *, large=False):
    """Print the table of iterations and products, and return its figures."""
    others = {} if large else CANDIDATES
    keys = ["equation", "c", "level", "unknowns", "auto", *others, "numbers", "auto is"]
    print("GMRES(50), ‖b - B x‖ ≤ 1e-6 ‖b‖, B = I - c A; iterations / products with A")
    print(head(keys))
    found = []
    for name, level, c, make_problem in large_cases() if large else cases():
        if level > most or only not in name:
            continue
        problem = make_problem()
        A = problem.operator
        M = preconditioners.make("auto", A, c)
        made = [M, *(make(A, c) for make in others.values())]
        counts = [counted(problem, c, own) for own in made]
        numbers = getattr(M, "numbers", 0)
        if not large:  # relative to the numbers of the assembled operator
            stored, terms = preconditioners.factorised.stored_numbers, A.kronecker_terms()
            keeps = getattr(M, "keeps_factors", False)
            numbers = f"{numbers / stored(terms):.2f}" if keeps else "–"
        way = M.describe().splitlines()[1].strip()
        line = [name, c, level, problem.unknowns, *counts, numbers, way]
        print(row(line), flush=True)
        found.append(dict(zip(keys, line, strict=True)))
    return found


def times():
    """Yield processor seconds of set-up and the steps beside SciPy's, with c = 1, one thread."""
    for name, pde, level in TIMED[::2]:
        problem = pde.discretize(level=level, degree=2)
        B = assembled(problem)
        for solver, make in SOLVERS.items():
            begin = time.process_time()
            product, M, numbers = make(problem, B)
            setup = time.process_time() - begin
            u = np.random.default_rng(0).standard_normal(problem.unknowns)
            begin = time.process_time()
            _, iterations = steps(product, M, u)
            found = {"equation": name, "level": level, "solver": solver, "setup": setup}
            found |= {"steps": time.process_time() - begin, "iterations": iterations}
            yield {**found, "numbers": numbers}


def assembled(problem):
    """Return I - A as a sparse matrix."""
    A = problem.operator.to_dense()
    A[np.abs(A) <= 1e-13 * np.abs(A).max()] = 0.0
    return csr_matrix(eye_array(problem.unknowns) - csr_matrix(A))


def steps(B, M, u):
    """Return the state after the steps B u⁺ = u by GMRES, or u⁺ = M u without B; iterations."""
    iterations = 0
    for _ in range(STEPS):
        if B is None:
            u = M(u)
            continue
        result = gmres(B, u, M=M, rtol=RTOL, restart=RESTART, maxiter=8)
        assert result.converged
        u, iterations = result.x, iterations + result.iterations
    return u, iterations


def _incomplete(problem, B):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        factors = spilu(csc_matrix(B), drop_tol=1e-3)
    M = LinearOperator(B.shape, matvec=factors.solve, dtype=np.float64)
    return B, M, factors.nnz


def _ours(problem, B):
    M = preconditioners.make("auto", problem.operator, 1.0)
    return bk.Identity(problem.unknowns) - problem.operator, M, M.numbers


def _complete(problem, B):
    factors = splu(csc_matrix(B), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
    return None, factors.solve, factors.nnz


SOLVERS = {"auto": _ours, "spilu(1e-3)": _incomplete, "splu": _complete}


def on_places(device, most, only=""):
    """Yield the seconds of set-up and the steps (I - A) u⁺ = u on the host and a device."""
    for name, pde, level in TIMED:
        if level > most or only not in name:
            continue
        states = []
        for place in dict.fromkeys(("cpu", device)):
            own = _timed_on(pde, level, place)
            states.append(own.pop("state"))
            apart = float(np.linalg.norm(states[-1] - states[0]) / np.linalg.norm(states[0]))
            yield {"equation": name, "level": level, "on": place} | own | {"apart": apart}


def _timed_on(pde, level, place):
    """Return the seconds on a device, the iterations of all steps, and the last state."""
    problem = pde.discretize(level=level, degree=2)
    A = (problem if place == "cpu" else problem.to(place)).operator
    start = on_device(np.random.default_rng(0).standard_normal(problem.unknowns), place)
    B = bk.Identity(problem.unknowns).to(place) - A
    made = []
    wait = waiter(place)
    setup = seconds_of(lambda: made.append(preconditioners.make("auto", A, 1.0)), wait=wait)
    first, *seconds = (
        seconds_of(lambda: made.append(steps(B, made[0], start)), wait=wait) for _ in range(ROUNDS)
    )
    u, iterations = made[-1]
    found = {"unknowns": problem.unknowns, "setup": setup, "first": first, "steps": min(seconds)}
    return {**found, "iterations": iterations, "state": to_host(u, "u")}


X, Y, Z = (Axis(name, 0, 1) for name in "xyz")


def in_a_box(name, axes, terms, ends=None):
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


def variable():
    """Return f_t = ∇·(k ∇f), k = (1 + ¾ sin 2πx) (1 + 10 y²)."""

    def along_x(s):
        return 1 + 0.75 * np.sin(2 * np.pi * s)

    def along_y(s):
        return 1 + 10 * s**2

    terms = [
        div(X) @ mass(X, along_x) @ grad(X) @ mass(Y, along_y),
        mass(X, along_x) @ div(Y) @ mass(Y, along_y) @ grad(Y),
    ]
    return in_a_box("variable coefficients", [X, Y], terms)


def lenard_bernstein():
    """Return f_t = 100 ∂((v - u) f + θ ∂f/∂v)/∂v, u = 0.3 sin x, θ = 1 + 0.2 cos x."""
    x, v = axes = [Axis("x", -np.pi, np.pi), Axis("v", -6, 6)]
    terms = [
        100.0 * div(v, lambda s: s),
        div(v, 1.0, others={x: lambda s: -30.0 * np.sin(s)}),
        mass(x, lambda s: 100.0 + 20.0 * np.cos(s)) @ div(v) @ grad(v),
    ]
    ends = {x: "periodic", v: NoFlux()}
    return PDE(axes, terms, boundary=ends, initial=0.0, name="collisions (x, v)")


def runaway():
    """Return the collisions of runaway electrons in momentum p and pitch z = cos θ."""
    p, z = axes = [Axis("p", 0.1, 10), Axis("z", -1, 1)]

    def chandrasekhar(s):
        return (erf(s) - 2 * s * np.exp(-(s**2)) / np.sqrt(np.pi)) / (2 * s**2)

    def scattering(s):
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


CASES = (
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


def counts(most):
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


def main(words=None):
    parser = parser_of(__doc__, "device", "json", device=None)
    parser.add_argument("--most", type=int, default=99, help="the finest level")
    parser.add_argument("--hard", action="store_true", help="equations with contrast, and others")
    parser.add_argument("--large", action="store_true", help="hard equations on finer grids")
    parser.add_argument("--only", default="", help="hard equations whose names have this")
    parser.add_argument("--peers", action="store_true", help="times beside SciPy's ILU and LU")
    options = parser.parse_args(words)
    about = {"rtol": RTOL}
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
