"""The choice of a batch list's plan: product by product, or factored."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

from batchkron.operators.factored_list.estimates import direct_multiply_adds, pays
from batchkron.operators.factored_list.program import FactoredList, factored, listing_of
from batchkron.operators.factored_list.stored import StoredPlan, graphs_from, wrong_output
from batchkron.spec.kron import BatchSpec

__all__ = ["PlanChoice", "PlanName", "columns_at_once", "plan_choice", "stored_choice"]

PlanName: TypeAlias = Literal["direct", "factored", "auto"]

_MAX_MODES = 31  # so that each mode has two bits of an int64
# Partial products of a group take at most this many bytes, or 8 times those of x and y; more
# vectors than one together at most this many. Chosen by hand.
_MAX_BYTES, _MAX_SHARE = 1 << 30, 8
_NOT_SHARED = "its products have most of their partial products to themselves"


class PlanChoice(NamedTuple):
    """How a batch list is run.

    ``wanted`` ({"direct", "factored", "auto"}): what was asked for.
    ``listing``: the factored list; None for the direct plan.
    ``reason``: a sentence for `describe`; empty if the direct plan was asked for.
    """

    wanted: PlanName
    listing: FactoredList | None
    reason: str

    def without_steps(self) -> PlanChoice:
        """Return the choice with what `with_steps` needs alone."""
        listing = self.listing
        return self if listing is None else self._replace(listing=listing.graphs_alone())

    def with_steps(self, spec: BatchSpec) -> PlanChoice:
        """Return the choice with the steps of its graphs, for the list that it was made for."""
        listing = self.listing
        if listing is None or listing.groups:
            return self
        return self._replace(listing=listing_of(spec, listing.letters, listing.graphs))


def plan_choice(spec: BatchSpec, wanted: PlanName) -> PlanChoice:
    """Return how to run a list.

    Raises `ValueError` if the factored plan is asked for and there is none for this list, or
    ``wanted`` is unknown.
    """
    if wanted not in get_args(PlanName):
        raise ValueError(f"plan is {wanted!r}; expected one of {', '.join(get_args(PlanName))}")
    if wanted == "direct":
        return PlanChoice(wanted, None, "")
    obstacle, listing = _obstacle(spec), None
    if obstacle is None:
        listing = factored(spec, _max_blocks(spec), only_if_shared=wanted == "auto")
        obstacle = _NOT_SHARED if listing is None else None
    if obstacle is not None:
        if wanted == "factored":
            raise ValueError(f"{obstacle}; use plan('direct')")
        return PlanChoice(wanted, None, f"direct; {obstacle}")
    assert listing is not None
    counts = _counted(spec, listing)
    if wanted == "factored" or pays(spec, listing):
        return PlanChoice(wanted, listing, f"factored, {counts}")
    return PlanChoice(wanted, None, f"direct; factored it would be slower: {counts}")


def stored_choice(spec: BatchSpec, stored: StoredPlan) -> PlanChoice:
    """Return a factored plan whose graphs are known, by tables with numbers in range.

    Raises `ValueError` if a list of this kind has no factored plan, or the graphs are not of this
    list.
    """
    obstacle = _obstacle(spec)
    if obstacle is not None:
        raise ValueError(obstacle)
    letters, graphs = graphs_from(stored, spec)
    wrong = wrong_output(spec, letters, graphs)
    if wrong is not None:
        raise ValueError(f"the edges do not add up to the list's products of output block {wrong}")
    listing = listing_of(spec, letters, graphs)
    if listing.blocks_between > _max_blocks(spec):
        raise ValueError(
            f"a group has {listing.blocks_between} partial products; expected at most "
            f"{_max_blocks(spec)}, so that they take at most 1 GiB, 8 times the bytes of vectors, "
            "or what one product takes"
        )
    return PlanChoice("factored", listing, f"factored, {_counted(spec, listing)}")


def columns_at_once(spec: BatchSpec, listing: FactoredList) -> int:
    """Return how many vectors are multiplied at once, so that partial products take little."""
    return max(1, _MAX_BYTES // max(1, listing.blocks_between * _block_bytes(spec)))


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


def _block_bytes(spec: BatchSpec) -> int:
    return spec.input_size * spec.dtype.itemsize


def _max_blocks(spec: BatchSpec) -> int:
    """Return how many blocks of partial products a group may have, at least those of a product."""
    ends = spec.systems * (spec.num_inputs + spec.num_outputs)
    of_one = spec.systems * (len(spec.pools) - 1)
    return max(_MAX_BYTES // _block_bytes(spec), _MAX_SHARE * ends, of_one)


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.2f} MiB"


def _counted(spec: BatchSpec, listing: FactoredList) -> str:
    groups = f" in {len(listing.groups)} groups" if len(listing.groups) > 1 else ""
    return (
        f"{listing.multiply_adds:,} multiply-adds (product by product "
        f"{direct_multiply_adds(spec):,}){groups}, {listing.blocks_between:,} blocks of partial "
        f"products ({_size(listing.blocks_between * _block_bytes(spec))})"
    )
