"""Errors of nonlinear equations that a prototype has had, on small levels.

``python -m benchmarks.nonlinear_errors`` has the larger ones.
"""

from itertools import pairwise

import pytest
from nonlinear_cases import ALLEN_CAHN, CASES, ENERGY_APART, energies

MAX_LEVEL = {"burgers-1d": 5, "porous-medium": 5, "values": 6, "Robin": 6}


def small():
    for case in CASES:
        for level, expected in case.expected.items():
            if level <= MAX_LEVEL.get(case.name, 4):
                yield pytest.param(case, level, expected, id=f"{case.text} {level}")


@pytest.mark.parametrize(("case", "level", "expected"), list(small()))
def test_errors_are_known(case, level, expected):
    error = case.error(level, **case.settings)
    assert 0.05 * expected < error <= case.factor * expected


def test_coefficients_at_points_are_as_good_as_products():
    at_points, products = (
        next(case for case in CASES if case.name == "elliptic" and case.settings == settings)
        for settings in ({"grid": "sparse"}, {"grid": "sparse", "coefficient": "as products"})
    )
    for level in (3, 4):
        error = at_points.error(level, **at_points.settings)
        assert error <= 1.4 * products.error(level, **products.settings)


@pytest.mark.parametrize(("grid", "level"), list(ALLEN_CAHN))
def test_the_energy_of_allen_cahn_falls(grid, level):
    found, (first, last) = energies(level, grid), ALLEN_CAHN[grid, level]
    assert all(after < before for before, after in pairwise(found))
    assert found[0] == pytest.approx(first, abs=ENERGY_APART)
    assert found[-1] == pytest.approx(last, abs=ENERGY_APART)
