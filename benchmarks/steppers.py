"""Products with the operator at equal error: ``python -m benchmarks.steppers``.

Some problems of the gallery are run by a method with step-size control, at a tolerance of 1e-6, and
by third-order Runge-Kutta with the fewest equal steps whose error is no larger. The error is that
of time alone, against a run of far smaller tolerance.

A second table compares stiff methods at equal errors. A method runs a problem at tolerances of half
a decade; its products at an error are interpolated between the runs whose errors are next to it, in
logarithms. Errors are those of the last state, relative to its norm. CVODE (extra: scikit-sundae)
takes steps of BDF with GMRES, products with A in the place of difference quotients, the same
preconditioner from the right, and atol = rtol ‖u‖ / √N, which for all elements together is the
tolerance of `evolve`.

Of systems that are not linear evaluations of f are counted that `bdf` and SciPy's BDF take at the
same tolerances; of one-step methods the order is observed where the data of a stiff equation change
in time. The last table sets aims beside what was counted. Counts, no times.
"""

import importlib.util
import math
from types import SimpleNamespace

import numpy as np
from scipy.integrate import solve_ivp

from batchkron.problems import gallery
from batchkron.solvers import EvolveStatus, evolve
from batchkron.solvers.preconditioners import NamedPreconditioner
from benchmarks.core.options import parser_of
from benchmarks.core.records import recorded, save

TARGETS = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
_RTOLS = tuple(float(10.0**-power) for power in np.arange(2.0, 10.1, 0.5))
_TIGHT = {"solver": {"rtol": 1e-4}}  # of the one-step methods' solves
_MAX_PRODUCTS = 5000  # of a run after which there are none of smaller tolerance
_KRYLOV_DIMENSION = 5  # CVODE's default

RTOL = 1e-6
METHODS = ("sdirk3", "esdirk3", "wso-sdirk3")  # whose order is observed
_RATE, _UNTIL, _STEPS = -1e6, 9.0, (80, 160)


STIFF_CASES = (  # problem, level, preconditioner, and the methods that are compared
    ("pitch-angle-c", 5, "combination", ("bdf", "esdirk3", "wso-sdirk3")),
    ("diffusion-2d", 4, "combination", ("bdf", "esdirk3")),
    ("diffusion-2d", 5, "combination", ("bdf",)),
    ("diffusion-2d", 4, "none", ("rkc2",)),
    ("continuity-2d", 4, "none", ("dop853", "dormand-prince")),
)


def rows_of(name, level, preconditioner, methods, targets=TARGETS):
    """Yield the methods of a case, CVODE's first if it is there, and their products at errors.

    None stands where no run is on both sides of an error.
    """
    problem = gallery.make(name, level=level, degree=2)
    until = problem.stepper.until
    reference = evolve(problem, until=until, method="dop853", rtol=1e-12).u

    def of(method):
        options = {"method": method}
        if method in ("bdf", "esdirk3", "wso-sdirk3"):
            options["preconditioner"] = preconditioner
        if method in ("esdirk3", "wso-sdirk3"):
            options |= _TIGHT

        def run(rtol):
            own = Counted(problem)
            found = evolve(own, until=until, rtol=rtol, raise_on_failure=True, **options)
            return found.u, own.products

        return run

    runs = {method: of(method) for method in methods}
    if importlib.util.find_spec("sksundae") is not None:
        method = "Adams" if "dop853" in methods else "BDF"
        theirs = _cvode(problem, until, reference, preconditioner, method)
        runs = {f"CVODE {method}": theirs, **runs}
    about = {"problem": name, "level": level, "preconditioner": preconditioner}
    for method, run in runs.items():
        yield {**about, "method": method, "products": _at_targets(run, reference, targets)}


def _at_targets(run, reference, targets):
    """Return the products of a method at some errors: between runs, in logarithms."""
    found = []
    for rtol in _RTOLS:
        u, products = run(rtol)
        error = float(np.linalg.norm(u - reference) / np.linalg.norm(reference))
        found.append((math.log(error), math.log(products)))
        if error < 0.1 * min(targets) or products > _MAX_PRODUCTS:
            break
    errors, logs = np.array(sorted(found)).T
    return [
        round(math.exp(float(np.interp(math.log(target), errors, logs))))
        if errors[0] <= math.log(target) <= errors[-1]
        else None
        for target in targets
    ]


