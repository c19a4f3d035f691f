"""A problem with everything that a problem file can hold, of random numbers."""

import numpy as np

from batchkron.problems import (
    Axis,
    ExactSolution,
    ModeOperator,
    OperatorTerm,
    Problem,
    SeparableVector,
    SparseGrid,
    StepperSettings,
    time,
)

LEVELS = (3, 2)
N = 2  # functions per cell and axis
MANY_TIMES = [
    time.constant(-2.5),
    time.polynomial([0.1, 0.0, 1 / 3]),
    time.sin(2.0, 0.3) * time.exp(-1.0) + 0.1 * time.cos(3.0),
    time.spline([0.0, 0.4, 1.0, 2.5], [1.0, -0.1, 1 / 7, 5e-324]),
    time.spline([0.0, 0.4, 1.0, 2.5], [1.0, -0.1, 1 / 7, 5e-324]).derivative(),
]


def random_operator(rng, level):
    dense = rng.normal(size=(N << level, N << level))
    keep = np.kron(rng.random((1 << level, 1 << level)) < 0.5, np.ones((N, N)))
    return ModeOperator.from_dense(dense * keep, N)


def random_vector(rng, function):
    return SeparableVector(tuple(rng.normal(size=N << level) for level in LEVELS), function)


def random_problem(rng):
    """Terms, sources and functions of time of all kinds; text beyond ASCII; extreme numbers."""
    first, second = (random_operator(rng, level) for level in LEVELS)
    copy = ModeOperator(first.cells, N, first.rows, first.columns, first.blocks)
    grid = SparseGrid.sparse(LEVELS)
    return Problem(
        "zufällig ∇",
        [Axis("x", -1, 1 / 3), Axis("ζ", 0.1, 2e300)],
        N - 1,
        grid,
        [
            OperatorTerm((first, None), time.constant(1.0)),
            OperatorTerm((copy, second), MANY_TIMES[2]),
            OperatorTerm((None, None), MANY_TIMES[0]),
        ],
        [random_vector(rng, function) for function in MANY_TIMES],
        rng.normal(size=grid.num_cells * N**2),
        exact=ExactSolution(
            tuple(random_vector(rng, function) for function in MANY_TIMES[:2]),
            rng.normal(size=(2, 2, 2)),
        ),
        t0=0.1,
        stepper=StepperSettings("crank-nicolson", 1 / 3, 2.5),
        units={"x": "µm", "t": "s"},
        provenance={"recipe": ["by hand", 0.1, None]},
    )
