import numpy as np
import pytest

from batchkron.problems.discretization.basis.multiwavelets import hierarchical_transform
from batchkron.problems.discretization.matrices.dg_matrices import (
    div_matrix,
    grad_matrix,
    mass_matrix,
)
from batchkron.problems.discretization.matrices.mode_operator import ModeOperator, connected
from batchkron.problems.statement.axis import Axis


def supports_touch(a, b, level, kind):
    """Whether two hierarchical cells' supports overlap or, unless kind is "volume", touch."""

    def support(cell):
        cell_level = int(cell).bit_length()
        width = 2**level // 2 ** max(cell_level - 1, 0)
        first = 0 if cell == 0 else (cell - 2 ** (cell_level - 1)) * width
        return set(range(first, first + width))

    overlap = bool(support(a) & support(b))
    if kind == "volume":
        return overlap
    neighbours = {(i + step) % 2**level for i in support(a) for step in (-1, 1)}
    return overlap or bool(neighbours & support(b))


@pytest.mark.parametrize("kind", ["volume", "full"])
@pytest.mark.parametrize("level", [0, 1, 2, 4])
def test_connected_cells(level, kind):
    cells = range(2**level)
    expected = [[supports_touch(a, b, level, kind) for b in cells] for a in cells]
    np.testing.assert_array_equal(connected(level, kind), expected)


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4, 8])
@pytest.mark.parametrize("level", [0, 1, 4])
@pytest.mark.parametrize("which", ["mass", "div", "chain"])
def test_blocks_are_the_rotated_matrix(which, level, degree):
    axis = Axis("x", -1, 2)

    def g(s):
        return 1.5 + np.sin(s)

    nodal = {
        "mass": lambda: mass_matrix(axis, level, degree, g),
        "div": lambda: div_matrix(axis, level, degree, g),
        "chain": lambda: (
            div_matrix(axis, level, degree, g) @ grad_matrix(axis, level, degree, flux="downwind")
        ),
    }[which]()
    transform = hierarchical_transform(level, degree)
    expected = transform @ nodal.toarray() @ transform.T
    operator = ModeOperator.from_nodal(nodal, degree)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(operator.to_dense(), expected, atol=1e-13 * scale)
    np.testing.assert_array_equal(operator.transpose().to_dense(), operator.to_dense().T)
    assert operator.level == level
    assert operator.degree == degree
    kind = "volume" if which == "mass" else "full"
    assert connected(level, kind)[operator.rows, operator.columns].all()


def test_zero_blocks_are_dropped_and_the_rest_is_kept():
    axis = Axis("x", -1, 1)
    identity = ModeOperator.from_nodal(mass_matrix(axis, 5, 2), 2)
    np.testing.assert_array_equal(identity.rows, np.arange(32))
    np.testing.assert_allclose(identity.to_dense(), np.eye(96), atol=1e-15)
    # a wavelet is orthogonal to coarser functions that are one polynomial on its support
    div = ModeOperator.from_nodal(div_matrix(axis, 5, 2), 2)
    assert div.rows.size < connected(5, "full").sum()
    everything = ModeOperator.from_nodal(div_matrix(axis, 5, 2), 2, tolerance=0.0)
    np.testing.assert_allclose(div.to_dense(), everything.to_dense(), atol=1e-13)


@pytest.mark.parametrize("degree", [0, 2, 4])
def test_dropping_blocks_makes_no_growth(degree):
    operator = ModeOperator.from_nodal(div_matrix(Axis("x", -1, 1), 5, degree, -3.0), degree)
    dense = operator.to_dense()
    assert np.linalg.eigvals(dense).real.max() <= 1e-10 * np.linalg.norm(dense, 2)


def test_dense_round_trip():
    generator = np.random.default_rng(3)
    present = generator.random((4, 4)) < 0.5
    dense = np.kron(present, np.ones((3, 3))) * generator.standard_normal((12, 12))
    operator = ModeOperator.from_dense(dense, 3)
    np.testing.assert_array_equal(operator.to_dense(), dense)
    np.testing.assert_array_equal(
        np.transpose((operator.rows, operator.columns)), np.argwhere(present)
    )


