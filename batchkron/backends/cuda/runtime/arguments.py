"""The arguments of the kernels as NumPy structures, laid out as those of ``csrc/cuda``."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

MOST_CREW_KINDS = 5  # crews of up to 16 teams that add up one node
# Factor<T>: the matrices of one mode.
FACTOR = np.dtype(
    [("data", "u8"), ("system", "i8"), ("matrix", "i8"), ("row", "i8"), ("column", "i8")]
)
# RuntimeStep
STEP = np.dtype([("L", "i8"), ("C", "i8"), ("K", "i8"), ("R", "i8")])


def _pointers(*names: str) -> list[tuple[str, str]]:
    return [(name, "u8") for name in names]


def _sizes(*names: str) -> list[tuple[str, str]]:
    return [(name, "i8") for name in names]


@cache
def steps_argument(modes: int, fixed: bool) -> np.dtype[Any]:
    """Return FixedSteps of ``modes`` steps, or RuntimeSteps."""
    if fixed:
        return np.dtype([("factors", FACTOR, (modes,))])
    return np.dtype([*_pointers("steps", "factors"), *_sizes("count")])


@cache
def batch_arguments(dtype: np.dtype[Any], modes: int, fixed: bool) -> np.dtype[Any]:
    """Return BatchArguments for products of ``modes`` factors."""
    pointers = _pointers("x", "y", "workspace", "ids", "inputs", "outputs", "starts", "weights")
    sizes = _sizes("products", "outer", "inner", "num_inputs", "num_outputs", "input_size")
    sizes += _sizes("output_size", "systems", "weight_system", "staged", "buffer", "team")
    steps = ("steps", steps_argument(modes, fixed))
    return np.dtype([*pointers, steps, *sizes, *_sizes("accumulate"), ("alpha", dtype)], align=True)


@cache
def diagonal_arguments(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return DiagonalArguments."""
    sizes = _sizes("count", "period", "inner", "scaled", "accumulate")
    return np.dtype([*_pointers("x", "y", "d"), *sizes, ("alpha", dtype)], align=True)


@cache
def group_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return GroupArguments for ``modes`` factors."""
    pointers = _pointers("x", "y", "previous", "workspace")
    steps = ("steps", steps_argument(modes, True))
    sizes = _sizes("columns", "R", "input_size", "output_size", "staged", "buffer")
    return np.dtype([*pointers, steps, *sizes, ("alpha", dtype), ("beta", dtype)], align=True)


@cache
def kron_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return KronArguments for ``modes`` factors."""
    pointers = _pointers("x", "y", "previous")
    factors = ("factors", FACTOR, (modes,))
    return np.dtype(
        [*pointers, factors, *_sizes("L", "R"), ("alpha", dtype), ("beta", dtype)], align=True
    )


@cache
def sum_factors(modes: int) -> np.dtype[Any]:
    """Return SumFactors of ``modes`` modes."""
    return np.dtype([("data", "u8", (modes,)), ("system", "i8", (modes,))])


@cache
def sum_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return SumArguments of ``modes`` modes."""
    factors = ("factors", sum_factors(modes))
    sizes = _sizes("systems", "inner", "accumulate")
    return np.dtype([*_pointers("x", "y"), factors, *sizes, ("alpha", dtype)], align=True)


_LAYOUT = np.dtype(_sizes("rows", "columns", "row", "column"))
_PRODUCT = [*_pointers("a_data", "b_data", "out"), ("a", _LAYOUT), ("b", _LAYOUT)]


@cache
def explicit_arguments() -> np.dtype[Any]:
    """Return ExplicitKronArguments."""
    sizes = _sizes("b_slices", "a_slice", "b_slice", "total", "words", "a_band", "out_band")
    sizes += _sizes("whole", "rest", "repeats", "groups", "parts")
    reciprocals = [(f"over_{name}", "u4") for name in ("columns", "b_rows", "b_columns")]
    return np.dtype([*_PRODUCT, *sizes, *reciprocals], align=True)


@cache
def segments_arguments() -> np.dtype[Any]:
    """Return ExplicitSegmentsArguments."""
    return np.dtype([*_PRODUCT, *_sizes("chunks", "entries", "groups")])


@cache
def register_batch_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return RegisterBatchArguments for products of ``modes`` factors."""
    pointers = _pointers("x", "y", "list", "starts", "weights", "unit_weights")
    pool = np.dtype([*_pointers("data"), *_sizes("system")])
    sizes = _sizes("outer", "systems", "num_inputs", "num_outputs", "slots", "weight_system")
    fixed = [*pointers, ("pools", pool, (modes,)), *sizes]
    return np.dtype([*fixed, *_sizes("accumulate"), ("alpha", dtype)], align=True)


@cache
def segmented_arguments(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return SegmentedArguments."""
    pointers = _pointers("x", "y", "scratch", "starts", "edges", "targets", "matrices")
    sizes = _sizes("outer", "inner", "num_inputs", "num_outputs", "num_scratch", "accumulate")
    crews = "crews", np.int64, (MOST_CREW_KINDS,)
    fields = [*pointers, *_sizes("nodes"), crews, *sizes, ("alpha", dtype)]
    return np.dtype(fields, align=True)
