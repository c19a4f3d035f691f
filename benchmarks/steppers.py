"""Products with the operator at equal error: ``python -m benchmarks.steppers``.

Some problems of the gallery are run by a method with step-size control, at a tolerance of 1e-6, and
by third-order Runge-Kutta with the fewest equal steps whose error is no larger. The error is that
of time alone, against a run of far smaller tolerance. A second table compares methods at equal
errors, next to CVODE where scikit-sundae is installed. A third has systems that are not linear,
next to SciPy's BDF, and orders that are left where data are stiff; see `stiff_methods`. The last
one sets aims beside what was counted. Counts, no times.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.problems import Problem, gallery
from batchkron.solvers import EvolveStatus, evolve
from benchmarks import stiff_methods
from benchmarks.core.options import parser_of
from benchmarks.core.records import recorded, save

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


def compared(case: tuple[str, int, str, dict[str, Any]]) -> dict[str, Any]:
    name, level, method, given = case
    problem = gallery.make(name, level=level, degree=2)
    until = problem.stepper.until
    reference = chosen(problem, until, "dormand-prince", 1e-11, {})[0]
    u, products, steps = chosen(problem, until, method, RTOL, given)
    error = float(np.linalg.norm(u - reference))
    rk3 = 3 * fewest(problem, until, reference, error)
    found = {"problem": name, "level": level, "method": method, "steps": steps}
    return {**found, "products": products, "error": error, "ssp-rk3": rk3, "factor": rk3 / products}


def main(words: list[str] | None = None) -> None:
    options = parser_of(__doc__, "quick", "json").parse_args(words)
    cases = [(n, 3, m, o) for n, _, m, o in CASES[0:6:5]] if options.quick else CASES
    print(f"rtol = {RTOL:g}; degree 2, sparse grids; products with the operator")
    record: dict[str, Any] = {"rtol": RTOL, "cases": recorded(map(compared, cases))}
    print(f"\nproducts at the errors {stiff_methods.TARGETS}")
    stiff = stiff_methods.CASES
    chosen_cases = [stiff[1]._replace(level=2)] if options.quick else stiff
    rows = (row for case in chosen_cases for row in stiff_methods.rows_of(case, Counted))
    record["equal error"] = recorded(rows)
    if not options.quick:
        print("\nevaluations of f")
        record["systems"] = recorded(map(stiff_methods.calls_of, stiff_methods.SYSTEMS))
        print("\norders of Prothero and Robinson's equation, -1e6")
        methods = stiff_methods.METHODS
        record["orders"] = {method: stiff_methods.observed_order(method) for method in methods}
        print(record["orders"], "\n")
        record["aims"] = recorded(_aims(record))
    save(options.json, record)


def _aims(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what was wanted, what was counted, and whether it is reached."""
    at = {
        (own["problem"], own["level"], own["preconditioner"], own["method"]): own["products"]
        for own in record["equal error"]
    }

    def aim(text: str, most: float, value: float) -> dict[str, Any]:
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
        pairs = zip(ours[errors], theirs[errors], stiff_methods.TARGETS[errors], strict=True)
        for one, other, error in pairs:
            text = f"{problem} {level}, {method} / CVODE at {error:g}"
            yield aim(text, most, one / other if one and other else float("nan"))
    case = stiff_methods.Case("continuity-2d", 4, "none", ("dop853",))
    (*_, last) = stiff_methods.rows_of(case, Counted, (5e-10,))
    yield aim("continuity-2d 4, dop853, products at 5e-10", 200.0, last["products"][0])
    for own in record["systems"]:
        yield aim(f"{own['system']}, bdf / SciPy's BDF", 1.5, own["bdf"] / own["scipy"])
    order = record["orders"]["wso-sdirk3"]
    found = {"aim": "order with stiff data, wso-sdirk3", "bound": "≥ 2.9", "counted": order}
    yield {**found, "reached": order >= 2.9}


if __name__ == "__main__":
    main()
