"""How a batch list runs in registers on a device: as tuning has found, or by the rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batchkron.backends.cuda.device import device_name, load_code, prefer_shared_memory
from batchkron.backends.cuda.trials import Apply, Trial, is_searched, search_and_keep
from batchkron.backends.device_batch_choices import (
    BatchCase,
    BatchChoice,
    BatchSpace,
    chosen_tiling,
    read_batch_choice,
    written_batch_choice,
)
from batchkron.backends.device_batches import RegisterTiling
from batchkron.backends.device_programs import Program
from batchkron.backends.kernel_cache import CompiledKernel
from batchkron.backends.tuning import Tuning
from batchkron.backends.tuning_store import kept_entry
from batchkron.storage.provenance import batchkron_version

Prepare = Callable[[RegisterTiling, Any], Apply]  # from a tiling and its kernel to a call


def batch_key(case: BatchCase, num_inputs: int, device: str) -> str:
    """Return what a batch list is found by in the store."""
    flags = f"short ids {case.short_ids}, identities {case.identities}"
    return f"{device}; list {batch_words(case, num_inputs)}; {flags}; {batchkron_version()}"


def batch_words(case: BatchCase, num_inputs: int) -> str:
    """Return a batch list in words, sizes in the order of the steps."""
    sizes = [f"{step.K}" if step.C == step.K else f"{step.K}x{step.C}" for step in case.steps]
    same = len(sizes) > 1 and len(set(sizes)) == 1
    factors = f"{sizes[0]}^{len(sizes)}" if same else ",".join(sizes)
    return f"{case.products} of {factors}, {num_inputs} to {case.outputs}, {case.dtype}"


def planned_tiling(case: BatchCase, num_inputs: int, device: int) -> RegisterTiling | None:
    """Return how a list runs, None where it does not run in registers."""
    entry = kept_entry(batch_key(case, num_inputs, device_name(device)))
    choice = None if entry is None else read_batch_choice(entry.choice)
    tiling = None if choice is None else chosen_tiling(choice, case)
    return case.by_the_rule() if tiling is None else tiling


def tune_batch(
    case: BatchCase,
    num_inputs: int,
    sizes: tuple[int, int],
    device: int,
    prepare: Prepare,
    tuning: Tuning,
) -> bool:
    """Search how a list runs unless that was done before; return whether it was now.

    ``sizes``: the elements of x and of y. ``prepare`` makes a call of a tiling's kernel.
    """
    key = batch_key(case, num_inputs, device_name(device))
    shape, rule = batch_words(case, num_inputs), case.by_the_rule()
    if rule is None or is_searched(key, shape, tuning):
        return False
    trial = Trial(*sizes, case.dtype)

    def measure(choice: BatchChoice, compiled: dict[Program, CompiledKernel], best: float) -> float:
        tiling = chosen_tiling(choice, case)
        assert tiling is not None, "it was compiled"
        (code,) = compiled.values()

        def ready() -> Apply:
            kernel, _ = load_code(code, device)
            prefer_shared_memory(kernel, tiling.carveout)
            return prepare(tiling, kernel)

        return trial.measure(ready, best)

    space = BatchSpace(case, rule)
    search_and_keep(key, shape, space, measure, written_batch_choice, device, tuning)
    return True
