"""Names of time steppers that tests run over."""

from batchkron.solvers import steppers

EQUAL_STEPS = [name for name in steppers.names() if not steppers.get(name).chooses_order]
"""Those that take equal steps; each step is a function of (u, t) alone."""
