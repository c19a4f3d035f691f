"""Batch lists of random matrices and their problems in time."""

import numpy as np
from dense_oracle import random_array

import batchkron as bk
from batchkron.problems import LinearProblem, StepperSettings, time


def random_list(rng, dtype="float64", blocks=4, shapes=((3, 3), (2, 2)), products=12):
    """A square batch list whose outputs repeat, with an identity in each pool of square ones."""
    pools = [random_array(rng, (3, *shape), dtype) for shape in shapes]
    for pool, (rows, columns) in zip(pools, shapes, strict=True):
        if rows == columns:
            pool[1] = np.eye(rows)
    size = blocks * int(np.prod([shape[1] for shape in shapes]))
    outputs = size // int(np.prod([shape[0] for shape in shapes]))
    return bk.BatchedKron(
        pools,
        rng.integers(0, 3, (products, len(shapes))),
        rng.integers(0, blocks, products),
        rng.integers(0, outputs, products),
        weights=0.2 * random_array(rng, products, dtype),
        num_inputs=blocks,
        num_outputs=outputs,
    )


def random_problem(rng, dtype="float64", **more):
    """A problem with all parts that a file can have."""
    op = random_list(rng, dtype)
    real = np.dtype(dtype).type(0).real.dtype
    given = {
        "source": [
            (time.cos(2.0), random_array(rng, (4, 6), dtype)),
            (time.exp(-1.0) * time.polynomial([1.0, 0.5]), random_array(rng, 24, dtype)),
        ],
        "exact": (time.constant(2.0), random_array(rng, (4, 3, 2), dtype)),
        "blocks": (8, 3),
        "name": "zufällig ∇",
        "t0": 0.25,
        "stepper": StepperSettings("rk4", 0.01, 0.5),
        "quantities": {"mass": np.ones(24, real), "Ä": rng.standard_normal(24).astype(real)},
        "levels": [1, 1],
        "cells": [[0, 0], [0, 1], [1, 0], [1, 1]],
    }
    return LinearProblem(op, random_array(rng, 24, dtype), **{**given, **more})
