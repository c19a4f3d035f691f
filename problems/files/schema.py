"""The datasets and attributes of a problem file."""

from __future__ import annotations

from batchkron.storage.schema import Field, provenance_paths

__all__ = ["ATTRIBUTES", "FORMAT", "OPTIONAL_ATTRIBUTES", "check_counts", "problem_fields"]

FORMAT = "batchkron-problem"
"""The format's name, the attribute "format" of a problem file."""

ATTRIBUTES: dict[str, type] = {"basis_id": str, "degree": int, "t0": float}
"""Attributes of the root group beside those that all formats have, with their types."""

OPTIONAL_ATTRIBUTES: dict[str, type] = {"well_posed_until": float, "limiter": str}
"""Attributes of the root group that a file may lack."""

_MAX_FACTORS = 1 << 15  # 1-D factors of all terms, of all sources, or of all parts


def check_counts(terms: int, sources: int, parts: int, dimensions: int) -> None:
    """Refuse so many terms, sources or parts of the exact solution that loading would take long.

    Many equal ones compress to a small file, but each of them has to be built.
    """
    for group, count in (("terms", terms), ("sources", sources), ("exact", parts)):
        if count * dimensions > _MAX_FACTORS:
            raise ValueError(
                f"dataset '{group}/time' has {count} functions for {dimensions} axes; expected at "
                f"most {_MAX_FACTORS // dimensions}"
            )


def problem_fields(dimensions: int) -> dict[str, Field]:
    """Return the datasets of a problem file.

    Parameters
    ----------
    dimensions : int
        Number of axes.

    Returns
    -------
    dict of str to Field
        The datasets by path. The names in the shapes are the numbers of axes (d), of functions per
        cell and axis (the largest is n, that of axis k is n_k), of cells of the grid (blocks), of
        distinct 1-D operators (operators), of pairs of cells for which an operator has a block
        (pairs), of terms, of sources, of parts of the exact solution (parts), of sources that are
        functions of all axes (functions), of functions of the state (at_points), of boundary data
        that are functions (edges) and of their coefficients (edge_coefficients), of parts of
        electric fields, of terms that do not act on functions of the state (own_terms), of formulas
        (fields), of modes that are fields, of those that are derivatives, of values of functions in
        fields (samples), of unknowns, and of coefficients (size_k), finest cells (cells_k) and
        Gauss points in each (points_k) along axis k.

    Examples
    --------
    >>> problem_fields(2)["sources/factor_1"].shape
    ('sources', 'size_1')
    """
    one = Field("text", (1,))
    fields = {
        "name": one,
        "axes/name": Field("text", ("d",)),
        "axes/lower": Field("float64", ("d",)),
        "axes/upper": Field("float64", ("d",)),
        "basis/filters": Field("float64", (4, "n", "n")),
        "basis/degrees": Field("int64", ("d",), "degrees"),
        "grid/kind": one,
        "grid/levels": Field("int64", ("d",)),
        "grid/cells": Field("int64", ("blocks", "d")),
        "operators/level": Field("int64", ("operators",)),
        "operators/offsets": Field("int64", ("operators_and_end",)),
        "operators/rows": Field("int64", ("pairs",)),
        "operators/columns": Field("int64", ("pairs",)),
        "operators/blocks": Field("float64", ("pairs", "n", "n")),
        "terms/operators": Field("int64", ("terms", "d")),
        "terms/one_sided": Field("int64", ("terms",)),
        "terms/time": Field("text", ("terms",)),
        "fields/formula": Field("text", ("fields",), "fields"),
        "fields/modes": Field("int64", ("field_modes", 4), "fields"),
        "fields/samples": Field("float64", ("samples",), "fields"),
        "fields/derivatives": Field("int64", ("derivatives", 5), "derivatives"),
        "fields/derivative_scales": Field("float64", ("derivatives",), "derivatives"),
        "adapt/rule": Field("text", (1,), "adapt"),
        "gains/maxwellian": Field("text", ("gains",), "gains"),
        "sources/time": Field("text", ("sources",)),
        "pointwise/formula": Field("text", ("at_points",), "pointwise"),
        "pointwise/extra": Field("int64", ("at_points",), "pointwise"),
        "pointwise/linear": Field("int64", ("at_points",), "pointwise"),
        "pointwise/of_term": Field("int64", ("terms",), "pointwise"),
        "electric/field": Field("text", ("electric_fields",), "electric"),
        "electric/of_term": Field("int64", ("own_terms",), "electric"),
        "pointwise/speed": Field("text", ("at_points",), "pointwise_speed"),
        "pointwise/derivative": Field("text", ("at_points",), "pointwise_derivative"),
        "pointwise/grows": Field("int64", ("at_points",), "pointwise_grows"),
        "pointwise/fields": Field("text", ("fields_at_points",), "pointwise_fields"),
        "pointwise/samples": Field("float64", ("samples_at_points",), "pointwise_fields"),
        "edges/formula": Field("text", ("edges",), "edges"),
        "edges/place": Field("int64", ("edges", 2), "edges"),
        "edges/along": Field("float64", ("edge_coefficients",), "edges"),
        "sources/functions": Field("text", ("functions",), "functions"),
        "sources/explicit": Field("int64", ("sources",), "explicit"),
        "exact/time": Field("text", ("parts",), "exact"),
        "exact/remainders": Field("float64", ("d", "parts", "parts"), "exact"),
        "initial": Field("float64", ("unknowns",)),
        "stepper/method": one,
        "stepper/dt": Field("float64", (1,)),
        "stepper/until": Field("float64", (1,)),
        "units": one,
    }
    for k in range(dimensions):
        fields[f"sources/factor_{k}"] = Field("float64", ("sources", f"size_{k}"))
        fields[f"masses/axis_{k}"] = Field(
            "float64", (f"cells_{k}", f"n_{k}", f"n_{k}"), f"masses_{k}"
        )
        fields[f"fields/volume_{k}"] = Field(
            "float64", (f"cells_{k}", f"points_{k}"), f"fields_volume_{k}"
        )
        fields[f"exact/factor_{k}"] = Field("float64", ("parts", f"size_{k}"), "exact")
    return fields | provenance_paths(["problem", "file"])
