"""Functions of time that know their derivatives and can be saved to files.

Sources, boundary data, coefficients and exact solutions depend on time through these
functions only, so that a problem file can hold them without any Python code.
"""

from .statement.time import (
    MAXIMUM_DEPTH,
    MAXIMUM_SIZE,
    TimeFunction,
    constant,
    cos,
    exp,
    from_json,
    polynomial,
    sin,
    spline,
)

__all__ = [
    "MAXIMUM_DEPTH",
    "MAXIMUM_SIZE",
    "TimeFunction",
    "constant",
    "cos",
    "exp",
    "from_json",
    "polynomial",
    "sin",
    "spline",
]
