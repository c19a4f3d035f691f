"""Names of time steppers that tests run over."""

from batchkron.solvers import steppers


def _takes_equal_steps(name):
    method = steppers.get(name)
    return (method.implicit and not method.chooses_order) or bool(method.stability_polynomial)


EQUAL_STEPS = [name for name in steppers.names() if _takes_equal_steps(name)]
"""Those whose step is the same whatever the operator, and a function of (u, t) alone."""
