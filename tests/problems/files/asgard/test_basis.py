"""ASGarD's multiwavelets: the rotation against their definition, in exact arithmetic."""

import numpy as np
import pytest
from asgard_oracle import asgard_wavelets, wavelet_values
from numpy.polynomial.legendre import leggauss

from batchkron.problems.discretization.basis.multiwavelets import filters, hierarchical_values
from batchkron.problems.files.asgard.basis import rotate_from_asgard, wavelet_rotation
from batchkron.problems.statement.axis import Axis


@pytest.mark.parametrize("degree", range(8))
def test_rotated_wavelets_are_those_of_the_definition(degree):
    """Values of R ψ on both halves of a cell against the Gram-Schmidt process."""
    nodes, _ = leggauss(degree + 3)
    places = np.concatenate((nodes - 1, nodes + 1)) / 2
    _, values = hierarchical_values(places, Axis("x", -1, 1), 1, degree)
    expected = wavelet_values(asgard_wavelets(degree), places)
    assert np.allclose(values[:, 1] @ wavelet_rotation(degree).T, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("degree", [0, 1, 2, 5, 12, 20])
def test_the_rotation_is_orthogonal(degree):
    rotation = wavelet_rotation(degree)
    assert np.allclose(rotation @ rotation.T, np.eye(degree + 1), rtol=0, atol=1e-15)
    assert not rotation.flags.writeable


def test_quadratic_filters_have_their_known_values():
    """The right half of the wavelets of degree 2 by hand: roots of small rationals."""
    right = wavelet_rotation(2) @ filters(2).G1
    expected = [
        [0, 0, np.sqrt(1 / 2)],
        [0, -np.sqrt(1 / 32), np.sqrt(15 / 32)],
        [np.sqrt(1 / 8), -np.sqrt(3 / 8), 0],
    ]
    assert np.allclose(right, expected, rtol=0, atol=1e-15)


def test_blocks_rotate_in_the_dimensions_of_their_wavelets_alone(rng):
    values = rng.standard_normal((4, 3, 3, 3))
    cells = np.array([[0, 0, 0], [5, 0, 0], [0, 1, 0], [2, 0, 7]])
    before = values.copy()
    rotated = rotate_from_asgard(values.ravel(), cells, 2).reshape(values.shape)
    rotation = wavelet_rotation(2)
    assert np.array_equal(rotated[0], values[0])
    for block, subscripts in [(1, "ri,rbc->ibc"), (2, "ri,brc->bic")]:
        expected = np.einsum(subscripts, rotation, values[block])
        assert np.allclose(rotated[block], expected, rtol=0, atol=1e-14)
    expected = np.einsum("ri,sk,rbs->ibk", rotation, rotation, values[3])
    assert np.allclose(rotated[3], expected, rtol=0, atol=1e-14)
    assert np.array_equal(values, before)


def test_a_bad_degree_is_refused():
    with pytest.raises(ValueError, match="degree is -1"):
        wavelet_rotation(-1)
