"""Products with the operator at equal error: ``python -m benchmarks.steppers``.

Some problems of the gallery are run by a method with step-size control, at a tolerance of 1e-6, and
by third-order Runge-Kutta with the fewest equal steps whose error is no larger. The error is that
of time alone, against a run of far smaller tolerance. A second table compares methods at equal
errors, next to CVODE where scikit-sundae is installed. A third has systems that are not linear,
next to SciPy's BDF, and orders that are left where data are stiff; see `stiff_methods`. The last
one sets aims beside what was counted. Counts, no times.
"""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.problems import Problem, gallery
from batchkron.solvers import EvolveStatus, evolve
from benchmarks import stiff_methods
from benchmarks.core.options import parser_of
from benchmarks.core.records import save
from benchmarks.core.tables import head, row

RTOL = 1e-6
CASES: tuple[tuple[str, int, str, dict[str, Any]], ...] = (
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

    def __init__(self, problem: Problem) -> None:
        self._problem, self.products = problem, 0
        self.initial, self.t0, operator = problem.initial, problem.t0, problem.operator
        self.is_linear, self.source = problem.is_linear, problem.source

        def matvec(x: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
            self.products += 1
            return operator.matvec(x, out=out)

        known = {name: getattr(operator, name) for name in ("shape", "dtype", "kronecker_terms")}
        self._operator = SimpleNamespace(**known, matvec=matvec)

    def rhs(self, t: float, u: NDArray[Any], out: NDArray[Any]) -> None:
        self.products += 1
        self._problem.rhs(t, u, out)

    def operator_at(self, t: float) -> Any:
        return self._operator


def chosen(
    problem: Problem, until: float, method: str, rtol: float, options: dict[str, Any]
) -> tuple[NDArray[Any], int, int]:
    counted = Counted(problem)
    result = evolve(
        counted, until=until, method=method, rtol=rtol, raise_on_failure=True, **options
    )
    return result.u, counted.products, result.steps


def equal(problem: Problem, until: float, steps: int) -> NDArray[Any] | None:
    result = evolve(
        problem, until=until, method="ssp-rk3", dt=(until - problem.t0) / steps, allow_unstable=True
    )
    return result.u if result.status is EvolveStatus.COMPLETED else None


def fewest(problem: Problem, until: float, reference: NDArray[Any], error: float) -> int:

    def good(steps: int) -> bool:
        u = equal(problem, until, steps)
        with np.errstate(over="ignore"):
            return u is not None and float(np.linalg.norm(u - reference)) <= error

    high = 4
    while not good(high):  # unstable runs overflow
        high *= 2
    low = high // 2
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def main(words: list[str] | None = None) -> None:
    options = parser_of(__doc__, "quick", "json").parse_args(words)
    cases = [(n, 3, m, o) for n, _, m, o in CASES[0:6:5]] if options.quick else CASES
    print(f"rtol = {RTOL:g}; degree 2, sparse grids; products with the operator")
    names = ["problem", "level", "method", "steps", "products", "error", "ssp-rk3", "factor"]
    print(head(names))
    record: dict[str, Any] = {"rtol": RTOL, "cases": []}
    for name, level, method, given in cases:
        problem = gallery.make(name, level=level, degree=2)
        until = problem.stepper.until
        reference = chosen(problem, until, "dormand-prince", 1e-11, {})[0]
        u, products, steps = chosen(problem, until, method, RTOL, given)
        error = float(np.linalg.norm(u - reference))
        rk3 = 3 * fewest(problem, until, reference, error)
        found = {"problem": name, "level": level, "method": method, "steps": steps}
        found |= {"products": products, "error": error, "ssp-rk3": rk3, "factor": rk3 / products}
        record["cases"].append(found)
        texts = [name, level, method, steps, products, f"{error:.1e}", rk3]
        print(row([*texts, f"{rk3 / products:.1f}"]), flush=True)
    record["equal error"] = _at_equal_errors(options.quick)
    if not options.quick:
        record["systems"], record["orders"] = _of_systems()
        record["aims"] = _aims(record)
    save(options.json, record)


def _at_equal_errors(quick: bool) -> list[dict[str, Any]]:
    """Print the table at equal errors; return its rows."""
    names = ["problem", "level", "preconditioner", "method"]
    print(f"\n{head([*names, *(f'{target:g}' for target in stiff_methods.TARGETS)])}")
    found = []
    cases = stiff_methods.CASES
    for case in [cases[1]._replace(level=2)] if quick else cases:
        for method, products in stiff_methods.rows_of(case, Counted):
            texts = [case.problem, case.level, case.preconditioner, method]
            numbers = [None if count != count else round(count) for count in products]
            shown = ["–" if number is None else number for number in numbers]
            print(row([*texts, *shown]), flush=True)
            found.append({**dict(zip(names, texts, strict=True)), "products": numbers})
    return found


def _of_systems() -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Print and return evaluations of f for systems of a few equations, and observed orders."""
    names = ["system", "bdf", "error", "SciPy's BDF", "error"]
    print(f"\n{head(names)}")
    systems = []
    for system in stiff_methods.SYSTEMS:
        found = stiff_methods.calls_of(system)
        ours, theirs = (f"{error:.1e}" for error in (found.bdf_error, found.scipy_error))
        print(row([system.name, found.bdf, ours, found.scipy, theirs]), flush=True)
        systems.append({"system": system.name, **found._asdict()})
    orders = {method: stiff_methods.observed_order(method) for method in stiff_methods.METHODS}
    print(f"\n{head(['order with stiff data', *orders])}")
    print(row(["Prothero and Robinson, -1e6", *(f"{order:.2f}" for order in orders.values())]))
    return systems, orders


def _aims(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Print and return what was wanted, what was counted, and whether it is reached."""
    at = {
        (own["problem"], own["level"], own["preconditioner"], own["method"]): own["products"]
        for own in record["equal error"]
    }
    found: list[tuple[str, float, float]] = []

    def ratio(problem: str, level: int, method: str, most: float, errors: slice) -> None:
        M = "none" if method == "rkc2" else "combination"
        ours, theirs = (at.get((problem, level, M, name)) for name in (method, "CVODE BDF"))
        if ours is None or theirs is None:  # CVODE is not there
            return
        pairs = zip(ours[errors], theirs[errors], stiff_methods.TARGETS[errors], strict=True)
        for one, other, error in pairs:
            text = f"{problem} {level}, {method} / CVODE at {error:g}"
            found.append((text, most, one / other if one and other else float("nan")))

    ratio("pitch-angle-c", 5, "bdf", 1.0, slice(None))
    ratio("diffusion-2d", 4, "bdf", 1.2, slice(3))
    ratio("diffusion-2d", 5, "bdf", 1.0, slice(None))
    ratio("diffusion-2d", 4, "rkc2", 0.6, slice(2))
    case = stiff_methods.Case("continuity-2d", 4, "none", ("dop853",))
    products = stiff_methods.rows_of(case, Counted, (5e-10,))[-1].products[0]
    found.append(("continuity-2d 4, dop853, products at 5e-10", 200.0, products))
    for own in record["systems"]:
        found.append((f"{own['system']}, bdf / SciPy's BDF", 1.5, own["bdf"] / own["scipy"]))
    least = ("order with stiff data, wso-sdirk3", 2.9, record["orders"]["wso-sdirk3"])
    rows = [(text, f"≤ {most:g}", value, value <= most) for text, most, value in found]
    rows.append((least[0], f"≥ {least[1]:g}", least[2], least[2] >= least[1]))
    names = ["aim", "bound", "counted", "reached"]
    print(f"\n{head(names)}")
    for text, bound, value, good in rows:
        print(row([text, bound, f"{value:.3g}", "yes" if good else "no"]), flush=True)
    return [dict(zip(names, own, strict=True)) for own in rows]


if __name__ == "__main__":
    main(sys.argv[1:])
