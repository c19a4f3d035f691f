"""Where a device finds the matrices of sweeps that are entries of one vector."""

from types import SimpleNamespace

import numpy as np
import pytest
from dense_oracle import DTYPES, random_array

from batchkron.backends.cuda.segmented.levels import sweep_levels
from batchkron.operators.sparse_grid.listing import list_sweeps
from batchkron.operators.sparse_grid.spec import sweep_spec
from batchkron.problems import SparseGrid
from batchkron.problems.discretization.matrices.mode_operator import connected


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3, 9])
@pytest.mark.parametrize("factor", [1.0, -2.0])
def test_the_elements_are_those_of_laid_out_matrices(rng, dtype, n, factor):
    rows, columns = np.nonzero(connected(2, "volume"))
    fixed, changing = (
        SimpleNamespace(
            rows=rows, columns=columns, blocks=random_array(rng, (len(rows), n, n), dtype)
        )
        for _ in range(2)
    )
    terms = [[fixed, changing], [fixed, None]]
    spec = sweep_spec(SparseGrid.sparse([2, 2]), terms, n, None)
    listing, _ = list_sweeps(spec)
    levels = sweep_levels(listing.sweeps)
    matrices = [total.blocks(spec) for total in listing.sums]
    before = levels.laid_out(matrices)
    count = changing.blocks.size + 5
    places = rng.permutation(count)[: changing.blocks.size].reshape(changing.blocks.shape)
    parts = []
    for number, total in enumerate(listing.sums):
        found = total.linked({1: places}, spec)
        if found is not None:
            parts.append((number, found[0], factor))
    assert parts
    counts = [part.matrices for step in listing.sweeps.steps for part in step.parts]
    found, factors = levels.linked_elements(parts, counts, count, np.dtype(dtype))
    values = random_array(rng, (count,), dtype)
    source = np.concatenate([values, np.zeros(1, dtype), before])
    assert (factors is None) == (factor == 1.0)
    result = source[found] * (1 if factors is None else factors)
    for number, own, _ in parts:
        matrices[number] = values[own] * np.dtype(dtype).type(factor)
    np.testing.assert_array_equal(result, levels.laid_out(matrices))
