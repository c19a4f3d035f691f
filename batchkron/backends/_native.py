"""The only importer of the compiled module `batchkron._core`."""

from batchkron._core import (
    BatchPlanComplex64,
    BatchPlanComplex128,
    BatchPlanFloat32,
    BatchPlanFloat64,
    KronPlan,
    SegmentedPlanComplex64,
    SegmentedPlanComplex128,
    SegmentedPlanFloat32,
    SegmentedPlanFloat64,
    batched_gemm,
    get_num_threads,
    instruction_set,
    kron,
    set_num_threads,
)

__all__ = [
    "BatchPlanComplex64",
    "BatchPlanComplex128",
    "BatchPlanFloat32",
    "BatchPlanFloat64",
    "KronPlan",
    "SegmentedPlanComplex64",
    "SegmentedPlanComplex128",
    "SegmentedPlanFloat32",
    "SegmentedPlanFloat64",
    "batched_gemm",
    "get_num_threads",
    "instruction_set",
    "kron",
    "set_num_threads",
]
