"""Tilings of batch lists in registers from the store of tuning results, and their search.

"The rule" is the tiling that is used without tuning.
"""

from __future__ import annotations

from functools import partial

from batchkron.backends.cuda.batch.general import BatchShape
from batchkron.backends.cuda.batch.registers import RegisterTiling
from batchkron.backends.cuda.batch.search_space import (
    BatchCase,
    BatchChoice,
    BatchSpace,
    chosen_tiling,
    read_batch_choice,
    written_batch_choice,
)
from batchkron.backends.cuda.batch.single_vector import AnyTiling, RegisterBatch
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


def batch_key(case: BatchCase, num_inputs: int, device: str) -> str:
    """Return the key of a batch list in the store."""
    flags = f"short ids {case.short_ids}, identities {case.identities}"
    return f"{device}; list {batch_words(case, num_inputs)}; {flags}; {tuned_version()}"


def batch_words(case: BatchCase, num_inputs: int) -> str:
    """Return a description of a batch list, with sizes in the order of the steps."""
    sizes = [f"{step.K}" if step.C == step.K else f"{step.K}x{step.C}" for step in case.steps]
    same = len(sizes) > 1 and len(set(sizes)) == 1
    factors = f"{sizes[0]}^{len(sizes)}" if same else ",".join(sizes)
    return f"{case.products} of {factors}, {num_inputs} to {case.outputs}, {case.dtype}"


def _case(tiling: RegisterTiling, shape: BatchShape, device: int) -> BatchCase:
    return BatchCase(
        shape.steps,
        shape.dtype,
        shape.systems * shape.num_outputs,
        shape.systems * shape.products,
        tiling.short_ids,
        tiling.identities,
        device_limits(device),
    )


def planned_tiling(rule: AnyTiling, shape: BatchShape, device: int) -> AnyTiling:
    """Return the tuned tiling if the store has one, else the rule's.

    Only `RegisterTiling` is tuned; other tilings are always the rule's.
    """
    if not isinstance(rule, RegisterTiling):
        return rule
    case = _case(rule, shape, device)
    entry = kept_entry(batch_key(case, shape.num_inputs, device_name(device)))
    choice = None if entry is None else read_batch_choice(entry.choice)
    return rule if choice is None else chosen_tiling(choice, case) or rule


def tuned_batch(
    registers: RegisterBatch, shape: BatchShape, device: int, tuning: Tuning
) -> RegisterBatch:
    """Return a list with the tiling that a search, now or earlier, has found.

    Candidates are measured with the list's own matrices and weights. Lists whose rule is not a
    `RegisterTiling` are returned unchanged.
    """
    if not isinstance(registers.tiling, RegisterTiling):
        return registers
    case = _case(registers.tiling, shape, device)
    key = batch_key(case, shape.num_inputs, device_name(device))
    words, rule = batch_words(case, shape.num_inputs), case.by_the_rule()
    if rule is None or is_searched(key, words, tuning):
        return registers
    trial = Trial(
        shape.systems * shape.num_inputs * shape.input_size,
        shape.systems * shape.num_outputs * shape.output_size,
        shape.dtype,
    )

    def prepare(choice: BatchChoice, code: CompiledKernel) -> Apply:
        tiling = chosen_tiling(choice, case)
        assert tiling is not None, "it was compiled"
        kernel, _ = load_code(code, device)
        prefer_shared_memory(kernel, tiling.carveout)
        candidate = registers.cut_as(tiling, kernel)
        return lambda x, y: candidate.run(x, y, shape.systems, 1, False)

    def measure(choice: BatchChoice, compiled: dict[Program, CompiledKernel], best: float) -> float:
        (code,) = compiled.values()
        return trial.measure(partial(prepare, choice, code), best)

    space = BatchSpace(case, rule)
    search_and_keep(key, words, space, measure, written_batch_choice, device, tuning)
    found = planned_tiling(rule, shape, device)
    assert isinstance(found, RegisterTiling)
    return registers.cut_as(found)
