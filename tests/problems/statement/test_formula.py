"""The derivatives of formulas."""

import numpy as np
import pytest

from batchkron.problems.statement.formula import Formula, FormulaText


@pytest.mark.parametrize(
    "text",
    [
        "f - f**3",
        "exp(-f) * x",
        "sin(f * x) / (2 + cos(f))",
        "sqrt(1 + f**2)",
        "(2 + f**2)**x",
        "-f",
        "x",
        "3",
        "f / x",
        "x / f",
        "f**f",
        "2**f",
        "+f * f * f",
        "f**-2",
    ],
)
def test_derivatives_are_those_of_difference_quotients(rng, text):
    formula, step = Formula(text, ("f", "x")), 1e-6
    f, x = rng.uniform(0.3, 2.0, (2, 9))
    above, below = (formula({"f": f + move, "x": x}) for move in (step, -step))
    found = formula.derivative("f", {"f": f, "x": x})
    np.testing.assert_allclose(found, (above - below) / (2.0 * step) + 0.0 * f, atol=1e-8)


def test_derivatives_of_powers_are_exact_where_the_variable_is_negative():
    found = Formula("f**3 - f", ("f",)).derivative("f", {"f": np.array([-2.0, 0.0, 1.0])})
    np.testing.assert_array_equal(found, [11.0, -1.0, 2.0])


def test_texts_without_variables():
    """Of which the error says names, and lists none."""
    with pytest.raises(ValueError, match=r"is no formula .*sin, cos and names$"):
        FormulaText("2 +")
    with pytest.raises(ValueError, match="names 'y'; expected a number or one of the func"):
        Formula("y", ())
    assert FormulaText("2 + 1")() == 3.0
