"""A Runge-Kutta tableau that does not have the order it states is refused."""

from dataclasses import fields

import numpy as np
import pytest

from batchkron.solvers import steppers
from batchkron.solvers.steppers import order_conditions
from batchkron.solvers.steppers.order_conditions import missed_condition
from batchkron.solvers.steppers.tableaus import TABLEAUS

RK4 = np.array([[0, 0, 0, 0], [1 / 2, 0, 0, 0], [0, 1 / 2, 0, 0], [0, 0, 1, 0]])
COUPLED = RK4 + np.outer([0, 0, 0, 1], [0, 1, -1, 0])  # differs from RK4 only in b @ a @ (a @ c)
THIRDS = np.array([[0, 0, 0], [1 / 3, 0, 0], [0, 2 / 3, 0]])  # Heun's third-order method
WEIGHTS4 = np.array([1, 2, 2, 1]) / 6


def altered(name, field, place, by):
    """The arguments of a known tableau, with ``by`` added to ``place`` of one field."""
    (found,) = (tableau for tableau in TABLEAUS if tableau.name == name)
    options = {key.name: getattr(found, key.name) for key in fields(found)}
    del options["name"], options["source"]
    options[field] = np.array(options[field])
    options[field][place] += by
    return options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"order": 3, "weights": [0.5, 0.5], "explicit": [[0, 0], [1, 0]]},
            r"weights of 'wrong' .* weights @ \(c \* c\) is 0.5 and not 1/3.* 1.7e-01",
        ),
        (
            {"order": 2, "weights": [1.0], "implicit": [[1.0]]},
            r"weights @ c is 1 and not 1/2 .* as order 2 needs.* or state order 1",
        ),
        (
            {"order": 5, "weights": WEIGHTS4, "explicit": RK4},
            r"weights @ .* as order 5 needs.* or state order 4",
        ),
        (
            {"order": 4, "weights": WEIGHTS4, "explicit": RK4, "implicit": COUPLED},
            r"weights @ \(implicit @ \(explicit @ c\)\) is .* and not 1/24",
        ),
        (
            altered("bogacki-shampine", "embedded", (slice(None),), [0.01, -0.01, 0, 0]),
            r"embedded of 'wrong' are stated to have order 2, but embedded @ c",
        ),
        (altered("dormand-prince", "explicit", (4, slice(2)), [1e-3, -1e-3]), "as order 3 needs"),
        (
            altered("ark3", "explicit", (3, slice(2)), [1e-3, -1e-3]),
            r"weights @ \(explicit @ c\) is",
        ),
        (altered("dop853", "second_embedded", slice(2), [1e-3, -1e-3]), "second_embedded of"),
        (altered("dop853", "dense_stages", (0, 13), 1e-3), "of the same or later stages"),
        (altered("dormand-prince", "dense", (0, 0), 1e-3), r"dense\[0\] sums to .* weights\[0\]"),
        (
            altered("dormand-prince", "dense", (0, slice(2)), [1e-3, -1e-3]),
            "columns of dense sum to .* the weights sum to θ",
        ),
        ({"order": 1, "weights": [1.0], "explicit": [[0]], "dense": [1.0]}, "dense has shape"),
        ({"order": 0, "weights": [1.0], "explicit": [[0]]}, "order is 0"),
        ({"order": 1.5, "weights": [1.0], "explicit": [[0]]}, "order is 1.5"),
        (
            {"order": 3, "weights": [0.25, 0, 0.75], "explicit": THIRDS.round(6)},
            "give them with more digits, or state order 1",
        ),
    ],
)
def test_tableaus_without_the_order_that_they_state(options, text):
    with pytest.raises(ValueError, match=text):
        steppers.Tableau("wrong", **options)


def test_orders_may_be_floats_of_whole_numbers():
    found = steppers.Tableau(
        "heun", 2.0, [0.5, 0.5], explicit=[[0, 0], [1, 0]], embedded=[1, 0], embedded_order=1.0
    )
    assert (found.order, found.embedded_order) == (2, 1)
    assert isinstance(found.order, int)
    assert isinstance(found.embedded_order, int)


@pytest.mark.parametrize("tableau", TABLEAUS, ids=lambda tableau: tableau.name)
def test_tableaus_have_their_order_and_no_higher_one(tableau):
    names = ("explicit", "implicit")
    matrices = {
        name: getattr(tableau, name) for name in names if getattr(tableau, name) is not None
    }
    for weights, order in (
        (tableau.weights, tableau.order),
        (tableau.embedded, tableau.embedded_order),
        (tableau.second_embedded, tableau.second_embedded_order),
    ):
        if weights is None:
            assert weights is tableau.second_embedded or tableau.name == "imex-euler"
            continue
        assert missed_condition(weights, matrices, order) is None
        if order < order_conditions.MAX_CHECKED_ORDER:
            assert missed_condition(weights, matrices, order + 1)[0] == order + 1


def test_the_conditions_are_as_many_as_the_rooted_trees():
    ones = [1, 1, 2, 4, 9, 20, 48, 115]  # rooted trees with 1, 2, … nodes
    branches = [[(np.ones(1), "c", 1)]]
    for size in range(2, 9):
        trees = list(order_conditions._forests(branches, size - 1))
        assert len(trees) == ones[size - 1]
        branches.append([order_conditions._joined(tree, size) for tree in trees])
    densities = [density for _, _, density in branches[3]]
    assert densities == [4, 8, 12, 24]
