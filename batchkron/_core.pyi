from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[Any]
_Indices = NDArray[np.int64]

class KronPlan:
    def __init__(
        self, inputs: Sequence[int], outputs: Sequence[int], outer: int, inner: int
    ) -> None: ...
    def run(
        self, factors: Sequence[_Array], x: _Array, alpha: complex, y: _Array, accumulate: bool
    ) -> None: ...
    @property
    def order(self) -> list[int]: ...
    @property
    def multiply_adds(self) -> float: ...

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
    def run(
        self, x: _Array, y: _Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None: ...
    @property
    def multiply_adds(self) -> float: ...

class BatchPlanFloat32(_BatchPlan): ...
class BatchPlanFloat64(_BatchPlan): ...
class BatchPlanComplex64(_BatchPlan): ...
class BatchPlanComplex128(_BatchPlan): ...

def kron(a: _Array, b: _Array, out: _Array) -> None: ...
def batched_gemm(
    a: _Array,
    b: _Array,
    c: _Array,
    alpha: complex,
    transpose_b: bool,
    a_ids: _Indices,
    b_ids: _Indices,
    order: _Indices,
    starts: _Indices,
) -> None: ...
def get_num_threads() -> int: ...
def set_num_threads(count: int) -> None: ...
def instruction_set() -> str: ...
