"""A whole preconditioner on the blocks of an operator's vectors."""

from __future__ import annotations

from typing import Any

from batchkron.attributes import attribute
from batchkron.backends import building_on
from batchkron.distributed.lists.batched_kron import DistributedBatch
from batchkron.distributed.operator import DistributedOperator, distributed_parts
from batchkron.distributed.preconditioners.combination import DistributedCombination
from batchkron.distributed.vectors.layout import Layout
from batchkron.operators import BatchedKron

__all__ = ["is_combination", "like_operator"]


def is_combination(obj: Any) -> bool:
    """Whether an object has full grids to deal out; none of its properties is computed."""
    return callable(getattr(type(obj), "dealt_out", None))


def like_operator(whole: Any, operator: Any) -> DistributedCombination | DistributedBatch:
    """Return a preconditioner on blocks of vectors that an operator takes.

    ``whole``: the whole preconditioner M, on every rank; a batch list is one such as block Jacobi.
    ``operator``: a on blocks: a distributed operator, or a sum, multiple or composition of such.

    Raises `TypeError` if M is of another kind or on another device, or the operator is not
    distributed. `ValueError` if the sizes of the two do not fit.
    """
    parts = distributed_parts(operator)
    if not parts:
        raise TypeError(
            f"like is a {type(operator).__name__}; expected a DistributedOperator, or a sum or "
            "multiple of such"
        )
    layout = _checked_layout(whole, parts)
    if is_combination(whole):
        return DistributedCombination(whole, operator)
    if not isinstance(whole, BatchedKron):
        raise TypeError(
            f"the preconditioner is a {type(whole).__name__}, which cannot be distributed like "
            "another operator; a CombinationPreconditioner or a BatchedKron can"
        )
    spec, size = whole._spec, whole._spec.input_size
    bounds = tuple(bound // size for bound in layout.bounds)
    if spec.num_inputs != spec.num_outputs or layout.bounds != tuple(size * b for b in bounds):
        raise ValueError(
            f"the batch list has blocks of {size} elements, and the operator's ranks own elements "
            f"up to {layout.bounds[1:]}; expected whole blocks on every rank"
        )
    with building_on(parts[0]._backend):
        return DistributedBatch.of(whole, parts[0].ranks, layout.rows, bounds)


def _checked_layout(whole: Any, parts: list[DistributedOperator]) -> Layout:
    """Return the layout of vectors that a preconditioner and an operator's parts have."""
    first, device = parts[0], attribute(whole, "device", "cpu")
    layout, unknowns = first.layout, whole.shape[0]
    if layout.size != unknowns or layout != first.output_layout or layout.moved != 1:
        raise ValueError(
            f"like is an operator on vectors of {layout.size} elements; expected the "
            f"preconditioner's, of {unknowns}, with one layout of consecutive elements"
        )
    if first.device != device:
        raise TypeError(
            f"the preconditioner is on {device!r} and the operator on {first.device!r}; put "
            "both on one device before they are distributed"
        )
    return layout
