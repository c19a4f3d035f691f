"""How our calls stand next to the best peer on random shapes: shares, medians, the worst ten."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.core.tables import duration, groups, table
from benchmarks.random_shapes import PLAIN_SIZE, Draw

WORST = 10  # how many shapes each list of the worst has
NEEDED = {False: 1.0, True: 0.9}  # least ratio to the best peer, by `Draw.plain`
CLASSES = {False: f"d ≥ 2, P < {PLAIN_SIZE}", True: f"d = 1 or P ≥ {PLAIN_SIZE}"}


@dataclass(frozen=True)
class Standing:
    """One way of calling us (``what``) on one shape: our seconds and those of the best peer."""

    draw: Draw
    what: str
    seconds: float
    peer: str
    peer_seconds: float

    @property
    def ratio(self) -> float:
        """How many times as fast as the best peer we are."""
        return self.peer_seconds / self.seconds

    @property
    def margin(self) -> float:
        """The ratio over what is asked for: below 1 where it is missed."""
        return self.ratio / NEEDED[self.draw.plain]


def standing(
    draw: Draw, what: str, seconds: float | None, peers: Mapping[str, float]
) -> Standing | None:
    if seconds is None or not peers:
        return None
    best = min(peers, key=lambda name: peers[name])
    return Standing(draw, what, seconds, best, peers[best])


def figures(standings: Sequence[Standing], plain: bool) -> dict[str, Any]:
    margins = [one.margin for one in standings if one.draw.plain == plain]
    ratios = [one.ratio for one in standings if one.draw.plain == plain]
    if not ratios:
        return {"shapes": 0}
    return {
        "shapes": len(ratios),
        "share": sum(margin >= 1 for margin in margins) / len(margins),
        "median": statistics.median(ratios),
        "least": min(ratios),
    }


def summary(standings: Sequence[Standing], share: float, median: float) -> str:
    """Whether as many shapes are ahead as shall be, for each way of calling us.

    ``share``: of the shapes of d ≥ 2 and P < 64, the others shall all be; ``median``: least of all.
    """
    rows = []
    for what, own in groups(standings, lambda one: one.what).items():
        for plain, name in CLASSES.items():
            found, needed = figures(own, plain), 1.0 if plain else share
            if found["shapes"]:
                ahead = f"{found['share']:.1%} (≥ {needed:.0%})"
                texts = [what, name, found["shapes"], f"≥ {NEEDED[plain]:.1f} ×", ahead]
                texts += [f"{found['median']:.2f}", f"{found['least']:.2f}"]
                rows.append([*texts, "yes" if found["share"] >= needed else "NO"])
        ratios = [one.ratio for one in own]
        middle, least = statistics.median(ratios), min(ratios)
        texts = [what, "all", len(own), f"median ≥ {median:g} ×", "–"]
        met = "yes" if middle >= median else "NO"
        rows.append([*texts, f"{middle:.2f}", f"{least:.2f}", met])
    header = ["call", "shapes", "number", "asked for", "ahead", "median", "least", "met"]
    return table(header, rows)


def worst_tables(standings: Sequence[Standing]) -> str:
    parts = []
    for what, own in groups(standings, lambda one: one.what).items():
        rows = [
            [
                *(one.draw.name, CLASSES[one.draw.plain], duration(one.seconds)),
                *(one.peer, duration(one.peer_seconds), f"{one.ratio:.2f}"),
                f"≥ {NEEDED[one.draw.plain]:.1f}" + (" MISSED" if one.margin < 1 else ""),
            ]
            for one in sorted(own, key=lambda one: one.margin)[:WORST]
        ]
        header = ["shape", "class", "ours", "best peer", "its time", "ratio", "asked for"]
        parts.append(f"### The worst {len(rows)}: {what}\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def standing_records(standings: Sequence[Standing]) -> list[dict[str, Any]]:
    return [
        {
            **{"shape": one.draw.shape.name, "dtype": one.draw.dtype, "call": one.what},
            **{"plain": one.draw.plain, "seconds": one.seconds, "best_peer": one.peer},
            **{"best_peer_seconds": one.peer_seconds, "ratio": one.ratio},
            "needed": NEEDED[one.draw.plain],
        }
        for one in standings
    ]
