from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[Any]
_Indices = NDArray[np.int64]

class Pass:
    def __call__(self) -> None: ...

class StepTable:
    def __init__(self, steps: int, width: int, columns: int) -> None: ...
    def begin(self) -> None: ...
    def write(self, first: int, rows: NDArray[np.float64]) -> None: ...
    def sum_pass(
        self, first: int, vectors: Sequence[_Array], out: _Array | None, result: int, ends: bool
    ) -> Pass: ...
    def read(self, count: int) -> NDArray[np.float64]: ...

class StepProgram:
    def __init__(self, table: StepTable, passes: Sequence[Pass]) -> None: ...
    def run(self, steps: int) -> None: ...

# The classes below whose names begin with an underscore are there for each dtype, with it behind
# their names and without the underscore: KronPlanFloat32 is a _KronPlan.

class _KronPlan:
    def __init__(
        self,
        inputs: Sequence[int],
        outputs: Sequence[int],
        outer: int,
        inner: int,
        skipped: Sequence[bool] = (),
    ) -> None: ...
    def run(
        self,
        factors: Sequence[_Array | int],
        x: _Array,
        alpha: complex,
        y: _Array,
        accumulate: bool,
    ) -> None: ...
    @property
    def order(self) -> list[int]: ...
    @property
    def multiply_adds(self) -> float: ...

