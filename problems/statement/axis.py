"""A coordinate axis: a name and an interval."""

import math
from dataclasses import dataclass

from .number_checks import is_number

RESERVED_NAMES = ("t", "coefficient")
"""Keyword arguments of `Separable` that no axis may have as its name."""


@dataclass(frozen=True)
class Axis:
    """The interval [lower, upper] of one coordinate.

    Parameters
    ----------
    name : str
        A Python identifier, since it is used as a keyword (``Separable(x=np.cos)``); ``t`` (time)
        and ``coefficient`` are reserved.
    lower, upper : float
        Ends of the interval, finite, ``lower < upper``, in the user's unit of length.

    Raises
    ------
    TypeError
        If the name is not a string or an end is not a real number.
    ValueError
        If the name is not an identifier or is reserved, or the interval is empty or not finite.

    Examples
    --------
    >>> Axis("x", -1, 1).length
    2.0
    """

    name: str
    lower: float
    upper: float

    def __post_init__(self) -> None:
        """Check the name and the interval."""
        if not isinstance(self.name, str):
            raise TypeError(f"name is {type(self.name).__name__}; expected a string such as 'x'")
        if not self.name.isidentifier():
            raise ValueError(f"name is {self.name!r}; expected a Python identifier such as 'x'")
        if self.name in RESERVED_NAMES:
            raise ValueError(f"name is {self.name!r}, which is taken; use another, such as 'x'")
        for end in ("lower", "upper"):
            value = getattr(self, end)
            if not is_number(value):
                raise TypeError(
                    f"{end} of axis {self.name!r} is {type(value).__name__}; expected a real number"
                )
            object.__setattr__(self, end, float(value))
        if not (math.isfinite(self.lower) and math.isfinite(self.upper)):
            raise ValueError(
                f"axis {self.name!r} is [{self.lower}, {self.upper}]; expected finite ends"
            )
        if not self.lower < self.upper or not math.isfinite(self.upper - self.lower):
            raise ValueError(
                f"axis {self.name!r} is [{self.lower}, {self.upper}]; expected lower < upper"
            )

    @property
    def length(self) -> float:
        """Length of the interval, upper - lower."""
        return self.upper - self.lower

    def cell_width(self, level: int) -> float:
        """Width of one of the 2^level equal cells of the axis."""
        return math.ldexp(self.length, -level)
