"""Variants of batch lists from the store of tuning results, and their search.

"The rule" is the variant that is used without tuning.
"""

from __future__ import annotations

from functools import partial

from batchkron.backends.cuda.batch.bound_list import BoundList
from batchkron.backends.cuda.batch.kernel import BatchShape
from batchkron.backends.cuda.batch.registers import (
    REGISTERS,
    BatchSpace,
    RegisterVariant,
    read_variant,
    registers_kernel,
    written_variant,
)
from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.runtime.device import (
    device_limits,
    device_name,
    load_code,
    prefer_shared_memory,
)
from batchkron.backends.cuda.runtime.kernel_cache import CompiledKernel
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.tuning.store import kept_entry, tuned_version
from batchkron.backends.cuda.tuning.trials import Apply, Trial, is_searched, search_and_keep
from batchkron.backends.cuda.tuning.tuning import Tuning


def batch_key(shape: BatchShape, device: str) -> str:
    """Return the key of a batch list in the store."""
    flags = f"short ids {shape.short_ids}, identities {shape.identities}"
    return f"{device}; list {batch_words(shape)}; {flags}; {tuned_version()}"


def batch_words(shape: BatchShape) -> str:
    """Return a description of a batch list, with sizes in the order of the steps."""
    sizes = [f"{step.K}" if step.C == step.K else f"{step.K}x{step.C}" for step in shape.steps]
    same = len(sizes) > 1 and len(set(sizes)) == 1
    factors = f"{sizes[0]}^{len(sizes)}" if same else ",".join(sizes)
    blocks = f"{shape.num_inputs} to {shape.all_outputs}"
    return f"{shape.all_products} of {factors}, {blocks}, {shape.dtype}"


def planned_kernel(rule: Kernel, device: int) -> Kernel:
    """Return the tuned kernel if the family is tuned and the store has one, else the rule's."""
    if rule.family is not REGISTERS:
        return rule
    entry = kept_entry(batch_key(rule.work, device_name(device)))
    variant = None if entry is None else read_variant(entry.choice)
    if variant is None:
        return rule
    return registers_kernel(rule.work, device_limits(device), variant) or rule


def tuned_batch(batch: BoundList, device: int, tuning: Tuning) -> BoundList:
    """Return a list with the variant that a search, now or earlier, has found.

    Candidates are measured with the list's own matrices and weights. Lists of families that are not
    tuned are returned unchanged.
    """
    shape, limits = batch.shape, device_limits(device)
    if batch.kernel is None or batch.kernel.family is not REGISTERS:
        return batch
    key, words = batch_key(shape, device_name(device)), batch_words(shape)
    rule = registers_kernel(shape, limits)
    if rule is None or is_searched(key, words, tuning):
        return batch
    trial = Trial(
        shape.systems * shape.num_inputs * shape.input_size,
        shape.systems * shape.num_outputs * shape.output_size,
        shape.dtype,
    )

    def prepare(variant: RegisterVariant, code: CompiledKernel) -> Apply:
        kernel = registers_kernel(shape, limits, variant)
        assert kernel is not None, "it was compiled"
        loaded, _ = load_code(code, device)
        prefer_shared_memory(loaded, kernel.launch.carveout)
        candidate = batch.with_kernel(kernel, loaded)
        return lambda x, y: candidate.launch(x, y, shape.systems, 1, 1, False)

    def measure(
        variant: RegisterVariant, compiled: dict[Program, CompiledKernel], best: float
    ) -> float:
        (code,) = compiled.values()
        return trial.measure(partial(prepare, variant, code), best)

    space = BatchSpace(rule, limits)
    search_and_keep(key, words, space, measure, written_variant, device, tuning)
    return batch.with_kernel(planned_kernel(rule, device))
