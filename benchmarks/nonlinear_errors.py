"""Errors of nonlinear equations: ``python -m benchmarks.nonlinear_errors [--json PATH]``.

Runs equations with functions of the solution on the levels of which a prototype's errors are known
(tests/support/nonlinear_cases.py). The status is 1 if an error is larger than it may be, or an
energy rises. All of them take some minutes.
"""

import sys
from itertools import pairwise
from pathlib import Path

from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, recorded

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
import nonlinear_cases as known


def errors(only, finest):
    for case in known.CASES:
        for level, expected in case.expected.items():
            if level <= finest and (not only or case.name in only):
                error = case.error(level, **case.settings)
                found = {"case": case.text, "level": level, "error": error, "expected": expected}
                yield found | {"within": error <= case.factor * expected}
    for (grid, level), ends in known.ALLEN_CAHN.items():
        if not only or "allen-cahn" in only:
            values = known.energies(level, grid)
            apart = max(abs(values[0] - ends[0]), abs(values[-1] - ends[1]))
            falls = all(after < before for before, after in pairwise(values))
            found = {"case": f"allen-cahn, grid {grid}", "level": level, "energies": values}
            yield found | {"within": falls and apart < known.ENERGY_APART}


def main(words=None):
    parser = parser_of(__doc__, "json")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="cases, such as logistic")
    parser.add_argument("--finest", type=int, default=7, help="largest level")
    options = parser.parse_args(words)
    found = errors(options.only, options.finest)
    rows = recorded(found, options.json, {"machine": machine()}, "errors")
    return int(not all(found["within"] for found in rows))


if __name__ == "__main__":
    sys.exit(main())