def test_find_and_row_range():
    generator = np.random.default_rng(5)
    present = generator.random((8, 8)) < 0.4
    dense = np.where(present, generator.standard_normal((8, 8)), 0)
    operator = ModeOperator.from_dense(dense, 1)
    rows, columns = (grid.ravel() for grid in np.indices((8, 8)))
    found = operator.find(rows, columns).reshape(8, 8)
    np.testing.assert_array_equal(found >= 0, present)
    np.testing.assert_array_equal(operator.blocks[found[present], 0, 0], dense[present])
    for last in range(8):
        first, stop = operator.row_range(np.arange(8), np.full(8, last))
        np.testing.assert_array_equal(stop - first, present[:, : last + 1].sum(axis=1))
        np.testing.assert_array_equal(
            operator.rows[first[stop > first]], np.flatnonzero(stop > first)
        )


def test_find_on_an_axis_too_fine_for_a_table():
    cells = 1 << 12
    operator = ModeOperator(cells, 1, [3, 5, 4095], [7, 0, 4095], np.ones((3, 1, 1)))
    found = operator.find(np.array([0, 3, 5, 5, 4095]), np.array([0, 7, 0, 1, 4095]))
    np.testing.assert_array_equal(found, [-1, 0, 1, -1, 2])
    empty = ModeOperator(cells, 1, [], [], np.ones((0, 1, 1)))
    np.testing.assert_array_equal(empty.find(np.array([1]), np.array([2])), [-1])


def test_identity_is_recognised_exactly():
    assert ModeOperator.identity(4, 3).is_identity
    assert not ModeOperator.from_dense(np.eye(12) * (1 + 1e-15), 3).is_identity
    assert not ModeOperator.from_dense(np.diag([1.0, 1.0, 1.0, 0.0]), 1).is_identity


def test_arrays_are_copied_and_read_only():
    blocks = np.ones((1, 2, 2))
    operator = ModeOperator(2, 2, [0], [1], blocks)
    blocks[...] = np.nan
    assert operator.blocks.sum() == 4
    with pytest.raises(ValueError, match="read-only"):
        operator.blocks[0] = 0


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((3, 1, [0], [0], np.ones((1, 1, 1))), ValueError, "cells is 3; expected a power of two"),
        ((2, 1, [0], [2], np.ones((1, 1, 1))), IndexError, r"columns\[0\] is 2; expected 0 … 1"),
        ((2, 1, [-1], [0], np.ones((1, 1, 1))), IndexError, r"rows\[0\] is -1"),
        ((2, 1, [0.5], [0], np.ones((1, 1, 1))), TypeError, "rows has dtype float64"),
        ((2, 1, [1, 0], [0, 0], np.ones((2, 1, 1))), ValueError, "not sorted and distinct"),
        ((2, 1, [0, 0], [1, 1], np.ones((2, 1, 1))), ValueError, "not sorted and distinct"),
        ((2, 2, [0], [1], np.ones((1, 1, 2))), ValueError, r"expected \(1, 2, 2\)"),
        ((2, 1, [0], [0, 1], np.ones((1, 1, 1))), ValueError, r"columns has shape \(2,\)"),
        ((2, 1, [0], [1], np.full((1, 1, 1), np.nan)), ValueError, r"blocks\[0\] holds a value"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, text):
    with pytest.raises(error, match=text):
        ModeOperator(*arguments)


def test_wrong_matrices_are_named():
    with pytest.raises(ValueError, match=r"shape \(4, 6\); expected \(cells \* 2, cells \* 2\)"):
        ModeOperator.from_dense(np.ones((4, 6)), 2)
    with pytest.raises(ValueError, match=r"expected 2\^level \* 3 rows and columns"):
        ModeOperator.from_nodal(mass_matrix(Axis("x", 0, 1), 2, 1), 2)
    with pytest.raises(ValueError, match="kind is 'all'"):
        connected(2, "all")
    with pytest.raises(TypeError, match="blocks has dtype complex128; expected real numbers"):
        ModeOperator.from_dense(np.diag([1j, 2.0]), 1)
