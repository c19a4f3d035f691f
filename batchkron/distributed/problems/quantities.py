"""Quantities of a state of which each rank has a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from batchkron.attributes import attribute
from batchkron.distributed.communication.communicator import Communicator
from batchkron.distributed.vectors.layout import Layout
from batchkron.spec.kron import Array

__all__ = ["block_quantities"]


class _InBlocks(Protocol):
    """What is needed of a `DistributedProblem`."""

    layout: Layout

    @property
    def whole(self) -> Any: ...

    @property
    def communicator(self) -> Communicator: ...

    def gather(self, u: Any, root: None = None) -> Array: ...


@dataclass(frozen=True, eq=False)
class BlockQuantity:
    """A quantity of the whole state that blocks are gathered to, the same number on all ranks.

    ``whole``: the quantity, a function of (t, u), of the problem that was distributed.
    ``problem``: what it was distributed to.
    """

    whole: Any
    problem: _InBlocks

    of_blocks = True  # `evolve` measures it with each rank's block

    @property
    def label(self) -> str:
        """What it is, as a formula."""
        return str(attribute(self.whole, "label", ""))

    @property
    def unit(self) -> str:
        """Its unit, empty if there is none."""
        return str(attribute(self.whole, "unit", ""))

    def __call__(self, t: float, u: Array) -> float:
        """Return its value; all ranks call it together."""
        value = self.whole(t, self.problem.gather(u))
        return float(self.problem.communicator.broadcast(value, 0))  # one rounding for all ranks

    def for_problem(self, problem: _InBlocks) -> BlockQuantity:
        """Return the quantity for the same problem on another grid."""
        if problem is self.problem:
            return self
        return BlockQuantity(self.whole.for_problem(problem.whole), problem)


def block_quantities(problem: _InBlocks, names: tuple[str, ...]) -> dict[str, Any]:
    """Return quantities of a distributed problem by their names, weights as this rank's block.

    Raises `TypeError` if the whole problem has none.
    """
    make, rank = attribute(problem.whole, "quantities"), problem.communicator.rank
    if make is None:
        raise TypeError(
            f"a {type(problem.whole).__name__} has no quantities by name; give watch this rank's "
            "block of weights, as scatter(weights) returns it"
        )
    return {
        name: BlockQuantity(one, problem) if callable(one) else problem.layout.block_of(one, rank)
        for name, one in make(*names).items()
    }
