"""What a run of a state that is spread over ranks cannot have."""

from __future__ import annotations

from typing import Any

from batchkron.attributes import attribute, has_attribute

from .observation.observers import Quantity

__all__ = ["refuse_for_ranks"]


def refuse_for_ranks(
    problem: Any, solver: Any, preconditioner: Any, events: Any, watch: Any, *, saves: bool
) -> None:
    """Raise TypeError for arguments that need the whole state, which ranks share.

    ``saves`` says whether checkpoints are read or written.
    """
    needed = ("gather", "scatter", "content_hash")
    missing = [name for name in needed if attribute(problem, name) is None]
    if saves and missing:
        raise TypeError(
            "checkpoints are files of whole states, and the problem, whose state is spread over "
            f"ranks, has no {missing[0]}; give it {', '.join(needed)}, or leave checkpoint and "
            "resume out."
        )
    if callable(solver):
        raise TypeError(
            "solver is a function, which would solve for each rank's block alone, and the problem "
            "is distributed; name one, such as 'gmres'."
        )
    if isinstance(preconditioner, str) and not has_attribute(problem, "distribute_preconditioner"):
        raise TypeError(
            f"preconditioner is {preconditioner!r}, which is built from the whole operator, and "
            "the problem, whose state is spread over ranks, has no distribute_preconditioner(M, A) "
            "for it; leave it out, or give a distributed operator, one of this rank's block, or a "
            "function (A, c) -> M."
        )
    if callable(events) or len(events):
        raise TypeError(
            "events are functions of the whole state, and the problem is distributed: leave them "
            "out; a callback may gather the state and stop the run."
        )
    for name, given in dict(watch or {}).items():
        measure = given.measure if isinstance(given, Quantity) else given
        if callable(measure) and not attribute(measure, "of_blocks", False):
            raise TypeError(
                f"watch[{name!r}] is a function of the whole state, and the problem is "
                "distributed; give this rank's block of weights, or one of its quantities()."
            )
