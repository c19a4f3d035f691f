"""Errors of nonlinear equations: ``python -m benchmarks.nonlinear_errors [--json PATH]``.

Runs equations with functions of the solution on the levels of which a prototype's errors are known
(tests/support/nonlinear_cases.py). The status is 1 if an error is larger than it may be, or an
energy rises. All of them take some minutes.
"""

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, save
from benchmarks.core.tables import head, row

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
import nonlinear_cases as known


def main(words: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, "json")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="cases, such as logistic")
    parser.add_argument("--finest", type=int, default=7, help="largest level")
    options = parser.parse_args(words)
    print(head(["equation", "level", "error", "expected", "ratio", ""]))
    rows = []
    for case in known.CASES:
        if options.only and case.name not in options.only:
            continue
        for level, expected in case.expected.items():
            if level > options.finest:
                continue
            error = case.error(level, **case.settings)
            within = error <= case.factor * expected
            found = {"case": case.text, "level": level, "error": error, "expected": expected}
            rows.append(found | {"within": within})
            texts = [case.text, level, f"{error:.2e}", f"{expected:.1e}", f"{error / expected:.2f}"]
            print(row([*texts, "" if within else "**beyond**"]), flush=True)
    for (grid, level), ends in known.ALLEN_CAHN.items():
        if options.only and "allen-cahn" not in options.only:
            continue
        values = known.energies(level, grid)
        apart = max(abs(values[0] - ends[0]), abs(values[-1] - ends[1]))
        falls = all(after < before for before, after in pairwise(values))
        found = {"case": f"allen-cahn, grid {grid}", "level": level, "energies": values}
        rows.append(found | {"within": falls and apart < known.ENERGY_APART})
        texts = [f"allen-cahn, grid {grid}: energy", level, f"{values[0]:.4f} to {values[-1]:.4f}"]
        texts += [f"{ends[0]} to {ends[1]}", "falls" if falls else "rises"]
        print(row([*texts, "" if rows[-1]["within"] else "**beyond**"]), flush=True)
    save(options.json, {"machine": machine(), "errors": rows})
    return int(not all(found["within"] for found in rows))


if __name__ == "__main__":
    sys.exit(main())
