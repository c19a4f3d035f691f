"""JSON without extensions: no NaN, no repeated keys, bounded depth and size."""

from __future__ import annotations

import json
from typing import Any

MAX_DEPTH = 100
"""Levels of nesting, well below Python's recursion limit (1000 by default)."""


def dumps(data: object) -> str:
    """Write plain data as one line of JSON, keys sorted: equal data give equal text.

    ``data``: nested dict (str keys), list, tuple, str, int, finite float, bool, None.

    Result: floats are written so that reading them gives the same bits. Raises `TypeError` for any
    other type, also as a key. `ValueError` for numbers that are not finite and for nesting deeper
    than 100 levels.

    Examples
    --------
    >>> dumps({"b": [1, 2.5], "a": None})
    '{"a":null,"b":[1,2.5]}'
    """
    _check(data, MAX_DEPTH)
    return json.dumps(
        data, allow_nan=False, ensure_ascii=False, sort_keys=True, separators=(",", ":")
    )


def loads(text: str) -> Any:
    """Read what `dumps` wrote.

    Result: nested dict, list, str, int, float, bool, None. Raises `ValueError` for anything that is
    not strict JSON: syntax errors, NaN and infinities, repeated keys, nesting deeper than 100
    levels.

    Examples
    --------
    >>> loads('{"a":[1,2]}')
    {'a': [1, 2]}
    """
    try:
        data = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
        _check(data, MAX_DEPTH)
    except RecursionError:
        raise ValueError(f"JSON is nested deeper than {MAX_DEPTH} levels") from None
    return data


def _refuse_constant(name: str) -> None:
    raise ValueError(f"JSON holds {name}; every number must be finite")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("JSON holds an object with a repeated key")
    return result


def _check(data: object, depth: int) -> None:
    """Refuse what JSON cannot hold; `json` converts keys to str and reads 1e999 as infinity."""
    if depth == 0:
        raise ValueError(f"JSON is nested deeper than {MAX_DEPTH} levels")
    if isinstance(data, dict):
        for key, entry in data.items():
            if not isinstance(key, str):
                raise TypeError(f"JSON keys are str; got {type(key).__name__} ({key!r})")
            _check(entry, depth - 1)
    elif isinstance(data, list | tuple):
        for entry in data:
            _check(entry, depth - 1)
    elif isinstance(data, float):
        if data != data or data in (float("inf"), float("-inf")):
            raise ValueError(f"JSON holds {data!r}; every number must be finite")
    elif not (data is None or isinstance(data, str | int)):
        raise TypeError(f"JSON cannot hold {type(data).__name__}")
