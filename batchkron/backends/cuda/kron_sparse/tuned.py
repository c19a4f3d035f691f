"""Ways to multiply by Kronecker-sparse matrices from the store of tuning results, and their search.

"The rule" is the way of least estimated time, which is used without tuning. Numbers of 16 bits of
either kind take as long: what is found for float16 is for bfloat16, too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from batchkron.backends.cuda.kron_sparse.kernel import HALF_DTYPES, SparseShape, Stored
from batchkron.backends.cuda.kron_sparse.launches import product_steps
from batchkron.backends.cuda.kron_sparse.search_space import (
    SparseSpace,
    WayChoice,
    read_choice,
    way_of,
)
from batchkron.backends.cuda.kron_sparse.stored import stored_values
from batchkron.backends.cuda.kron_sparse.transposed import (
    Way,
    stored_of,
    workspace_of,
)
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    cupy,
    device_limits,
    device_name,
    load_code,
    ready_stream,
)
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.kernel_cache import CompiledKernel
from batchkron.backends.cuda.runtime.launch import LaunchSequence, Place
from batchkron.backends.cuda.runtime.program import Program
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

# Unit of rounding of results in float16 (`Trial` allows 1000): 4 units of its last place together.
_HALF_ROUNDING = 2.0**-18


def tuned_way(shape: SparseShape, device: DeviceLimits) -> Way | None:
    """Return the way in the store; None without one, or if it is switched off."""
    entry = kept_entry(sparse_key(shape, device.name))
    choice = None if entry is None else read_choice(entry.choice)
    return None if choice is None else way_of(choice, shape, device)


def tune_sparse(shape: SparseShape, device: int, tuning: Tuning) -> bool:
    """Search the fastest way for y = A x, unless that was done; return whether it was now."""
    key, words = sparse_key(shape, device_name(device)), sparse_words(shape)
    if is_searched(key, words, tuning):
        return False
    shape, limits = _searched(shape), device_limits(device)
    dtype = np.dtype(shape.dtype)
    vectors = shape.columns * shape.a * shape.d
    rounding = _HALF_ROUNDING if dtype.itemsize == 2 else None
    rounding = TF32_ROUNDING if shape.products == 1 else rounding
    trial = Trial(vectors * shape.c, vectors * shape.b, dtype, rounding)
    host = random_values((shape.a, shape.b, shape.c, shape.d), dtype) / dtype.type(shape.c**0.5)
    values: dict[Stored, DeviceArray] = {}
    space = SparseSpace(shape, limits)

    def measure(choice: WayChoice, compiled: dict[Program, CompiledKernel], best: float) -> float:
        way = space.ways[choice]
        stored = stored_of(way)

        def prepare() -> Apply:
            if stored not in values:  # on the stream of the trial, whose launches read them
                values[stored] = cupy.asarray(stored_values(host, stored))
            return _prepared(way, values[stored], compiled, device)

        return trial.measure(prepare, best)

    search_and_keep(key, words, space, measure, list, device, tuning)
    return True


def _prepared(
    way: Way, values: DeviceArray, compiled: dict[Program, CompiledKernel], device: int
) -> Apply:
    """Return the product of a way whose kernels are compiled."""
    places = [Place(number) for number in range(4)]
    loaded = {program: load_code(code, device)[0] for program, code in compiled.items()}
    launch = LaunchSequence(product_steps(way, device, *places, load=loaded.__getitem__), 4)
    workspace = cupy.empty(workspace_of(way), np.uint8)

    def apply(x: int, y: int) -> None:
        launch(ready_stream(device), (x, y, values.data.ptr, workspace.data.ptr), b"")

    return apply


def _searched(shape: SparseShape) -> SparseShape:
    return replace(shape, dtype="float16") if shape.dtype in HALF_DTYPES else shape


def sparse_key(shape: SparseShape, device: str) -> str:
    """Return the key of a product in the store."""
    one = _searched(shape)
    pattern = f"{one.a},{one.b},{one.c},{one.d}"
    vectors = f"outer {one.outer}, inner {one.inner}, {one.dtype} {one.products}"
    return f"{device}; sparse {pattern}; {vectors}, aligned {one.alignment}; {tuned_version()}"


def sparse_words(shape: SparseShape) -> str:
    """Return a description of a product for the user, "512: (1,64,64,2) batch-last float32"."""
    pattern = f"({shape.a},{shape.b},{shape.c},{shape.d})"
    sizes = [f"{shape.outer}", f"{shape.inner}"] if shape.outer > 1 < shape.inner else []
    vectors = " × ".join(sizes) or str(shape.columns)
    layout = "batch-last" if shape.outer == 1 else "batch-first"
    precision = {0: "", 1: " as tf32", 3: " as tf32x3"}[shape.products]
    return f"{vectors}: {pattern} {layout} {shape.dtype}{precision}"
