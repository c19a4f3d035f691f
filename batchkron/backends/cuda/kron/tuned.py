"""Which kernels a Kron-Matmul has on a device: those that tuning has found, or the rule's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from batchkron.backends.cuda.kron.choose import KronGroup, kron_group_program
from batchkron.backends.cuda.kron.registers.tile import RegisterGroup, factor_words
from batchkron.backends.cuda.kron.search_space import (
    KronCase,
    KronChoice,
    KronSpace,
    chosen_groups,
    read_kron_choice,
    rule_choice,
    written_kron_choice,
)
from batchkron.backends.cuda.runtime.device import (
    ConstantKernel,
    DeviceArray,
    device_limits,
    device_name,
    load_code,
    place,
)
from batchkron.backends.cuda.runtime.kernel_cache import CompiledKernel
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.tuning.store import kept_entry, tuned_version
from batchkron.backends.cuda.tuning.trials import (
    Apply,
    Trial,
    is_searched,
    random_values,
    search_and_keep,
)
from batchkron.backends.cuda.tuning.tuning import Tuning
from batchkron.spec.kron import Array, KronSpec

_TF32_ROUNDING = 2.0**-16  # so that results may differ by some roundings to 11 bits
Load = Callable[[KronGroup], Any]  # from a group to its kernel as a CuPy function
Prepare = Callable[[tuple[KronGroup, ...], Sequence[DeviceArray], Load], Apply]


def kron_key(case: KronCase, device: str) -> str:
    """Return what a Kron-Matmul is found by in the store."""
    factors = ",".join(f"{K}x{C}" for K, C in zip(case.outputs, case.inputs, strict=True))
    where = "constant" if case.constant else "read"
    vectors = f"outer {case.outer}, inner {case.inner}, {case.dtype} {case.precision}"
    return f"{device}; kron {factors}, {where} factors; {vectors}; {tuned_version()}"


def kron_words(case: KronCase) -> str:
    """Return a Kron-Matmul as people write it, "1024: 8^5 float32"."""
    pairs = zip(case.inputs, case.outputs, strict=True)
    sizes = [str(C) if C == K else f"{C}x{K}" for C, K in pairs]
    same = len(sizes) > 1 and len(set(sizes)) == 1
    factors = f"{sizes[0]}^{len(sizes)}" if same else ",".join(sizes)
    columns = f" by {case.inner}" if case.inner > 1 else ""
    kind = "operator" if case.constant else "function"
    precision = "" if case.precision is None else f" as {case.precision}"
    return f"{case.outer}: {factors}{columns} {case.dtype}{precision} {kind}"


def _case(spec: KronSpec, constant: bool, device: int) -> KronCase:
    shape = spec.inputs, spec.outputs, spec.outer, spec.inner, spec.dtype
    return KronCase(*shape, constant, device_limits(device), spec.precision)


def planned_groups(spec: KronSpec, constant: bool, device: int) -> tuple[KronGroup, ...] | None:
    """Return the kernels of a Kron-Matmul, None where it takes the general ones.

    ``constant``: the factors may be constants of the kernels.
    """
    case = _case(spec, constant, device)
    entry = kept_entry(kron_key(case, device_name(device)))
    choice = None if entry is None else read_kron_choice(entry.choice)
    groups = None if choice is None else chosen_groups(choice, case)
    return case.by_the_rule() if groups is None else groups


def tune_kron(
    spec: KronSpec, constant: bool, device: int, prepare: Prepare, tuning: Tuning
) -> bool:
    """Search the kernels of a Kron-Matmul unless that was done before; return whether it was now.

    ``prepare`` makes a call of kernels with factors on the device.
    """
    case = _case(spec, constant, device)
    key, shape = kron_key(case, device_name(device)), kron_words(case)
    rule = rule_choice(case)
    if rule is None or is_searched(key, shape, tuning):
        return False
    rows, columns = _sizes(case)
    rounding = _TF32_ROUNDING if case.precision == "tf32" else None
    trial = Trial(columns, rows, case.dtype, rounding)
    host = [
        random_values((K, C), case.dtype, mode) / case.dtype.type(C**0.5)
        for mode, (K, C) in enumerate(zip(case.outputs, case.inputs, strict=True))
    ]
    factors = place(host)

    def measure(choice: KronChoice, compiled: dict[Program, CompiledKernel], best: float) -> float:
        groups = chosen_groups(choice, case)
        assert groups is not None, "it was compiled"
        kernels = _Kernels(case, compiled, host, device)
        return trial.measure(lambda: prepare(groups, factors, kernels.load), best)

    search_and_keep(key, shape, KronSpace(case, rule), measure, written_kron_choice, device, tuning)
    return True


def _sizes(case: KronCase) -> tuple[int, int]:
    """Return the elements of the result and of the vectors."""
    rows = columns = case.outer * case.inner
    for K, C in zip(case.outputs, case.inputs, strict=True):
        rows, columns = rows * K, columns * C
    return rows, columns


class _Kernels:
    """Compiled kernels of a candidate, which live as long as this."""

    def __init__(
        self,
        case: KronCase,
        compiled: dict[Program, CompiledKernel],
        factors: Sequence[Array],
        device: int,
    ) -> None:
        self._case, self._compiled = case, compiled
        self._factors, self._device = factors, device
        self._alive: list[Any] = []

    def load(self, group: KronGroup) -> Any:
        """Return a group's kernel; its constants are the factors."""
        program = kron_group_program(group, self._case.dtype)
        code = self._compiled[program]
        if not (isinstance(group, RegisterGroup) and group.tile.constant):
            loaded = load_code(code, self._device)
            self._alive.append(loaded)
            return loaded[0]
        kernel = ConstantKernel(program, self._device, code)
        kernel.set_constants(factor_words([self._factors[mode] for mode in group.tile.modes]))
        self._alive.append(kernel)
        return kernel.function