class _KronProduct:
    def __init__(
        self, factors: Sequence[_Array | int], before: int = 1, behind: int = 1
    ) -> None: ...
    def run(
        self, x: _Array, y: _Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None: ...
    def apply(self, x: object, out: object) -> bool: ...

class _KronSum(_KronProduct):
    def __init__(self, factors: Sequence[_Array]) -> None: ...

class _BatchPlan:
    def __init__(
        self,
        pools: Sequence[_Array],
        ids: _Indices,
        inputs: _Indices,
        outputs: _Indices,
        weights: _Array,
        systems: int,
        num_inputs: int,
        num_outputs: int,
        identity: Sequence[Sequence[bool]],
        atomic: bool,
    ) -> None: ...
    def set_values(self, pools: Sequence[_Array], weights: _Array) -> None: ...
    def apply(self, x: object, out: object) -> bool: ...
    def run(
        self, x: _Array, y: _Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None: ...
    def bind(
        self, x: _Array, y: _Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> Pass: ...
    @property
    def multiply_adds(self) -> float: ...

class _SegmentedPlan:
    def __init__(
        self,
        matrices: _Array,
        before: int,
        behind: int,
        num_inputs: int,
        starts: _Indices,
        ids: _Indices,
        children: _Indices,
    ) -> None: ...
    def set_values(self, matrices: _Array) -> None: ...
    def run(self, x: _Array, y: _Array, alpha: complex, accumulate: bool) -> None: ...
    @property
    def multiply_adds(self) -> float: ...

class _KronSparse:
    def __init__(self, values: _Array) -> None: ...
    def set_values(self, values: _Array) -> None: ...
    def run(
        self, x: _Array, y: _Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None: ...
    def apply(self, x: object, out: object) -> bool: ...
    def apply_last(self, x: object, out: object) -> bool: ...

class _Interpolation:
    def __init__(
        self, sizes: Sequence[int], corners: _Indices, weights: _Array, places: _Indices
    ) -> None: ...
    def scatter(
        self,
        points: _Array,
        point_step: int,
        vectors: Sequence[int],
        grid: _Array,
        cell_step: int,
        column: int,
    ) -> None: ...
    def gather(
        self,
        grid: _Array,
        cell_step: int,
        column: int,
        points: _Array,
        point_step: int,
        vectors: Sequence[int],
        alpha: float,
        accumulate: bool,
    ) -> None: ...

class FieldPlan:
    def __init__(
        self,
        unknowns: int,
        starts: NDArray[np.int64],
        columns: NDArray[np.int64],
        weights: _Array,
        mix: _Array,
        kept: _Array,
        levels: Sequence[tuple[int, _Array]],
        offsets: _Array,
        known: _Array,
        code: NDArray[np.int64],
        projection: _Array,
        fields: NDArray[np.int64],
        signs: _Array,
        lowest: _Array,
        outer: _Array,
        coarsen: _Array,
        upward: _Array,
    ) -> None: ...
    def write(self, u: _Array, heap: _Array, ancestors: _Array) -> bool: ...

class _SweepPlan:
    def __init__(
        self,
        sizes: Sequence[int],
        given: Sequence[int],
        vectors: Sequence[tuple[int, int]],
        steps: Sequence[
            tuple[int, bool, bool, Sequence[tuple[int, int, int, _Indices, _Indices, _Indices]]]
        ],
        matrices: Sequence[_Array],
    ) -> None: ...
    def set_values(self, matrices: Sequence[_Array]) -> None: ...
    def link(
        self, parts: Sequence[tuple[int, NDArray[np.int64], complex]], count: int
    ) -> _Array: ...
    def gather(self) -> None: ...
    def apply(self, x: object, out: object) -> bool: ...
    def run(
        self, x: _Array, y: _Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None: ...
    def bind(
        self, x: _Array, y: _Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> Pass: ...
    @property
    def multiply_adds(self) -> float: ...
    @property
    def num_listed(self) -> int: ...

class KrylovSequence:
    def __init__(
        self,
        names: Sequence[str],
        dtype: int,
        reduction: Callable[[NDArray[np.float64], bool], object] | None = None,
    ) -> None: ...
    def run(self, address: int) -> int: ...

def multiply_kron_sparse(values: _Array, x: _Array, y: _Array, outer: int, inner: int) -> None: ...
def kron(a: _Array, b: _Array, out: _Array) -> None: ...

# capsules: handlers for XLA's foreign functions
jax_batched_kron: object
jax_kron_gradients: object
jax_kron_matmul: object
jax_kronecker_sparse: object
jax_captured_on_device: object
jax_planned_on_device: object
jax_python_on_device: object
jax_python_on_host: object

def set_jax_function(function: Callable[..., None]) -> None: ...
def forget_jax_plans() -> None: ...
def set_jax_planner(function: Callable[..., tuple[Any, ...]]) -> None: ...
def batched_gemm(
    a: _Array,
    b: _Array,
    c: _Array,
    alpha: complex,
    transpose_b: bool,
    a_ids: _Indices,
    b_ids: _Indices,
    starts: _Indices,
) -> None: ...
def field_blocks(
    values: _Array,
    fields: NDArray[np.int64],
    signs: _Array,
    lowest: _Array,
    outer: _Array,
    coarsen: _Array,
    upward: _Array,
    heap: _Array,
    ancestors: _Array,
) -> None: ...
def sum_vectors(factors: Sequence[float], vectors: Sequence[_Array], out: _Array) -> None: ...
def plain_product(
    factors: object, x: object, out: object, alpha: object, left: bool, accumulate: bool
) -> _Array | None: ...
def kron_gradients(
    factors: Sequence[_Array],
    x: _Array,
    gradient: _Array,
    outer: int,
    of_x: _Array | None,
    results: Sequence[_Array | None],
) -> None: ...
def add_batch(
    pools: object,
    ids: object,
    x: object,
    inputs: object,
    outputs: object,
    y: object,
    weights: object,
) -> bool: ...
def plain_kron(factors: object, out: object) -> _Array | None: ...
def plain_gemm(a: object, b: object, alpha: object, transpose_b: bool) -> _Array | None: ...
def get_num_threads() -> int: ...
def num_processors() -> int: ...
def set_num_threads(count: int) -> None: ...
def set_thread_limit(count: int) -> None: ...
def instruction_set() -> str: ...
def missing_instruction_set() -> str: ...
def last_team_size() -> int: ...
def ranges_of_team(count: int, grain: int, passes: int = 1) -> list[list[tuple[int, int, int]]]: ...

class ThreadGain:
    def choose(self, available: int, now: float) -> int: ...
    def record(self, threads: int, work: float, begin: float, end: float) -> None: ...

class DeviceCall:
    def __call__(self, stream: int, addresses: tuple[int, ...], scalars: bytes) -> None: ...
    def run_with(self, stream: int, arguments: int) -> None: ...

class DeviceLaunch(DeviceCall):
    def __init__(
        self,
        launch: int,
        check: Callable[[int], object],
        kernel: int,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        threads: int,
        shared_bytes: int,
        early: bool,
        arguments: bytes,
        addresses: int,
        scalars: int,
    ) -> None: ...

class MatrixLibrary:
    def __init__(self, functions: Sequence[int], check: Callable[[int], object]) -> None: ...

class DeviceMultiply(DeviceCall):
    def __init__(
        self,
        *,
        library: MatrixLibrary,
        sizes: tuple[int, int, int, int, int],
        steps: tuple[int, ...],
        strides: tuple[int, ...],
        jumps: tuple[int, ...],
        transposed: tuple[bool, bool],
        values_first: bool,
        types: tuple[int, int],
        is_double: bool,
        workspace: int,
        arguments: bytes,
    ) -> None: ...

class DeviceSequence:
    def __init__(
        self,
        calls: Sequence[DeviceCall],
        places: Sequence[Sequence[tuple[int, int, int]]],
        addresses: int,
    ) -> None: ...
    def __call__(self, stream: int, addresses: tuple[int, ...], scalars: bytes) -> None: ...
