"""The choice of a batch list's plan: product by product, or factored."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

from batchkron.operators.factored_list.estimates import direct_multiply_adds, pays
from batchkron.operators.factored_list.program import FactoredList, factored, listing_of
from batchkron.operators.factored_list.stored import StoredGraph, graph_from, wrong_output
from batchkron.spec.kron import BatchSpec

__all__ = ["PlanChoice", "PlanName", "plan_choice", "stored_choice"]

PlanName: TypeAlias = Literal["direct", "factored", "auto"]

_MAX_MODES = 31  # so that each mode has two bits of an int64
# Partial products take at most this many bytes, or 8 times those of x and y. Chosen by hand.
_MAX_BYTES = 1 << 30
_NOT_SHARED = "its products have most of their partial products to themselves"


class PlanChoice(NamedTuple):
    """How a batch list is run.

    Attributes
    ----------
    wanted : {"direct", "factored", "auto"}
        What was asked for.
    listing : FactoredList or None
        The factored list; None for the direct plan.
    reason : str
        A sentence for `describe`; empty if the direct plan was asked for.
    """

    wanted: PlanName
    listing: FactoredList | None
    reason: str

    def without_steps(self) -> PlanChoice:
        """Return the choice with what `with_steps` needs alone."""
        listing = self.listing
        return self if listing is None else self._replace(listing=listing.graph_alone())

    def with_steps(self, spec: BatchSpec) -> PlanChoice:
        """Return the choice with the steps of its graph, for the list that it was made for."""
        listing = self.listing
        if listing is None or listing.sweeps.steps:
            return self
        return self._replace(listing=listing_of(spec, listing.letters, listing.graph))


def plan_choice(spec: BatchSpec, wanted: PlanName) -> PlanChoice:
    """Return how to run a list.

    Raises
    ------
    ValueError
        If the factored plan is asked for and there is none for this list, or ``wanted`` is unknown.
    """
    if wanted not in get_args(PlanName):
        raise ValueError(f"plan is {wanted!r}; expected one of {', '.join(get_args(PlanName))}")
    if wanted == "direct":
        return PlanChoice(wanted, None, "")
    obstacle, listing = _obstacle(spec), None
    if obstacle is None:
        listing = factored(spec, only_if_shared=wanted == "auto")
        obstacle = _NOT_SHARED if listing is None else _too_large(spec, listing)
    if obstacle is not None:
        if wanted == "factored":
            raise ValueError(f"{obstacle}; use plan('direct')")
        return PlanChoice(wanted, None, f"direct; {obstacle}")
    assert listing is not None
    counts = _counted(spec, listing)
    if wanted == "factored" or pays(spec, listing):
        return PlanChoice(wanted, listing, f"factored, {counts}")
    return PlanChoice(wanted, None, f"direct; factored it would be slower: {counts}")


def stored_choice(spec: BatchSpec, stored: StoredGraph) -> PlanChoice:
    """Return a factored plan whose graph is known, by tables with numbers in range.

    Raises
    ------
    ValueError
        If a list of this kind has no factored plan, or the graph is not one of this list.
    """
    obstacle = _obstacle(spec)
    if obstacle is None:
        letters, graph = graph_from(stored, spec)
        wrong = wrong_output(spec, letters, graph)
        if wrong is not None:
            raise ValueError(
                f"the edges do not add up to the list's products of output block {wrong}"
            )
        listing = listing_of(spec, letters, graph)
        obstacle = _too_large(spec, listing)
    if obstacle is not None:
        raise ValueError(obstacle)
    return PlanChoice("factored", listing, f"factored, {_counted(spec, listing)}")


def _obstacle(spec: BatchSpec) -> str | None:
    """Return why a list has no factored plan, if it has none."""
    if spec.systems == 0:
        return "there are no systems"
    for k, pool in enumerate(spec.pools):
        if pool.shape[2] != pool.shape[3] or pool.shape[2] == 0:
            shape = "×".join(map(str, pool.shape[2:]))
            return f"factored plans take square factors, and those of pools[{k}] are {shape}"
    if len(spec.pools) > _MAX_MODES:
        return f"factored plans take up to {_MAX_MODES} modes, and there are {len(spec.pools)}"
    largest = spec.systems * max(spec.num_inputs, spec.num_outputs, len(spec.inputs))
    if largest >= 2**31:
        return f"factored plans take up to 2^31 blocks and products, and there are {largest}"
    return None


def _too_large(spec: BatchSpec, listing: FactoredList) -> str | None:
    """Return why the partial products of a list take too much memory, if they do."""
    item = spec.input_size * spec.dtype.itemsize
    ends = spec.systems * (spec.num_inputs + spec.num_outputs)
    limit = max(_MAX_BYTES, 8 * ends * item)
    if listing.blocks_between * item <= limit:
        return None
    return (
        f"the partial products of a factored plan would take "
        f"{_size(listing.blocks_between * item)}, more than the limit of {_size(limit)}"
    )


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.2f} MiB"


def _counted(spec: BatchSpec, listing: FactoredList) -> str:
    item = spec.input_size * spec.dtype.itemsize
    return (
        f"{listing.sweeps.multiply_adds:,} multiply-adds (product by product "
        f"{direct_multiply_adds(spec):,}), {listing.blocks_between:,} blocks of partial products "
        f"({_size(listing.blocks_between * item)})"
    )
