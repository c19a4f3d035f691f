"""States as datasets of xarray, on a uniform grid of points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.datasets import require_xarray

from ...statement.axis import Axis
from ...statement.number_checks import check_integer, finite_number
from ..value import ProblemValue
from .cut import Counts, Cut, find_axis
from .observables import Observables

__all__ = ["state_dataset"]

_MAX_POINTS = 1 << 26  # points of a dataset, 512 MiB of values; chosen by hand
_DEFAULT_POINTS = 1 << 20  # points of a dataset if the user does not choose them; chosen by hand


def state_dataset(
    output: Observables,
    u: NDArray[np.float64],
    t: float | None,
    cut: Cut,
    points: int | Counts | None,
) -> Any:
    """Return a state, and the exact solution if it is known, as an xarray.Dataset.

    Its arguments are those of `Output.to_xarray`, the cut what is done to the axes that are left
    out.
    """
    xarray = require_xarray("to_xarray")
    problem = output.problem
    problem._on_host(u)  # checks it
    hidden = [*cut.summed, *(axis for axis, _ in cut.places)]
    axes = [axis for axis in problem.axes if axis not in hidden]
    counts = _counts(problem, axes, points)
    places = [
        axis.lower + axis.length * (np.arange(count) + 0.5) / count
        for axis, count in zip(axes, counts, strict=True)
    ]
    mesh = np.meshgrid(*places, indexing="ij", sparse=True)
    names = [axis.name for axis in axes]
    about = {"long_name": cut.quantity + cut.where, "units": cut.unit(problem.units)}

    def values(state: NDArray[np.float64]) -> NDArray[np.float64]:
        return cut.of(output, state).evaluate(*mesh).reshape(counts)

    variables = {"f": (names, values(u), _known(about))}
    coordinates: dict[str, Any] = {
        name: (name, own, _known({"long_name": name, "units": problem.units.get(name)}))
        for name, own in zip(names, places, strict=True)
    }
    for axis, at in cut.places:
        own = {"long_name": axis.name, "units": problem.units.get(axis.name)}
        coordinates[axis.name] = ((), at, _known(own))
    if t is not None:
        t = finite_number("t", t)
        coordinates["t"] = ((), t, _known({"long_name": "time", "units": problem.units.get("t")}))
        exact = output.exact_coefficients(t)
        if exact is not None:
            named = {**about, "long_name": f"exact {about['long_name']}, projected on the grid"}
            variables["exact"] = (names, values(exact), _known(named))
    attributes = {"title": problem.name, "degree": problem.degree, "grid": problem.grid.kind}
    return xarray.Dataset(variables, coordinates, attributes)


def _counts(problem: ProblemValue, axes: Sequence[Axis], points: int | Counts | None) -> list[int]:
    """Return the number of points along each axis."""
    places = [problem.axes.index(axis) for axis in axes]
    largest = max(1, int(_DEFAULT_POINTS ** (1.0 / len(axes)) + 1e-9))
    default = [min(problem.sizes[k] << problem.grid.levels[k], largest) for k in places]
    if points is None:
        return default
    if isinstance(points, Mapping):
        named: Iterable[tuple[object, int]] = points.items()
        given = {find_axis("points", axis, axes): count for axis, count in named}
        counts = [
            _positive(f"points[{axis.name!r}]", given.get(axis, count))
            for axis, count in zip(axes, default, strict=True)
        ]
    else:
        counts = [_positive("points", points)] * len(axes)
    if math.prod(counts) > _MAX_POINTS:
        shape = " × ".join(map(str, counts))
        raise ValueError(
            f"points asks for {shape} values, more than {_MAX_POINTS}; take fewer, or leave axes "
            "out with slice or marginal"
        )
    return counts


def _positive(name: str, count: int) -> int:
    if check_integer(name, count, _MAX_POINTS) == 0:
        raise ValueError(f"{name} is 0; expected at least one point")
    return int(count)


def _known(attributes: Mapping[str, str | None]) -> dict[str, str]:
    """Return the attributes that are known."""
    return {name: text for name, text in attributes.items() if text}
