"""Kernels of Kron-Matmuls from the store of tuning results, and their search.

"The rule" is the choice that is used without tuning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.kernel_family import enabled
from batchkron.backends.cuda.kron.choose import fastest_plan, product_of
from batchkron.backends.cuda.kron.families import FAMILIES
from batchkron.backends.cuda.kron.program import Load
from batchkron.backends.cuda.kron.registers.variants import factor_words
from batchkron.backends.cuda.kron.search_space import (
    KronChoice,
    KronSpace,
    choice_of,
    chosen_kernels,
    read_kron_choice,
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
from batchkron.backends.cuda.steps import MAX_MULTIPLIED_IDENTITY
from batchkron.backends.cuda.tuning.store import kept_entry, tuned_version
from batchkron.backends.cuda.tuning.trials import (
    TF32_ROUNDING,
    Apply,
    Trial,
    is_searched,
    random_values,
    search_and_keep,
)
from batchkron.backends.cuda.tuning.tuning import Tuning
from batchkron.spec.kron import Array, KronSpec

Prepare = Callable[[tuple[Kernel, ...], Sequence[DeviceArray], Load], Apply]


def kron_key(spec: KronSpec, constant: bool, device: str) -> str:
    """Return the key of a Kron-Matmul in the store."""
    sizes = [f"{K}x{C}" for K, C in zip(spec.outputs, spec.inputs, strict=True)]
    for mode, skipped in enumerate(spec.skipped):
        sizes[mode] = f"I{spec.inputs[mode]}" if skipped else sizes[mode]
    factors = ",".join(sizes)
    where = "constant" if constant else "read"
    vectors = f"outer {spec.outer}, inner {spec.inner}, {spec.dtype} {spec.precision}"
    return f"{device}; kron {factors}, {where} factors; {vectors}; {tuned_version()}"


def kron_words(spec: KronSpec, constant: bool) -> str:
    """Return a description of a Kron-Matmul for the user, such as "1024: 8^5 float32 operator"."""
    pairs = zip(spec.inputs, spec.outputs, strict=True)
    sizes = [str(C) if C == K else f"{C}x{K}" for C, K in pairs]
    same = len(sizes) > 1 and len(set(sizes)) == 1
    factors = f"{sizes[0]}^{len(sizes)}" if same else ",".join(sizes)
    columns = f" by {spec.inner}" if spec.inner > 1 else ""
    kind = "operator" if constant else "function"
    precision = "" if spec.precision is None else f" as {spec.precision}"
    return f"{spec.outer}: {factors}{columns} {spec.dtype}{precision} {kind}"


def planned_kernels(spec: KronSpec, constant: bool, device: int) -> tuple[Kernel, ...]:
    """Return the tuned kernels if the store has some, else the rule's."""
    case = product_of(spec, constant), device_limits(device)
    if enabled(FAMILIES) != FAMILIES:
        return fastest_plan(*case)  # what is stored may have a family that is switched off
    entry = kept_entry(kron_key(spec, constant, device_name(device)))
    choice = None if entry is None else read_kron_choice(entry.choice)
    kernels = None if choice is None else chosen_kernels(choice, *case)
    return fastest_plan(*case) if kernels is None else kernels


def tune_kron(
    spec: KronSpec, constant: bool, device: int, prepare: Prepare, tuning: Tuning
) -> bool:
    """Search a Kron-Matmul's kernels, run by ``prepare``, unless that was done; say if so."""
    case = product_of(spec, constant), device_limits(device)
    key, shape = kron_key(spec, constant, device_name(device)), kron_words(spec, constant)
    if is_searched(key, shape, tuning):
        return False
    rounding = TF32_ROUNDING if spec.precision == "tf32" else None
    vectors = spec.outer * spec.inner
    rows, columns = vectors * math.prod(spec.outputs), vectors * math.prod(spec.inputs)
    trial = Trial(columns, rows, spec.dtype, rounding)
    host = random_factors(spec)
    factors = place(host)

    def measure(choice: KronChoice, compiled: dict[Program, CompiledKernel], best: float) -> float:
        kernels = chosen_kernels(choice, *case)
        assert kernels is not None, "it was compiled"
        loaded = LoadedKernels(compiled, host, device)
        return trial.measure(lambda: prepare(kernels, factors, loaded.load), best)

    space = KronSpace(*case, choice_of(fastest_plan(*case)))
    search_and_keep(key, shape, space, measure, written_kron_choice, device, tuning)
    return True


def random_factors(spec: KronSpec) -> list[Array]:
    """Return host factors that keep a vector's norm; numbers in the place of large identities."""
    shapes = list(zip(spec.outputs, spec.inputs, strict=True))
    for mode, skipped in enumerate(spec.skipped):
        if skipped and spec.inputs[mode] > MAX_MULTIPLIED_IDENTITY:
            shapes[mode] = (1, 1)
    return [
        random_values((K, C), spec.dtype, mode) / spec.dtype.type(C**0.5)
        for mode, (K, C) in enumerate(shapes)
    ]


class LoadedKernels:
    """The kernels of a candidate, loaded from compiled code as long as this object exists."""

    def __init__(
        self, compiled: dict[Program, CompiledKernel], factors: Sequence[Array], device: int
    ) -> None:
        self._compiled, self._factors, self._device = compiled, factors, device
        self._alive: list[Any] = []

    def load(self, kernel: Kernel) -> Any:
        """Return a kernel as a CuPy function, with its factors in constant memory if it has one."""
        code = self._compiled[kernel.program]
        if not kernel.program.constants:
            loaded = load_code(code, self._device)
            self._alive.append(loaded)
            return loaded[0]
        own = ConstantKernel(kernel.program, self._device, code)
        own.set_constants(factor_words([self._factors[mode] for mode in kernel.modes]))
        self._alive.append(own)
        return own.function
