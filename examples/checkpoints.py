"""A run that is stopped and goes on from its checkpoint, to the same bits as one that was not."""

import tempfile
from pathlib import Path

import numpy as np

from batchkron.problems import load_problem, make, save_problem
from batchkron.solvers import evolve

with tempfile.TemporaryDirectory() as folder:
    file, checkpoint = Path(folder, "c2.h5"), Path(folder, "c2.checkpoint.h5")
    save_problem(file, make("continuity-2d", level=5, degree=2))
    problem = load_problem(file)
    whole = evolve(problem, until=0.5)
    stopped = evolve(
        problem, until=0.5, checkpoint=checkpoint, callback=lambda state: state.t > 0.2
    )
    print(f"{stopped.status} after step {stopped.steps} of {whole.steps}, t = {stopped.t:.4g}")
    resumed = evolve(problem, until=0.5, resume=checkpoint)
    print(f"{resumed.status}, the same bits: {np.array_equal(resumed.u, whole.u)}")
    print(f"relative error {problem.relative_error(resumed.u, resumed.t):.2e}")