def _cvode(problem, until, reference, preconditioner, method):
    """Return runs of CVODE, whose evaluations of f and products with A are counted."""
    import sksundae.cvode as cvode

    A, out = problem.operator, np.empty_like(problem.initial)
    size = float(np.linalg.norm(reference)) / math.sqrt(reference.size)
    named = NamedPreconditioner(preconditioner, np.float64)
    count, known = [0], [math.nan, None]

    def right_side(t, y, yp):
        count[0] += 1
        problem.rhs(t, np.array(y), out)
        yp[:] = out

    def product(t, y, yp, v, result):
        count[0] += 1
        result[:] = A.matvec(np.array(v))

    def inverse(t, y, yp, r, z, c, delta, side):
        if known[0] != c:
            known[:] = c, named(A, c)
        z[:] = known[1].matvec(np.array(r))

    options = {
        "method": method,
        "max_num_steps": 1_000_000,
        "linsolver": "gmres",
        "krylov_dim": _KRYLOV_DIMENSION,
        "jactimes": cvode.CVODEJacTimes(None, product),
    }
    if preconditioner != "none":
        options["precond"] = cvode.CVODEPrecond(None, inverse, "right")

    def run(rtol):
        count[0] = 0
        solver = cvode.CVODE(right_side, rtol=rtol, atol=rtol * size, **options)
        found = solver.solve([problem.t0, until], np.array(problem.initial))
        return np.array(found.y[-1]), count[0]

    return run


def _robertson(t, u):
    slow, fast = 0.04 * u[0] - 1e4 * u[1] * u[2], 3e7 * u[1] ** 2
    return np.array([-slow, slow - fast, fast])


def _van_der_pol(t, u):
    return np.array([u[1], 1000.0 * (1.0 - u[0] ** 2) * u[1] - u[0]])


SYSTEMS = (  # u' = f(t, u) from t = 0 and its end, and the tolerance of each element
    ("Robertson to 1e4", _robertson, (1.0, 0.0, 0.0), 1e4, (1e-8, 1e-12, 1e-8)),
    ("Van der Pol, 1000, to 2000", _van_der_pol, (2.0, 0.0), 2000.0, (1e-9, 1e-9)),
)


def calls_of(system):
    """Return the evaluations of f of both methods, those for Jacobians included, and the errors.

    Errors are relative, of the last state, against SciPy's Radau with rtol 1e-11.
    """
    name, f, start, until, atol = system
    count, span, u0 = [0], (0.0, until), np.array(start)

    def counted(t, u):
        count[0] += 1
        return f(t, u)

    tight = np.array(atol) * 1e-5
    reference = solve_ivp(f, span, u0, "Radau", rtol=1e-11, atol=tight).y[:, -1]

    def error(u):
        return float(np.linalg.norm(u - reference) / np.linalg.norm(reference))

    options = {"rtol": RTOL, "atol": np.array(atol)}
    ours = evolve(counted, u0=u0, until=until, method="bdf", raise_on_failure=True, **options)
    taken, count[0] = count[0], 0
    theirs = solve_ivp(counted, span, u0, "BDF", **options)
    found = {"system": name, "bdf": taken, "bdf_error": error(ours.u)}
    return {**found, "scipy": count[0], "scipy_error": error(theirs.y[:, -1])}


class _ProtheroRobinson:
    """u' = λ (u - cos t) - sin t, whose solution is cos t."""

    def __init__(self):
        self.initial, self.operator = np.ones(1), np.array([[_RATE]])

    def rhs(self, t, u, out):
        out[...] = _RATE * (u - math.cos(t)) - math.sin(t)


def observed_order(method):
    """Return log2 of the ratio of two errors, the second with steps of half the length."""
    problem, errors = _ProtheroRobinson(), []
    for steps in _STEPS:
        u = evolve(problem, until=_UNTIL, method=method, dt=_UNTIL / steps).u
        errors.append(abs(float(u[0]) - math.cos(_UNTIL)))
    return math.log2(errors[0] / errors[1])


CASES = (
    ("continuity-1d", 5, "dormand-prince", {}),
    ("continuity-2d", 4, "dormand-prince", {}),
    ("continuity-3d", 3, "dormand-prince", {}),
    ("advection-1d", 5, "ssp-rk43", {}),
    ("diffusion-1d", 5, "esdirk3", {"preconditioner": "auto", "solver": {"rtol": 1e-4}}),
    ("diffusion-2d", 4, "esdirk3", {"preconditioner": "combination", "solver": {"rtol": 1e-4}}),
    ("pitch-angle-c", 5, "esdirk3", {"preconditioner": "auto", "solver": {"rtol": 1e-4}}),
)


