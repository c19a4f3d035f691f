"""Whether cells reach what their regimes ask for, and what is printed of them."""

from collections.abc import Mapping

from benchmarks.core.tables import words
from benchmarks.core.timing import OURS
from benchmarks.cpu.regimes import MIN_SECONDS, MIN_SPEEDUP
from benchmarks.shapes import Explicit


def target(value=None, needed=None, against="", note=""):
    """One number and what it must be at least, if anything is asked for.

    ``against`` names the peer or the ceiling; ``note`` says what is special about the number.
    """
    return {"value": value, "needed": needed, "against": against, "note": note}


def is_met(one):
    """Whether the number suffices; None where it should have been measured and was not."""
    if one["needed"] is None:
        return True
    return None if one["value"] is None else one["value"] >= one["needed"]


def verdict(regime, cell, threads, ratio, share=None):
    """Whether all that is asked for is reached; None where a part of it was not measured."""
    parts, ours = {is_met(one) for one in (ratio, share) if one}, cell.ours(threads)
    is_known = ours is not None and (False in parts or None not in parts)
    found = {"regime": regime, "shape": cell.key.shape.name, "dtype": cell.key.dtype}
    found |= {"threads": threads, "ratio": ratio, "met": False not in parts if is_known else None}
    return found if share is None else {**found, "ours": ours, "share": share}


def ceiling_seconds(cell, name, ceilings):
    """The time of a cell at a ceiling; "traffic" of an explicit product is only written."""
    if name in ("gemm", "fma"):
        return cell.flops / ceilings[f"{name} {cell.key.dtype}"]
    return cell.traffic / ceilings[name]


def binding_ceiling(cell, ceilings, flops="gemm"):
    """The time at the ceiling that the cell meets first, and its name."""
    traffic = "write" if isinstance(cell.measured, Explicit) else "bandwidth"
    names = [flops, traffic] if cell.beyond_cache else [flops]
    return max((ceiling_seconds(cell, name, ceilings), name) for name in names)


def share_of_machine(regime, cell, threads, ceilings):
    seconds = cell.ours(threads)
    if seconds is None or cell.measured is None:
        return target()
    bounds = [one for one in regime.machine if one.threads in (None, threads)]
    if not bounds:
        least, name = binding_ceiling(cell, ceilings)
        return target(least / seconds, None, name)

    def allowed(bound):
        if bound.ceiling:
            return ceiling_seconds(cell, bound.ceiling, ceilings) / bound.fraction
        return bound.seconds + cell.flops / bound.flops_per_second

    bound = max(bounds, key=allowed)
    against = bound.ceiling or f"{1e6 * allowed(bound):.2f} µs"
    return target(bound.fraction * allowed(bound) / seconds, bound.fraction, against)


def ratio_to_peers(regime, cell, threads, ceilings):
    """How many times as fast we are as the peer whose required ratio is hardest to reach."""
    seconds, asked = cell.ours(threads), regime.ratio.get(cell.key.dtype)
    if seconds is None or asked is None:
        return target()
    named = asked if isinstance(asked, Mapping) else {}
    floor, _ = binding_ceiling(cell, ceilings, "fma")
    targets, peers = [], {k: v for k, v in cell.medians(threads).items() if k != OURS}
    for name, time in peers.items():
        needed = asked if not isinstance(asked, Mapping) else named.get(name, 1.0)
        if needed and time / needed >= floor:
            targets.append(target(time / seconds, needed, name))
        elif needed:
            note = f"{needed:g} × is beyond the machine"
            targets.append(target(time / seconds, 1.0, name, note))
    if not targets:
        return target(None, 1.0, "", "no peer was measured")
    hardest = min(targets, key=lambda one: one["value"] / one["needed"])
    absent = {name for name, ratio in named.items() if ratio} - set(peers)
    if absent and is_met(hardest):
        note = f"{', '.join(sorted(absent))} was not measured"
        return target(None, hardest["needed"], hardest["against"], note)
    return hardest


def judge(regime, cells, ceilings):
    found = []
    for cell in cells:
        for threads in cell.key.threads:
            given = regime, cell, threads, ceilings[threads]
            parts = ratio_to_peers(*given), share_of_machine(*given)
            found.append((cell, verdict(regime.name, cell, threads, *parts)))
    return found


def speedups(cells, ceilings):
    """The gain from one thread to more of all cells with enough work, beside the ceiling's."""
    for cell in cells:
        alone = cell.ours(1)
        if alone is None or alone < MIN_SECONDS:
            continue
        one, name = binding_ceiling(cell, ceilings[1])
        for threads in cell.key.threads:
            together = cell.ours(threads)
            if threads > 1 and together is not None:
                needed = MIN_SPEEDUP * one / ceiling_seconds(cell, name, ceilings[threads])
                yield verdict("threads", cell, threads, target(alone / together, needed, name))


def lines(judged):
    """A line for each verdict, with all times; then what was left out, or failed, and why."""
    absent = {}
    for cell, own in judged:
        seconds = cell.medians(own["threads"])
        yield words({**own, "shape": cell.label, "seconds": seconds})
        for one in cell.results:
            if one["kind"] == "failure" or (one["kind"] == "absent" and one["variant"]):
                text = f"{one['name']} {one['variant']}: {one['reason']}"
                absent[f"{cell.label}, {cell.key.dtype}: {text}"] = None
    yield from absent


def cell_record(cell):
    key = cell.key
    record = {"shape": key.shape.name, "dtype": key.dtype, "cold": key.cold}
    record |= {"threads": key.threads, "results": cell.results}
    if cell.measured is not None:
        record |= {"measured_shape": cell.measured.name, "flops": cell.flops}
        record["traffic_bytes"] = cell.traffic
    return record