class Counted:
    """A problem whose products with the operator, of right-hand sides and solves, are counted."""

    def __init__(self, problem):
        self._problem, self.products = problem, 0
        self.initial, self.t0, operator = problem.initial, problem.t0, problem.operator
        self.is_linear, self.source = problem.is_linear, problem.source

        def matvec(x, out=None):
            self.products += 1
            return operator.matvec(x, out=out)

        known = {name: getattr(operator, name) for name in ("shape", "dtype", "kronecker_terms")}
        self._operator = SimpleNamespace(**known, matvec=matvec)

    def rhs(self, t, u, out):
        self.products += 1
        self._problem.rhs(t, u, out)

    def operator_at(self, t):
        return self._operator


def chosen(problem, until, method, rtol, options):
    counted = Counted(problem)
    result = evolve(
        counted, until=until, method=method, rtol=rtol, raise_on_failure=True, **options
    )
    return result.u, counted.products, result.steps


def fewest(problem, until, reference, error):
    how = {"until": until, "method": "ssp-rk3", "allow_unstable": True}

    def good(steps):
        result = evolve(problem, dt=(until - problem.t0) / steps, **how)
        completed = result.status is EvolveStatus.COMPLETED
        with np.errstate(over="ignore"):
            return completed and float(np.linalg.norm(result.u - reference)) <= error

    high = 4
    while not good(high):  # unstable runs overflow
        high *= 2
    low = high // 2
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def compared(case):
    name, level, method, given = case
    problem = gallery.make(name, level=level, degree=2)
    until = problem.stepper.until
    reference = chosen(problem, until, "dormand-prince", 1e-11, {})[0]
    u, products, steps = chosen(problem, until, method, RTOL, given)
    error = float(np.linalg.norm(u - reference))
    rk3 = 3 * fewest(problem, until, reference, error)
    found = {"problem": name, "level": level, "method": method, "steps": steps}
    return {**found, "products": products, "error": error, "ssp-rk3": rk3, "factor": rk3 / products}


def main(words=None):
    options = parser_of(__doc__, "quick", "json").parse_args(words)
    cases = [(n, 3, m, o) for n, _, m, o in CASES[0:6:5]] if options.quick else CASES
    print(f"rtol = {RTOL:g}; degree 2, sparse grids; products with the operator")
    record = {"rtol": RTOL, "cases": recorded(map(compared, cases))}
    print(f"\nproducts at the errors {TARGETS}")
    quick = [("diffusion-2d", 2, *STIFF_CASES[1][2:])]
    rows = (row for case in (quick if options.quick else STIFF_CASES) for row in rows_of(*case))
    record["equal error"] = recorded(rows)
    if not options.quick:
        print("\nevaluations of f")
        record["systems"] = recorded(map(calls_of, SYSTEMS))
        print("\norders of Prothero and Robinson's equation, -1e6")
        record["orders"] = {method: observed_order(method) for method in METHODS}
        print(record["orders"], "\n")
        record["aims"] = recorded(_aims(record))
    save(options.json, record)


def _aims(record):
    """Yield what was wanted, what was counted, and whether it is reached."""
    at = {
        (own["problem"], own["level"], own["preconditioner"], own["method"]): own["products"]
        for own in record["equal error"]
    }

    def aim(text, most, value):
        return {"aim": text, "bound": f"≤ {most:g}", "counted": value, "reached": value <= most}

    for problem, level, method, most, errors in (
        ("pitch-angle-c", 5, "bdf", 1.0, slice(None)),
        ("diffusion-2d", 4, "bdf", 1.2, slice(3)),
        ("diffusion-2d", 5, "bdf", 1.0, slice(None)),
        ("diffusion-2d", 4, "rkc2", 0.6, slice(2)),
    ):
        M = "none" if method == "rkc2" else "combination"
        ours, theirs = (at.get((problem, level, M, name)) for name in (method, "CVODE BDF"))
        if ours is None or theirs is None:  # CVODE is not there
            continue
        pairs = zip(ours[errors], theirs[errors], TARGETS[errors], strict=True)
        for one, other, error in pairs:
            text = f"{problem} {level}, {method} / CVODE at {error:g}"
            yield aim(text, most, one / other if one and other else float("nan"))
    *_, last = rows_of("continuity-2d", 4, "none", ("dop853",), (5e-10,))
    yield aim("continuity-2d 4, dop853, products at 5e-10", 200.0, last["products"][0])
    for own in record["systems"]:
        yield aim(f"{own['system']}, bdf / SciPy's BDF", 1.5, own["bdf"] / own["scipy"])
    order = record["orders"]["wso-sdirk3"]
    found = {"aim": "order with stiff data, wso-sdirk3", "bound": "≥ 2.9", "counted": order}
    yield {**found, "reached": order >= 2.9}


if __name__ == "__main__":
    main()
